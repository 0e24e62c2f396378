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
COMMANDS = ("build", "calibrate", "inspect", "graph", "run", "bench", "infer", "load", "models",
            "status", "sign", "token", "completion")
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

    def test_inferd_names_what_there_is(self):
        """Wrong options, and the words that are no repositories."""
        def said(*arguments):
            done = subprocess.run([INFERD, *arguments], stdin=subprocess.DEVNULL, text=True,
                                  capture_output=True, timeout=60, check=False)
            return done.returncode, done.stdout, done.stderr
        self.assertEqual(said("help"), said("--help"))
        self.assertEqual(said("version"), said("-v"))
        for arguments, words in (
                (["--listn", "x"], "no such option '--listn' (did you mean 'listen'?)\n"),
                (["--Device=cpu"], "no such option '--Device=cpu' (did you mean 'device'?)\n"),
                (["--nothing"], "no such option '--nothing'\n"),
                (["-x"], "no such option '-x'\n"),
                (["--check-config=1"], "takes no value: '--check-config=1'\n"),
                (["--version=1"], "takes no value: '--version=1'\n"),
                (["--workers"], "a value is missing after '--workers'\n")):
            code, out, err = said(*arguments)
            self.assertEqual((code, out), (2, ""), arguments)
            self.assertIn(words, err)

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
