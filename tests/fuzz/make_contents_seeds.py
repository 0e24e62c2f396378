#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of fuzz_contents: datatype, elements, budgets, and then InferTensorContents."""
import pathlib
import struct
import sys

root = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(root / "tests/integration"))
from wire import field, message, varint  # noqa: E402

BOOL, U8, U16, U32, U64, I8, I16, I32, I64, F16, BF16, F32, F64 = range(13)
FLOATS = struct.pack("<3f", 1, 2, 3)
SEEDS = {
    "bool": (BOOL, 3, message((1, b"\x01\x00\x01"))),
    "i8": (I8, 2, message((2, b"\x01" + varint(-1)))),
    "i16": (I16, 2, message((2, varint(-32768)), (2, varint(32767)))),
    "i32": (I32, 2, message((2, varint(-2**31) + varint(2**31 - 1)))),
    "i64": (I64, 3, message((3, varint(-1) + varint(2**62)), (3, 5))),
    "u8": (U8, 3, message((4, b"\x00\xff\x01"), (4, 7))),
    "u16": (U16, 2, message((4, b"\x00\xff\xff\x03"))),
    "u32": (U32, 2, message((4, varint(2**32 - 1)), (4, 0))),
    "u64": (U64, 2, message((5, varint(2**64 - 1) + b"\x00"))),
    "f32": (F32, 3, message((6, FLOATS))),
    "f32_single": (F32, 3, b"".join(b"\x35" + FLOATS[i:i + 4] for i in (0, 4, 8))),
    "f64": (F64, 2, message((7, struct.pack("<d", 1)), (7, struct.pack("<d", 2)))),
    "f64_single": (F64, 1, b"\x39" + struct.pack("<d", 1)),
    "f16": (F16, 1, message((6, FLOATS))),
    "bytes": (U8, 1, message((8, b"text"))),
    "empty": (F32, 0, b""),
    "empty_chunks": (F32, 1, message((6, b""), (6, FLOATS[:4]), (6, b""))),
    "many_empty": (U8, 0, message((4, b"")) * 1025),
    "unknown": (U8, 1, message((9, 5), (4, 1), (99, b"zzz")) + b"\x7d1234"),
    "group": (U8, 1, b"\x4b\x4c"),
    "ragged": (F32, 1, field(6, FLOATS[:5])),
    "missing": (F32, 4, message((6, FLOATS))),
    "more": (F32, 2, message((6, FLOATS))),
    "cut": (F32, 3, message((6, FLOATS))[:-1]),
}


def main():
    folder = root / "tests/fuzz/corpus/contents"
    folder.mkdir(parents=True, exist_ok=True)
    for n, (name, (dtype, elements, contents)) in enumerate(SEEDS.items()):
        (folder / name).write_bytes(bytes((dtype, elements, n)) + contents)


main()
