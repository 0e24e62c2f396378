#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No input decides the size of a stack: the options with which every file is compiled.

    check_stack.py BUILD
"""
import json
import pathlib
import sys
import unittest

BUILD = pathlib.Path(sys.argv[1])
NEEDED = {"-Werror=vla", "-Werror=alloca"}


class Stack(unittest.TestCase):
    def test_r2_no_arrays_of_variable_length(self):
        commands = json.loads((BUILD / "compile_commands.json").read_text())
        seen = 0
        for entry in commands:
            if not entry["file"].endswith(".c") or not entry["file"].startswith(".."):
                continue  # C++ and CUDA have no such arrays in what is written here; generated C
            seen += 1
            given = set(entry["command"].split())
            self.assertLessEqual(NEEDED, given, entry["file"])
            self.assertFalse(given & {"-Wno-vla", "-Wno-alloca", "-Wno-error"}, entry["file"])
        self.assertGreater(seen, 100)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
