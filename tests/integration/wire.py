# SPDX-License-Identifier: Apache-2.0
"""The framed protocol in plain Python: messages as dictionaries of field numbers, and a client."""
import socket
import struct

INFER, LIVE, READY, MODEL_READY, SERVER_METADATA, MODEL_METADATA = 10, 11, 12, 13, 14, 15
STATISTICS, INDEX, CANCEL, STATUS = 16, 17, 18, 19

# Seconds for whatever has to happen. Only a test that fails waits for so long, and so it is more
# than a busy machine takes, with sanitizers.
PATIENCE = 120

OK, CANCELLED, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND = 0, 1, 3, 4, 5
RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 8, 12, 13, 14
PERMISSION_DENIED, UNAUTHENTICATED = 7, 16


def varint(n):
    n &= (1 << 64) - 1
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def field(tag, value):
    """A number, bytes, text, or a message that was encoded before."""
    if isinstance(value, int):
        return varint(tag << 3) + varint(value)
    if isinstance(value, str):
        value = value.encode()
    return varint(tag << 3 | 2) + varint(len(value)) + value


def message(*fields):
    return b"".join(field(tag, value) for tag, value in fields)


def fields(data):
    """Yields (tag, value): numbers and bytes."""
    at = 0

    def number():
        nonlocal at
        shift = value = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = number()
        kind = key & 7
        if kind == 0:
            yield key >> 3, number()
        elif kind == 2:
            size = number()
            if at + size > len(data):
                raise ValueError("truncated field")
            yield key >> 3, data[at : at + size]
            at += size
        else:
            raise ValueError(f"wire type {kind}")


def varints(data):
    """A packed field."""
    out, shift = [0], 0
    for byte in data:
        out[-1] |= (byte & 127) << shift
        shift = shift + 7 if byte & 128 else 0
        if not shift:
            out.append(0)
    return out[:-1]


def decode(data):
    out = {}
    for tag, value in fields(data):
        out.setdefault(tag, []).append(value)
    return out


def one(decoded, tag, default=None):
    return decoded.get(tag, [default])[-1]


def text(decoded, tag):
    return one(decoded, tag, b"").decode()


def frame(body):
    return struct.pack(">I", len(body)) + body


def tensor(name, datatype, shape, **more):
    dims = b"".join(varint(d) for d in shape)
    parts = [(1, name), (2, datatype)] + ([(3, dims)] if shape else [])
    if "contents" in more:
        parts.append((5, more["contents"]))
    return message(*parts)


def infer_body(model, inputs, version="", outputs=(), request_id="", raw=True):
    """`inputs`: (name, datatype, shape, bytes)."""
    parts = [(1, model), (2, version), (3, request_id)]
    parts += [(5, tensor(name, datatype, shape)) for name, datatype, shape, _ in inputs]
    parts += [(6, message((1, name))) for name in outputs]
    if raw:
        parts += [(7, data) for _, _, _, data in inputs]
    return message(*(p for p in parts if p[1] != ""))


def request(request_id, kind, body=b"", timeout_us=0, priority=0, token=""):
    return frame(message((1, request_id), (2, timeout_us), (3, priority),
                         *([(4, token)] if token else []), (kind, body)))


class Reply:
    def __init__(self, data):
        self.raw = decode(data)
        self.id = one(self.raw, 1, 0)
        self.status = one(self.raw, 2, 0)
        self.message = text(self.raw, 3)
        self.retry_after_us = one(self.raw, 4, 0)
        self.timing = decode(one(self.raw, 5, b""))
        bodies = [tag for tag in self.raw if tag >= 10]
        self.kind = bodies[0] if bodies else None
        self.body = decode(one(self.raw, self.kind)) if bodies else {}

    @property
    def batch(self):
        return one(self.timing, 5, 0)

    def outputs(self):
        """name -> (datatype, shape, bytes)"""
        raw = self.body.get(6, [])
        found = {}
        for i, part in enumerate(self.body.get(5, [])):
            t = decode(part)
            dims, at, value, shift = one(t, 3, b""), [], 0, 0
            for byte in dims:
                value |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    at.append(value)
                    value = shift = 0
            found[text(t, 1)] = (text(t, 2), at, raw[i])
        return found


class Client:
    def __init__(self, address, timeout=PATIENCE):
        if address.startswith("unix:"):
            self.socket = socket.socket(socket.AF_UNIX)
            target = address[len("unix:") :]
        else:
            host, port = address.rsplit(":", 1)
            family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
            self.socket = socket.socket(family)
            target = (host.strip("[]"), int(port))
        self.socket.settimeout(timeout)
        try:
            self.socket.connect(target)
        except OSError:
            self.socket.close()
            raise
        if not address.startswith("unix:"):
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.next_id = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def receive_exactly(self, n):
        data = bytearray()
        while len(data) < n:
            part = self.socket.recv(min(n - len(data), 1 << 20))
            if not part:
                raise EOFError(f"closed after {len(data)} of {n} bytes")
            data += part
        return bytes(data)

    def receive(self):
        size = struct.unpack(">I", self.receive_exactly(4))[0]
        return Reply(self.receive_exactly(size))

    def closed(self):
        """Waits for the server to close; what comes before that is thrown away."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except (ConnectionResetError, BrokenPipeError):
            pass
        except TimeoutError:
            return False
        return True

    def start(self, kind, body=b"", **options):
        self.next_id += 1
        self.send(request(self.next_id, kind, body, **options))
        return self.next_id

    def call(self, kind, body=b"", **options):
        wanted = self.start(kind, body, **options)
        reply = self.receive()
        assert reply.id == wanted, (reply.id, wanted, reply.message)
        return reply

    def infer(self, model, inputs, timeout_us=0, priority=0, token="", **options):
        return self.call(INFER, infer_body(model, inputs, **options), timeout_us=timeout_us,
                         priority=priority, token=token)

    def counters(self, token=""):
        body = self.call(STATUS, token=token).body
        return {text(c, 1): one(c, 2, 0) for c in map(decode, body.get(11, []))}
