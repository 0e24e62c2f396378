#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What ptxas said of the kernels for Hopper: registers must not spill, and matrix products must not
be made to wait for each other.

    check_ptxas.py LOG...
"""
import pathlib
import re
import sys

ENTRY = re.compile(r"Compiling entry function '(\w+)'")
SPILL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
# the mangled end of a shape's name, and the bytes that it may spill
ALLOWED = []


def complaints(text):
    """Sentences on what is wrong, and the number of kernels."""
    wrong, entry, kernels = [], "?", 0
    for line in text.splitlines():
        if found := ENTRY.search(line):
            entry, kernels = found[1], kernels + 1
        if "C75" in line or "serializ" in line.lower():
            wrong.append(f"{entry}: {line.strip()}")
        found = SPILL.search(line)
        if found and int(found[2]) + int(found[3]) > most(entry):
            wrong.append(f"{entry}: {line.strip()}")
    return wrong, kernels


def most(entry):
    """The bytes that a kernel may spill."""
    return next((n for name, n in ALLOWED if name in entry), 0)


def check_self():
    """A log with each fault must be complained of."""
    head = "ptxas info    : Compiling entry function '_Z1k' for 'sm_90a'\n"
    good = head + "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    assert complaints(good) == ([], 1)
    assert complaints(good.replace(" 0 bytes spill stores", " 8 bytes spill stores"))[0]
    assert complaints(head + "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async "
                      "instructions are serialized due to ...\n")[0]


def main():
    check_self()
    wrong, total = [], 0
    for name in sys.argv[1:]:
        said, kernels = complaints(pathlib.Path(name).read_text(encoding="utf-8"))
        wrong, total = wrong + said, total + kernels
        print(f"{pathlib.Path(name).name}: {kernels} kernels")
    if not total:
        wrong.append("ptxas has said nothing of any kernel")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
