#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the model of the dispatcher (dispatch.pml) with spin: the model must be right as it is,
and wrong with each planted mistake. Prints how many states each run had.

    check_model.py MODEL [--all]

--all: also the searches that take minutes.
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

MODEL = pathlib.Path(sys.argv[1]).resolve()
ALL = "--all" in sys.argv
SECONDS = 600  # for one search, on a machine with other work

# The searches that visit every state. All events at once for three requests are beyond any machine.
# QUIET: the drain begins when nothing else can happen, else at any moment. IDLE: the set of
# workers; 3 means both. SENT: the set of requests; 1 and 2 are on loop 0, and 4 is on loop 1.
# MORTAL: the requests with a deadline. RESTLESS: the requests that are cancelled. LIMIT: how many
# may wait. EVICT: a full queue may make room for another request. SPLIT: batches may fail for one
# of their requests. CUT: loop 0's connection may close. WATCH: somebody looks for hangs. LOSS: the
# device may be lost. BREATHE: turns may be long.
ONE_WITH_ALL = ["SENT=1", "RESTLESS=1", "MORTAL=1", "CUT", "WATCH"]
SEARCHES = {
    "one request, all that may happen to it": ONE_WITH_ALL,
    "three requests, one worker": ["SENT=7", "IDLE=1"],
    "three, idle before the drain": ["SENT=7", "QUIET"],
    "three, refused, expiring, cancelled, and a split":
        ["SENT=7", "IDLE=1", "QUIET", "SPLIT", "MORTAL=2", "RESTLESS=5", "LIMIT=2"],
    "three, one pushes another one out": ["SENT=7", "IDLE=1", "EVICT=1", "LIMIT=1"],
    "three, pushed out, expiring, cancelled":
        ["SENT=7", "IDLE=1", "QUIET", "EVICT=1", "MORTAL=1", "RESTLESS=6", "LIMIT=1"],
    "three, pushed out, and of a connection that is cut":
        ["SENT=7", "IDLE=1", "QUIET", "EVICT=1", "LIMIT=1", "CUT"],
    "two, pushed out, and the device is lost": ["SENT=5", "IDLE=1", "EVICT=1", "LIMIT=1", "LOSS"],
    "three, of which a connection is cut, and hangs": ["SENT=7", "IDLE=1", "QUIET", "CUT", "WATCH"],
    "two loops, a cancel": ["SENT=5", "RESTLESS=1"],
    "two of a connection that is cut": ["SENT=3", "CUT"],
    "two, expiring, and a split": ["SENT=3", "IDLE=1", "SPLIT", "MORTAL=3", "BREATHE"],
    "two, and the device is lost": ["SENT=5", "IDLE=1", "LOSS"],
}
SLOW_SEARCHES = {
    "three requests": ["SENT=7"],
    "three, refused, expiring, and a split":
        ["SENT=7", "IDLE=1", "SPLIT", "MORTAL=2", "LIMIT=2"],
    "three, an expiring one, cancels": ["SENT=7", "QUIET", "MORTAL=2", "RESTLESS=5"],
    "two of a connection that is cut, and hangs": ["SENT=3", "CUT", "WATCH"],
    "one with all, turns and losses": [*ONE_WITH_ALL, "BREATHE", "LOSS"],
    "two loops, and the device is lost": ["SENT=5", "LOSS"],
}

# Searches for liveness: is each request answered, and does the drain end? AGAIN: the requests that
# clients send again and again. ENDLESS: there is no drain.
LIVE = ["LIVE", "AGAIN=1", "SENT=5", "IDLE=1"]
STARVING = ["LIVE", "ENDLESS", "AGAIN=5", "SENT=7", "IDLE=1", "MAX_BATCH=1"]
LIVE_SEARCHES = {
    "two loops, an endless client, a drain": LIVE,
    "one beside two endless clients": ["LIVE", "ENDLESS", "AGAIN=5", "SENT=7", "IDLE=1"],
    "one beside two endless clients, no batches": STARVING,
}
SLOW_LIVE_SEARCHES = {
    "one beside two endless clients, two workers": ["LIVE", "ENDLESS", "AGAIN=5", "SENT=7"],
    "three, an endless client, a drain": ["LIVE", "AGAIN=1", "SENT=7", "IDLE=1", "MAX_BATCH=1"],
    "two loops, an endless client, a drain, two workers": ["LIVE", "AGAIN=1", "SENT=5"],
}

# The planted mistakes, and the search in which each must show.
SPLIT = ["SENT=3", "IDLE=1", "QUIET", "MORTAL=3", "SPLIT"]
BUGS = {
    "BUG_CANCEL": ONE_WITH_ALL,
    "BUG_WAKE": ["SENT=1"],
    "BUG_DRAIN": ["SENT=1"],
    "BUG_STARVED": ["SENT=3", "IDLE=1", "QUIET"],
    "BUG_TIMER": ["SENT=1", "QUIET"],
    "BUG_REFS": SPLIT,
    "BUG_FREE": ["SENT=1"],
    "BUG_ABANDON": ["SENT=1", "WATCH"],
    "BUG_REFUSE": ["SENT=7", "IDLE=1", "QUIET", "LIMIT=1"],
    "BUG_EVICT": ["SENT=7", "IDLE=1", "QUIET", "EVICT=1", "LIMIT=1"],
    "BUG_STAY": ["SENT=7", "IDLE=1", "QUIET", "EVICT=1", "LIMIT=1"],
    "BUG_LOSS": ["SENT=3", "IDLE=1", "LOSS"],
}
LIVE_BUGS = {
    "BUG_WAKE": LIVE,
    "BUG_TIMER": LIVE,
    "BUG_SIGNAL": ["LIVE", "AGAIN=1", "SENT=5"],
    "BUG_STOP": ["LIVE", "SENT=1", "AGAIN=1", "IDLE=1"],
    "BUG_YOUNGEST": STARVING,
}


def search(defines):
    """pan's report."""
    live = "LIVE" in defines
    with tempfile.TemporaryDirectory() as folder:
        def run(*command):
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True,
                                  timeout=SECONDS, check=False)
            if done.returncode != 0:
                raise AssertionError(f"{command}: {done.stdout}{done.stderr}")
            return done.stdout

        run("spin", "-a", *(f"-D{d}" for d in defines), str(MODEL))
        # compiling pan takes longer than most searches, so only slow searches are optimised
        run("gcc", "-O2" if ALL else "-O0", "-DNFAIR=3" if live else "-DSAFETY", "-DCOLLAPSE",
            "-DVECTORSZ=2048", "-DMEMLIM=2000", "-o", "pan", "pan.c")
        # acceptance cycles, with weak fairness
        return run("./pan", "-n", "-m300000", *(["-a", "-f"] if live else []))


def states(report):
    return re.search(r"(\d+) states, stored", report)[1]


class Model(unittest.TestCase):
    def holds(self, searches):
        for name, defines in searches.items():
            with self.subTest(name):
                report = search(defines)
                print(f"{name}: {states(report)} states", file=sys.stderr)
                self.assertIn("errors: 0", report)
                for trouble in ("max search depth too small", "out of memory", "truncated",
                                "MEMLIM"):
                    self.assertNotIn(trouble, report)

    def found(self, bugs, how):
        for bug, defines in bugs.items():
            with self.subTest(bug):
                report = search([*defines, bug])
                print(f"{bug}: found after {states(report)} states", file=sys.stderr)
                self.assertIn("errors: 1", report)
                self.assertRegex(report, how)

    def test_each_answer_once(self):
        self.holds(dict(SEARCHES, **(SLOW_SEARCHES if ALL else {})))

    def test_each_is_answered_and_the_drain_ends(self):
        self.holds(dict(LIVE_SEARCHES, **(SLOW_LIVE_SEARCHES if ALL else {})))

    def test_planted_mistakes_are_found(self):
        text = MODEL.read_text()
        self.assertEqual({*BUGS, *LIVE_BUGS}, set(re.findall(r"\bBUG_[A-Z]+", text)))
        self.found(BUGS, r"pan:\d+: (assertion violated|invalid end state)")
        self.found(LIVE_BUGS, r"pan:\d+: acceptance cycle")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
