#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A file as an array of C.

    embed.py IN OUT NAME
"""
import pathlib
import sys

data = pathlib.Path(sys.argv[1]).read_bytes()
lines = [",".join(map(str, data[i:i + 24])) for i in range(0, len(data), 24)]
pathlib.Path(sys.argv[2]).write_text(
    f'/* Made by embed.py. */\n#include "proto/schema.h"\n'
    f"const unsigned char {sys.argv[3]}[] = {{\n" + ",\n".join(lines) +
    f"}};\nconst size_t {sys.argv[3]}_size = sizeof({sys.argv[3]});\n")
