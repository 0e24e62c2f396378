#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of fuzz_session: two bytes for the host, then frames."""
import pathlib
import struct
import sys

root = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(root / "tests/integration"))
import wire  # noqa: E402
from wire import message  # noqa: E402

A = ("a", "FP32", [1, 2], struct.pack("<2f", 1, 2))
N = ("n", "INT64", [1, 1, 1], struct.pack("<q", -1))


def infer(inputs, **options):
    return wire.request(7, wire.INFER, wire.infer_body("m", inputs, **options), timeout_us=1000)


def large(instances):
    return infer([("a", "FP32", [instances, 2], bytes(8 * instances)),
                  ("n", "INT64", [instances, 1, 1], bytes(8 * instances))])


def typed():
    a = wire.tensor("a", "FP32", [1, 2], contents=message((6, A[3])))
    n = wire.tensor("n", "INT64", [1, 1, 1], contents=message((3, b"\x05")))
    return wire.request(3, wire.INFER, message((1, "m"), (5, a), (5, n)))


def parameters():
    values = [(1, True), (2, 1000), (3, "text"), (5, 1000)]
    entries = [(4, message((1, "k"), (2, message(first, second))))
               for first in values for second in values]
    return wire.request(3, wire.INFER, message((1, "m"), *entries))


SEEDS = {
    "infer": infer([A, N]),
    "infer_options": infer([N, A], version="1", outputs=["sum"], request_id="id"),
    "typed": typed(),
    "missing": infer([A]),
    "duplicate": infer([A, A, N]),
    "wrong_dtype": infer([("a", "FP64", [1, 1], bytes(8)), N]),
    "extreme_shape": infer([("a", "FP32", [2**63 - 1, 2], b""), N]),
    "large": large(4200),
    "large_then_small": large(4150) + infer([A, N]),
    "kinds": b"".join(wire.request(k, k, message((1, "m"), (2, "1"))) for k in range(10, 20)),
    "cancel": infer([A, N]) + wire.request(8, wire.CANCEL, message((1, 7))),
    "pipeline": infer([A, N]) * 20,
    "too_large": struct.pack(">I", 1 << 30) + b"x",
    "empty": struct.pack(">I", 0) * 3,
    "group": wire.frame(b"\x63\x64\x08\x01"),
    "wrong_wire_type": wire.frame(b"\x08\x01\x20\x05"),
    "broken": wire.frame(b"\x08\x05\x52\x02\x0a\xff"),
    "cut": infer([A, N])[:-3],
    "parameters": parameters(),
    "unknown_body": wire.request(3, 20, message((1, "m"))) + wire.request(4, 9, b""),
    "many_fields": wire.request(3, wire.INFER, b"\x48\x00" * 1200) + infer([A, N]),
    "many_parameters": wire.request(3, wire.INFER, message((1, "m"), *[(4, b"")] * 65)),
    "padded": wire.request(3, wire.INFER, message((1, "m"), (99, bytes(2100)), (5, b"\x0a\x01a"))),
    "not_utf8": wire.request(3, wire.INFER, message((1, b"\xff"), (3, b"\xc3"))),
}

if __name__ == "__main__":
    folder = root / "tests/fuzz/corpus/session"
    folder.mkdir(parents=True, exist_ok=True)
    for i, (name, stream) in enumerate(SEEDS.items()):
        (folder / name).write_bytes(bytes([i % 12, (i * 37) % 256]) + stream)
