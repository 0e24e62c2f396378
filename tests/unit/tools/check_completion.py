#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Completion: the shells themselves complete each command's options, as its help names them.

    check_completion.py INFERCTL
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

INFERCTL = sys.argv[1]
OPTION = re.compile(r"(?m)^  (?:(-\w), |    )?(--[a-z][a-z0-9-]*)")

BASH = """
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_inferctl
printf '%s\\n' "${COMPREPLY[@]}"
"""


def run(*command, **more):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=60, check=False, **more)


def commands():
    listed = run(INFERCTL, "help").stdout
    return re.findall(r"(?m)^  ([a-z]+) +\S", listed)


def options(command):
    text = run(INFERCTL, command, "--help").stdout
    return {o for pair in OPTION.findall(text) for o in pair if o} | {"-h", "--help"}


class Completion(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        for shell in ("bash", "zsh"):
            done = run(INFERCTL, "completion", shell)
            assert done.returncode == 0 and not done.stderr, done
            (cls.folder / shell).write_text(done.stdout)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def complete(self, *words):
        done = run("bash", "--norc", "-c", BASH, "bash", self.folder / "bash", *words)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return set(done.stdout.split())

    def test_bash_completes_commands(self):
        found = self.complete("inferctl", "")
        self.assertEqual(found, {*commands(), "help", "version"})
        self.assertGreater(len(found), 10)
        self.assertEqual(self.complete("inferctl", "in"), {"inspect", "infer"})
        self.assertEqual(self.complete("inferctl", "help", "gr"), {"graph"})

    def test_bash_completes_the_options_that_help_names(self):
        for command in commands():
            with self.subTest(command):
                self.assertEqual(self.complete("inferctl", command, "-"), options(command))
        self.assertEqual(self.complete("inferctl", "build", "--outp"),
                         {"--output", "--output-type"})

    def test_bash_leaves_values_and_files_to_the_shell(self):
        self.assertEqual(self.complete("inferctl", "build", "-o", ""), set())
        self.assertEqual(self.complete("inferctl", "build", "--output", "-"), set())
        self.assertEqual(self.complete("inferctl", "build", "mod"), set())

    def test_zsh_has_the_options_that_help_names(self):
        text = (self.folder / "zsh").read_text()
        self.assertTrue(text.startswith("#compdef inferctl\n"))
        for command in commands():
            block = re.search(rf"(?ms)^    {command}\)\n(.*?);;", text).group(1)
            found = set(re.findall(r"(?m)^ +'\*?(--?[\w-]+)\[", block))
            self.assertEqual(found, options(command), command)

    @unittest.skipUnless(shutil.which("zsh"), "needs zsh")
    def test_zsh_takes_the_script(self):
        done = run("zsh", "-f", "-n", self.folder / "zsh")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        # _arguments reads each specification; it may only be called from a widget, so stand-ins
        # note what they are given
        program = ('_arguments() { print -l -- "$@" }; _files() { }; words=(inferctl build -); '
                   f'CURRENT=3; complete() {{ source {self.folder / "zsh"} }}; complete')
        done = run("zsh", "-f", "-c", program)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("--output[the plan (required)]:FILE:_files", done.stdout.splitlines())

    def test_wrong_shells_are_refused(self):
        done = run(INFERCTL, "completion", "fish")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("'bash', 'zsh'", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
