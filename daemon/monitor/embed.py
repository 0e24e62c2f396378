#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files as arrays of C, compressed, so that they are part of the program.

    embed.py OUT NAME=FILE...     a FILE of "" is an empty one
"""
import gzip
import pathlib
import sys


def main():
    out = ['/* Made by embed.py. */', '#include "daemon/monitor/asset.h"']
    rows = []
    for argument in sys.argv[2:]:
        name, _, path = argument.partition("=")
        data = gzip.compress(pathlib.Path(path).read_bytes() if path else b"", 9, mtime=0)
        lines = [",".join(map(str, data[i:i + 24])) for i in range(0, len(data), 24)]
        out += [f"static const unsigned char data_{len(rows)}[] = {{", ",\n".join(lines), "};"]
        rows.append(f'    {{"/{name}", data_{len(rows)}, sizeof(data_{len(rows)})}},')
    out += ["const struct asset assets[] = {", *rows, "};",
            f"const unsigned n_assets = {len(rows)};", ""]
    pathlib.Path(sys.argv[1]).write_text("\n".join(out))


main()
