#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The bundled test images: cut into batches, and the answers scored. Standard library only.

    digits.py split MODELS FOLDER    FOLDER/000.npy ...: 32 images each, fp32 [32,1,8,8]
    digits.py score MODELS FOLDER    reads FOLDER/000/probabilities.npy ..., prints the accuracy
"""
import array
import ast
import pathlib
import struct
import sys

BATCH = 32
SHOWN = 16
SHADES = " .:-=+*#%@"


def npy_read(path, dtype):
    """Shape and values of a little-endian C-order array of the dtype expected."""
    data = path.read_bytes()
    if data[:6] != b"\x93NUMPY":
        sys.exit(f"{path}: not a .npy file")
    wide = data[6] > 1
    size = struct.unpack_from("<I" if wide else "<H", data, 8)[0]
    start = (12 if wide else 10) + size
    header = ast.literal_eval(data[start - size : start].decode("latin1"))
    if header["descr"] != dtype or header["fortran_order"]:
        sys.exit(f"{path}: expected {dtype} in C order, got {header}")
    values = array.array({"|u1": "B", "<f4": "f"}[dtype])
    values.frombytes(data[start:])
    return header["shape"], values


def npy_write_f32(path, shape, values):
    header = str({"descr": "<f4", "fortran_order": False, "shape": tuple(shape)})
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode("latin1"))
        f.write(array.array("f", values).tobytes())


def split(models, folder):
    shape, pixels = npy_read(models / "digits_test_images.npy", "|u1")
    folder.mkdir(parents=True, exist_ok=True)
    each = len(pixels) // shape[0]
    for k, first in enumerate(range(0, shape[0], BATCH)):
        count = min(BATCH, shape[0] - first)
        npy_write_f32(folder / f"{k:03}.npy", [count, *shape[1:]],
                      pixels[first * each : (first + count) * each])
    print(f"{shape[0]} images in {k + 1} requests")


def drawing(pixels):
    rows = [pixels[8 * r : 8 * r + 8] for r in range(8)]
    return ["".join(SHADES[p * (len(SHADES) - 1) // 16] * 2 for p in row) for row in rows]


def answers(folder):
    for result in sorted(folder.glob("[0-9][0-9][0-9]/probabilities.npy")):
        shape, p = npy_read(result, "<f4")
        for i in range(shape[0]):
            row = p[10 * i : 10 * i + 10]
            yield max(range(10), key=row.__getitem__), max(row)


def score(models, folder):
    shape, pixels = npy_read(models / "digits_test_images.npy", "|u1")
    _, labels = npy_read(models / "digits_test_labels.npy", "|u1")
    given = list(answers(folder))
    if len(given) != len(labels):
        sys.exit(f"{len(given)} answers for {len(labels)} images")

    for line in zip(*(drawing(pixels[64 * i : 64 * i + 64]) for i in range(4))):
        print("  ".join(line))
    print("prediction  " + " ".join(str(guess) for guess, _ in given[:SHOWN]) + " ...")
    print("label       " + " ".join(str(label) for label in labels[:SHOWN]) + " ...")
    right = 0
    for i, ((guess, certainty), label) in enumerate(zip(given, labels)):
        right += guess == label
        if guess != label:
            print(f"image {i}: prediction {guess} ({certainty:.2f}), label {label}")
    print(f"{right} of {len(labels)} right")
    print(f"accuracy {right / len(labels):.4f}")


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in ("split", "score"):
        sys.exit(__doc__)
    {"split": split, "score": score}[sys.argv[1]](*map(pathlib.Path, sys.argv[2:]))
