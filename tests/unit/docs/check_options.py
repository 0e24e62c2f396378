#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every option that a program's help names is in its man page, and the other way round.

    check_options.py ROOT INFERCTL INFERD
"""
import pathlib
import re
import subprocess
import sys
import unittest

MAN = pathlib.Path(sys.argv[1]) / "docs/man"
INFERCTL, INFERD = sys.argv[2:4]
COMMANDS = ("build", "inspect", "graph", "run", "bench", "infer", "load", "models",
            "status", "sign", "token")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")


def told(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=60, check=False)
    return done.returncode, set(OPTION.findall(done.stdout + done.stderr))


def written(page):
    return set(OPTION.findall((MAN / page).read_text().replace("\\-", "-")))


class Options(unittest.TestCase):
    def test_inferd(self):
        code, options = told(INFERD, "--help")
        self.assertEqual(code, 0)
        self.assertGreater(len(options), 5)
        self.assertEqual(options - {"--help"}, written("inferd.8") - {"--help"})

    def test_inferctl(self):
        options = set()
        for command in COMMANDS:
            code, some = told(INFERCTL, command, "--help")
            self.assertEqual(code, 0, command)
            options |= some
        self.assertGreater(len(options), 10)
        self.assertEqual(options - {"--help", "--version"},
                         written("inferctl.1") - {"--help", "--version"})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
