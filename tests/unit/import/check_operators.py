#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A page is what its program writes: check_operators.py [--write] PROGRAM PAGE [PROGRAM PAGE ..]"""
import difflib
import pathlib
import subprocess
import sys

write = sys.argv[1] == "--write"
pairs = sys.argv[1 + write:]
stale = False
for program, name in zip(pairs[::2], pairs[1::2], strict=True):
    page = pathlib.Path(name)
    want = subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert want.count("\n| ") > 150, want
    if write:
        page.write_text(want)
    have = page.read_text() if page.exists() else ""
    sys.stdout.writelines(difflib.unified_diff(have.splitlines(True), want.splitlines(True),
                                               name, program))
    if have != want:
        print(f"{name} is out of date: ninja operators writes it")
        stale = True
sys.exit(stale)
