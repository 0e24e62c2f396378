#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/operators.md is what describe_ops writes: check_operators.py [--write] DESCRIBE_OPS ROOT"""
import difflib
import pathlib
import subprocess
import sys

write = sys.argv[1] == "--write"
program, root = sys.argv[1 + write:]
page = pathlib.Path(root, "docs/operators.md")
want = subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True).stdout
assert want.count("\n| ") > 150, want
if write:
    page.write_text(want)
have = page.read_text()
sys.stdout.writelines(difflib.unified_diff(have.splitlines(True), want.splitlines(True),
                                           "docs/operators.md", "describe_ops"))
if have != want:
    print("docs/operators.md is out of date: ninja operators writes it")
sys.exit(have != want)
