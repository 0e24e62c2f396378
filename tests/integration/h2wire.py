# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 frame by frame, for peers that break its rules: no library would send what these tests do.

Headers are written as literals without indexing; what comes is decoded as far as the tests look.
"""
import socket
import struct
import time

from wire import PATIENCE

DATA, HEADERS, PRIORITY, RESET, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED = 1, 1, 4, 8
NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL, REFUSED, CANCEL, CALM = 0, 1, 3, 7, 8, 11
FRAME = 1 << 20  # bytes of the largest that is taken
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
INFER = "/inference.GRPCInferenceService/ModelInfer"
LIVE = "/inference.GRPCInferenceService/ServerLive"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def integer(value, bits):
    most = (1 << bits) - 1
    if value < most:
        return bytes([value])
    out, value = [most], value - most
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    return bytes(out + [value])


def text(data):
    data = data.encode() if isinstance(data, str) else data
    return integer(len(data), 7) + data


def block(headers):
    return b"".join(b"\0" + text(k) + text(v) for k, v in headers)


def call_headers(path=INFER, *more):
    return [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "test"),
            ("content-type", "application/grpc"), ("te", "trailers"), *more]


def message(data, compressed=0):
    return struct.pack(">BI", compressed, len(data)) + data


class Peer:
    """A connection whose every frame is the test's choice."""

    def __init__(self, address, settings=b"", preface=PREFACE):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE)
        self.buffer, self.next_id, self.frames = b"", 1, []
        self.granted, self.poured = {}, {}  # bytes, by stream
        self.send(preface + frame(SETTINGS, payload=settings))
        if preface == PREFACE:
            self.settings = self.read()  # what they allow counts from now on
            self.send(frame(SETTINGS, ACK))

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, data):
        self.socket.sendall(data)

    def call(self, path=INFER, body=b"", end=True, headers=(), send=True):
        """HEADERS and, if there is a body, DATA; returns the stream's number."""
        stream, self.next_id = self.next_id, self.next_id + 2
        out = frame(HEADERS, END_HEADERS | (END_STREAM if end and not body else 0), stream,
                    block(call_headers(path, *headers)))
        for at in range(0, len(body), FRAME):
            last = at + FRAME >= len(body)
            out += frame(DATA, END_STREAM if end and last else 0, stream, body[at:at + FRAME])
        if send:
            self.send(out)
            return stream
        return stream, out

    def window(self, stream):
        """How much more may be sent in a stream, or with stream 0 in all of them, of what `pour`
        has sent."""
        first = dict(struct.iter_unpack(">HI", self.settings[3])).get(4, 65535) if stream else 65535
        return first + self.granted.get(stream, 0) - self.poured.get(stream, 0)

    def pour(self, stream, body, end=True):
        """Sends data as far as the server grants windows, for which it is waited."""
        at = 0
        while at < len(body):
            n = min(len(body) - at, FRAME, self.window(0), self.window(stream))
            if n <= 0:
                self.read()
                continue
            at += n
            for number in (0, stream):
                self.poured[number] = self.poured.get(number, 0) + n
            last = END_STREAM if end and at == len(body) else 0
            self.send(frame(DATA, last, stream, body[at - n:at]))

    def read(self):
        """The next frame as (kind, flags, stream, payload); None at the end."""
        try:
            while len(self.buffer) < 9 or len(self.buffer) < 9 + self.length():
                data = self.socket.recv(1 << 16)
                if not data:
                    return None
                self.buffer += data
        except ConnectionResetError:
            return None
        end = 9 + self.length()
        kind, flags, stream = struct.unpack(">BBI", self.buffer[3:9])
        payload, self.buffer = self.buffer[9:end], self.buffer[end:]
        self.frames.append((kind, flags, stream, payload))
        if kind == WINDOW:
            grant = int.from_bytes(payload, "big")
            self.granted[stream] = self.granted.get(stream, 0) + grant
        return self.frames[-1]

    def length(self):
        return int.from_bytes(self.buffer[:3], "big")

    def until(self, wanted, seconds=PATIENCE):
        """The first frame for which `wanted` is true; None: the connection ended before."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            got = self.read()
            if got is None or wanted(*got):
                return got
        raise AssertionError("no such frame in time")

    def goaway(self):
        """The code of the GOAWAY that ends the connection; None: it ended without."""
        code = None
        while (got := self.read()) is not None:
            if got[0] == GOAWAY:
                code = struct.unpack(">II", got[3][:8])[1]
        return code

    def ends_stream(self, stream):
        """What ends it: a HEADERS with END_STREAM, or a RESET."""
        return self.until(lambda k, f, s, p: s == stream and (
            k == RESET or (k in (HEADERS, DATA) and f & END_STREAM)))

    def alive(self):
        """Whether pings are answered still."""
        try:
            self.send(frame(PING, 0, 0, b"are you?"))
        except (BrokenPipeError, ConnectionResetError):
            return False
        got = self.until(lambda k, f, s, p: k == PING and f & ACK and p == b"are you?")
        return got is not None
