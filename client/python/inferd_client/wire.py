# SPDX-License-Identifier: Apache-2.0
"""As much of protobuf as the protocol takes, and where servers are."""
from __future__ import annotations

import socket
import ssl
import struct
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple, Union

Value = Union[int, bytes, str]

HEADER = struct.Struct(">I")
DEFAULT_PORT = 8003


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def head(tag: int, size: int) -> bytes:
    """What stands before `size` bytes of a field."""
    return varint(tag << 3 | 2) + varint(size)


def field(tag: int, value: Value) -> bytes:
    if isinstance(value, int):
        return varint(tag << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return head(tag, len(data)) + data


def message(*fields: Tuple[int, Value]) -> bytes:
    """Fields that are empty or 0 are left out, as proto3 does."""
    return b"".join(field(tag, value) for tag, value in fields if value)


class _Reader:
    def __init__(self, data: memoryview) -> None:
        self.data, self.at = data, 0

    def varint(self) -> int:
        shift = value = 0
        while shift < 70:
            if self.at >= len(self.data):
                break
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
        raise ValueError("the server's reply is cut short")

    def take(self, size: int) -> memoryview:
        if size > len(self.data) - self.at:
            raise ValueError("the server's reply is cut short")
        self.at += size
        return self.data[self.at - size:self.at]


def decode(data: Union[bytes, bytearray, memoryview]) -> Dict[int, list]:
    """tag -> its values: numbers, and views of `data`."""
    reader = _Reader(memoryview(data).toreadonly())
    out: Dict[int, list] = {}
    while reader.at < len(reader.data):
        key = reader.varint()
        kind = key & 7
        if kind == 0:
            value: Union[int, memoryview] = reader.varint()
        elif kind == 2:
            value = reader.take(reader.varint())
        elif kind in (1, 5):
            value = reader.take(8 if kind == 1 else 4)
        else:
            raise ValueError(f"the server's reply has a field of type {kind}")
        out.setdefault(key >> 3, []).append(value)
    return out


def number(decoded: Dict[int, list], tag: int) -> int:
    value = decoded[tag][-1] if tag in decoded else 0
    if not isinstance(value, int):
        raise ValueError(f"the server's reply has no number in field {tag}")
    return value


def blobs(decoded: Dict[int, list], tag: int) -> List[memoryview]:
    """The values of a field that has bytes, texts or messages."""
    values = decoded.get(tag, [])
    if any(isinstance(value, int) for value in values):
        raise ValueError(f"the server's reply has a number in field {tag}")
    return values


def texts(decoded: Dict[int, list], tag: int) -> Tuple[str, ...]:
    return tuple(bytes(blob).decode("utf-8", "replace") for blob in blobs(decoded, tag))


def text(decoded: Dict[int, list], tag: int) -> str:
    return (texts(decoded, tag) or ("",))[-1]


def part(decoded: Dict[int, list], tag: int) -> Dict[int, list]:
    """The message in a field."""
    found = blobs(decoded, tag)
    return decode(found[-1]) if found else {}


def signed(values: Iterable[int]) -> Tuple[int, ...]:
    return tuple(v - (1 << 64) if v >> 63 else v for v in values)


def packed(decoded: Dict[int, list], tag: int) -> Tuple[int, ...]:
    """A repeated int64, packed or not."""
    out: List[int] = []
    for value in decoded.get(tag, []):
        if isinstance(value, int):
            out.append(value)
            continue
        reader = _Reader(value)
        while reader.at < len(value):
            out.append(reader.varint())
    return signed(out)


class Target(NamedTuple):
    """Where a server is: a family (0: any), an address, and how TLS is spoken there."""
    family: int
    address: Union[str, Tuple[str, int]]
    tls: Optional[ssl.SSLContext]
    name: Optional[str]


def target_of(address: str, tls: Union[None, bool, ssl.SSLContext] = None) -> Target:
    """An address as for _place_of or, with TLS,
    "tls://HOST:PORT?ca=FILE&cert=FILE&key=FILE&name=HOST" (all behind the '?' may be left out);
    `tls` is a context of the caller's own, or True."""
    options: Dict[str, str] = {}
    if address.startswith("tls://"):
        address, _, query = address[len("tls://"):].partition("?")
        for pair in query.split("&") if query else []:
            key, _, value = pair.partition("=")
            if key not in ("ca", "cert", "key", "name") or not value or key in options:
                raise ValueError(f"{address!r}: expected ca=FILE, cert=FILE, key=FILE or name=HOST,"
                                 f" each once, behind '?' and '&', got {pair!r}")
            options[key] = value
        if "key" in options and "cert" not in options:
            raise ValueError(f"{address!r}: expected cert=FILE beside key=")
        tls = tls or True
    family, place = _place_of(address)
    if not tls:
        return Target(family, place, None, None)
    if isinstance(place, str):
        raise ValueError(f"{address!r}: TLS is spoken over TCP")
    if tls is True:
        tls = ssl.create_default_context(cafile=options.get("ca"))
        if "cert" in options:
            tls.load_cert_chain(options["cert"], options.get("key"), password="")
    return Target(family, place, tls, options.get("name", place[0]))


def _place_of(address: str) -> Tuple[int, Union[str, Tuple[str, int]]]:
    """"HOST:PORT", "[IPV6]:PORT", "HOST" or "unix:/PATH": a family (0: any) and an address."""
    if address.startswith("unix:"):
        return socket.AF_UNIX, address[len("unix:"):]
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, str(DEFAULT_PORT)
    if not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{address!r}: expected HOST:PORT, [IPV6]:PORT or unix:/PATH")
    return 0, (host.strip("[]"), int(port))
