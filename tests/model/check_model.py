#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The model of the dispatcher (dispatch.pml) by spin: right as it is, and wrong with each planted
mistake. Prints how many states each run had.

    check_model.py MODEL
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

MODEL = pathlib.Path(sys.argv[1]).resolve()
SECONDS = 600  # for one search, on a machine that does other things too

PLAIN = ["NO_WATCH", "NO_CUT", "MORTAL=0", "RESTLESS=0"]
SPLIT = ["NO_WATCH", "NO_CUT", "MORTAL=1", "RESTLESS=0"]
ONE_WITH_ALL = ["SENT=1", "RESTLESS=1", "MORTAL=1"]

# What is searched through from end to end; all at once for three requests is beyond a test. QUIET:
# the drain begins when nothing else can happen, else at any moment. IDLE: the workers. SENT: which
# requests there are, 1 and 2 on loop 0 and 4 on loop 1; MORTAL: those with a deadline; RESTLESS:
# those that are cancelled.
SEARCHES = {
    "one request, all that may happen to it": ONE_WITH_ALL,
    "two loops": ["SENT=5", *PLAIN],
    "two loops, a cancel": ["SENT=5", "NO_WATCH", "NO_CUT", "MORTAL=0", "RESTLESS=1"],
    "two of a connection that is cut": ["SENT=3", "NO_WATCH", "MORTAL=0", "RESTLESS=0"],
    "one worker, a deadline, a split": ["SENT=3", "IDLE=1", "QUIET", *SPLIT],
}

# A planted mistake, and where it must show.
BUGS = {
    "BUG_CANCEL": ONE_WITH_ALL,
    "BUG_WAKE": ["SENT=1", *PLAIN],
    "BUG_DRAIN": ["SENT=1", *PLAIN],
    "BUG_STARVED": ["SENT=3", "IDLE=1", "QUIET", *PLAIN],
    "BUG_TIMER": ["SENT=1", "QUIET", *PLAIN],
    "BUG_REFS": ["SENT=3", "IDLE=1", "QUIET", *SPLIT],
    "BUG_FREE": ["SENT=1", *PLAIN],
    "BUG_ABANDON": ["SENT=1", "NO_CUT", "RESTLESS=0", "MORTAL=0"],
}


def search(defines):
    """pan's report."""
    with tempfile.TemporaryDirectory() as folder:
        def run(*command):
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True,
                                  timeout=SECONDS, check=False)
            if done.returncode != 0:
                raise AssertionError(f"{command}: {done.stdout}{done.stderr}")
            return done.stdout

        run("spin", "-a", *(f"-D{d}" for d in defines), str(MODEL))
        run("gcc", "-O1", "-DSAFETY", "-DCOLLAPSE", "-DVECTORSZ=2048", "-DMEMLIM=2000", "-o", "pan",
            "pan.c")
        return run("./pan", "-n", "-m100000")


def states(report):
    return re.search(r"(\d+) states, stored", report)[1]


class Model(unittest.TestCase):
    def test_it_holds(self):
        for name, defines in SEARCHES.items():
            with self.subTest(name):
                report = search(defines)
                print(f"{name}: {states(report)} states", file=sys.stderr)
                self.assertIn("errors: 0", report)
                for trouble in ("max search depth too small", "out of memory", "truncated"):
                    self.assertNotIn(trouble, report)

    def test_planted_mistakes_are_found(self):
        text = MODEL.read_text()
        self.assertEqual(set(BUGS), set(re.findall(r"\bBUG_[A-Z]+", text)))
        for bug, defines in BUGS.items():
            with self.subTest(bug):
                report = search([*defines, bug])
                print(f"{bug}: found after {states(report)} states", file=sys.stderr)
                self.assertIn("errors: 1", report)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
