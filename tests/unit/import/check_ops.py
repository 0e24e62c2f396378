#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The operators that docs/onnx.md lists are those of the importer's table: check_ops.py ROOT"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
rows = re.findall(r'^    \{"(\w+)", "", \d+, \w+, map_\w+, \w+\},$',
                  (root / "engine/import/ops.c").read_text(), re.M)
text = (root / "docs/onnx.md").read_text().split("## Operators\n")[1]
section = re.sub(r"\*\*.*?\*\*:", "", text.split("\nForms of these")[0])
listed = re.findall(r"\w+(?=[,.])", section)
for name in sorted(set(rows) - set(listed)):
    print(f"docs/onnx.md: {name} is missing")
for name in sorted(set(listed) - set(rows)):
    print(f"docs/onnx.md: {name} is not supported")
print(f"{len(set(rows))} operators in the table, {len(listed)} in the list")
sys.exit(not rows or sorted(set(rows)) != sorted(listed))
