#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns the launches of a .cu file, kernel<<<grid, block, shared, stream>>>(arguments), into calls
of the emulator.

    launches.py FILE.cu FILE.cpp
"""
import pathlib
import re
import sys

LAUNCH = re.compile(r"([\w:]+(?:<[^<>;]*>)?)<<<(.*?)>>>(\(.*?\));", re.DOTALL)


def split(text):
    """The arguments of a list, whose commas may stand in brackets."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [part.strip() for part in parts]


def emulated(match):
    kernel, shape, arguments = match.groups()
    grid, block, shared = (split(shape) + ["0"])[:3]
    return f"emulate_launch({grid}, {block}, {shared}, [&] {{ {kernel}{arguments}; }});"


def main():
    text, count = LAUNCH.subn(emulated, pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    if not count:
        sys.exit(f"{sys.argv[1]}: no launches")
    pathlib.Path(sys.argv[2]).write_text(f'#line 1 "{sys.argv[1]}"\n{text}', encoding="utf-8")


if __name__ == "__main__":
    main()
