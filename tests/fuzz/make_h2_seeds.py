#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of fuzz_h2: two bytes for the host, then frames behind the preface."""
import gzip
import pathlib
import struct
import sys
import zlib

root = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(root / "tests/integration"))
import h2wire as h2  # noqa: E402
import wire  # noqa: E402
from wire import message  # noqa: E402

SETTINGS = h2.frame(h2.SETTINGS) + h2.frame(h2.SETTINGS, h2.ACK)
HEALTH = "/grpc.health.v1.Health/"
REFLECT = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
SERVICE = "/inference.GRPCInferenceService/"


def infer(size=16, **more):
    tensor = message((1, "x"), (2, "UINT8"), (3, wire.varint(size)))
    return message((1, "m"), (3, "id"), (5, tensor), (7, bytes(size)))


def headers(stream, path=h2.INFER, end=False, *more):
    return h2.frame(h2.HEADERS, h2.END_HEADERS | (h2.END_STREAM if end else 0), stream,
                    h2.block(h2.call_headers(path, *more)))


def data(stream, body, end=True, step=16000):
    parts = [body[i:i + step] for i in range(0, len(body), step)] or [b""]
    return b"".join(h2.frame(h2.DATA, h2.END_STREAM if end and i == len(parts) - 1 else 0, stream,
                             part) for i, part in enumerate(parts))


def call(stream, body, path=h2.INFER, *more):
    return headers(stream, path, False, *more) + data(stream, body)


def window(stream, n):
    return h2.frame(h2.WINDOW, 0, stream, struct.pack(">I", n))


def reset(stream):
    return h2.frame(h2.RESET, 0, stream, struct.pack(">I", 8))


LOAD = message((2, "m"), (3, message((1, "config"), (2, message((3, "{}"))))))
LOG = message((1, message((1, "log_info"), (2, message((1, 1))))))
SEEDS = {
    "infer": call(1, h2.message(infer())),
    "two_calls": call(1, h2.message(infer())) + call(3, h2.message(infer())),
    "large": call(1, h2.message(infer(200000))),
    "crossed": headers(1) + headers(3) + data(1, h2.message(infer(70000))[:30000], False) +
               data(3, h2.message(infer())) + data(1, h2.message(infer(70000))[30000:]),
    "stream": headers(1, h2.STREAM) + data(1, h2.message(infer()) * 9),
    "stream_slowly": headers(1, h2.STREAM) + data(1, h2.message(infer()) * 3, step=7),
    "stream_large": headers(1, h2.STREAM) + data(1, h2.message(infer(90000)) * 2, False) +
                    data(1, h2.message(infer())),
    "gzip": call(1, h2.message(gzip.compress(infer(5000), mtime=0), 1), h2.INFER,
                 ("grpc-encoding", "gzip")),
    "deflate": call(1, h2.message(zlib.compress(infer(250000)), 1), h2.INFER,
                    ("grpc-encoding", "deflate")),
    "bomb": call(1, h2.message(zlib.compress(bytes(900000)), 1), h2.INFER,
                 ("grpc-encoding", "deflate")),
    "questions": b"".join(call(2 * i + 1, h2.message(message((1, "m"))), SERVICE + name)
                          for i, name in enumerate(["ServerLive", "ModelReady", "ModelConfig",
                                                    "ModelStatistics", "RepositoryIndex"])),
    "load": call(1, h2.message(LOAD), SERVICE + "RepositoryModelLoad"),
    "log": call(1, h2.message(LOG), SERVICE + "LogSettings"),
    "health": call(1, h2.message(b""), HEALTH + "Check") +
              call(3, h2.message(message((1, "other"))), HEALTH + "Watch") +
              call(5, h2.message(b""), HEALTH + "Watch"),
    "reflection": headers(1, REFLECT) + data(1, h2.message(message((7, "*"))) + h2.message(
        message((4, "inference.ModelInferRequest"))) + h2.message(message((3, "none")))),
    "reset": headers(1) + data(1, h2.message(infer()), False) + reset(1) +
             call(3, h2.message(infer())) + reset(3),
    "no_window": h2.frame(h2.SETTINGS, 0, 0, struct.pack(">HI", 4, 3)) +
                 call(1, h2.message(infer())) + window(1, 10) + window(1, 1 << 20),
    "little_window": window(0, 1 << 20) + call(1, h2.message(infer())) + window(1, 50000) +
                     window(0, 50000) + reset(1),
    "padded": headers(1) + h2.frame(h2.DATA, 9, 1, b"\x05" + h2.message(infer()) + bytes(5)),
    "continued": h2.frame(h2.HEADERS, 0, 1, h2.block(h2.call_headers())[:20]) +
                 h2.frame(h2.CONTINUATION, 4, 1, h2.block(h2.call_headers())[20:]) +
                 data(1, h2.message(infer())),
    "cut": headers(1) + data(1, h2.message(infer())[:-3]),
    "two_messages": headers(1) + data(1, h2.message(infer()) * 2),
    "no_method": call(1, b"", "/none"),
    "options": call(1, h2.message(infer()), h2.INFER, ("grpc-timeout", "1S"),
                    ("authorization", "Bearer abc"), ("traceparent", "00-1-2-01")),
    "trailers": headers(1) + data(1, h2.message(infer()), False) +
                h2.frame(h2.HEADERS, 5, 1, h2.block([("a", "b")])),
    "goaway": call(1, h2.message(infer())) + h2.frame(h2.GOAWAY, 0, 0, bytes(8)),
    "pings": h2.frame(h2.PING, 0, 0, bytes(8)) * 50 + h2.frame(h2.PRIORITY, 0, 3, bytes(5)) * 9,
}

if __name__ == "__main__":
    folder = root / "tests/fuzz/corpus/h2"
    folder.mkdir(parents=True, exist_ok=True)
    for i, (name, stream) in enumerate(SEEDS.items()):
        (folder / name).write_bytes(bytes([(i * 5) % 256, (i * 37) % 256]) + SETTINGS + stream)
