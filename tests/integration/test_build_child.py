#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The daemon's build child with a hostile program in inferctl's place, and the daemon beside it.

    test_build_child.py INFERD INFERCTL PROBE

PROBE is tests/unit/daemon/child_probe.c; what it tries is told there.
"""
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import harness

PROBE = os.path.abspath(sys.argv[3])
CORE = 1 << 20
NOBODY = 65534


class BuildChild(unittest.TestCase):
    def server(self, word, config=None, name="m.onnx"):
        """A server whose build child does what `word` says: the probe reads it from the model."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=harness.folder()))
        shutil.copy(harness.INFERD, folder / "inferd")
        shutil.copy(PROBE, folder / "inferctl")
        model = folder / name
        model.write_text(word + "\n")
        real, harness.INFERD = harness.INFERD, str(folder / "inferd")
        try:
            return harness.Server({"m": model}, dict(config or {}, log_level="verbose"),
                                  wait=False)
        finally:
            harness.INFERD = real

    def log_of(self, word, config=None):
        s = self.server(word, config)
        self.assertEqual(s.wait(), 1)
        return s.log()

    def test_a_build_that_takes_too_long(self):
        self.assertIn("build_timeout_s", self.log_of("hang", {"build_timeout_s": 1}))

    def test_the_child_is_confined(self):
        """The daemon's own child tries all that the unit test tries."""
        log = self.log_of("tries")
        self.assertIn("build: kill the parent: refused", log)
        self.assertIn("build: socket IPv4: refused", log)
        self.assertGreater(log.count(": refused"), 150)
        self.assertNotIn(": DONE", log)

    def test_a_child_that_is_killed(self):
        self.assertIn("signal 9", self.log_of("crash"))

    def test_sigterm_ends_the_child(self):
        name = f"hanging-{os.getpid()}.onnx"
        s = self.server("hang", name=name)
        s.wait_log("build: hanging")
        running = ["ps", "-eo", "args"]
        self.assertIn(name, subprocess.run(running, capture_output=True, text=True,
                                           check=True).stdout)
        begin = time.monotonic()
        s.stop()
        self.assertLess(time.monotonic() - begin, 30)
        self.assertNotIn(name, subprocess.run(running, capture_output=True, text=True,
                                              check=True).stdout)


class Daemon(unittest.TestCase):
    """The server is closed to other processes of its account, and still leaves a core if the limits
    allow one."""

    def test_nobody_sees_into_it(self):
        """The server's folder in /proc belongs to root, whatever the server's account; here the
        account is not root."""
        with tempfile.TemporaryDirectory() as place:
            os.chmod(place, 0o755)
            plan = shutil.copy(harness.plan("copy"), place)
            os.chmod(plan, 0o644)
            program = shutil.copy(harness.INFERD, place)
            account = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
            quiet = {"ASAN_OPTIONS": "detect_leaks=0", "INFERD_REFERENCE_KERNELS": "1"}
            with open(f"{place}/log", "w+", encoding="utf-8") as log:
                process = subprocess.Popen(
                    [program, "--listen", "127.0.0.1:0", f"m={plan}"], cwd=place, stdout=log,
                    stderr=log, env=dict(os.environ, **quiet, CACHE_DIRECTORY=f"{place}/none"),
                    **(account if os.geteuid() == 0 else {}))
                try:
                    harness.until(lambda: "ready " in pathlib.Path(place, "log").read_text())
                    uid = re.search(r"(?m)^Uid:\s+(\d+)",
                                    pathlib.Path(f"/proc/{process.pid}/status").read_text())
                    self.assertNotEqual(uid[1], "0")
                    self.assertEqual(os.stat(f"/proc/{process.pid}/mem").st_uid, 0)
                finally:
                    process.terminate()
                    process.wait(harness.PATIENCE)

    def ended_by(self, number, core):
        """Sends a server the signal; returns its exit status as waitpid reports it, and its log."""
        s = harness.Server({"m": harness.plan("copy")}, wait=False, cwd=harness.folder())
        try:
            s.wait_ready()
            resource.prlimit(s.process.pid, resource.RLIMIT_CORE, (core, core))
            s.signal(number)
            _, how = os.waitpid(s.process.pid, 0)
            s.process.returncode = 0  # it is reaped
            return how, s.log()
        finally:
            s.kill()

    def test_a_core_is_left_if_one_may_be(self):
        self.assertEqual(os.waitstatus_to_exitcode(self.ended_by(signal.SIGABRT, 0)[0]), 1)
        plain = subprocess.Popen(
            [sys.executable, "-c", "import os, resource\n"
             f"resource.setrlimit(resource.RLIMIT_CORE, ({CORE}, {CORE}))\nos.abort()"],
            cwd=harness.folder())
        _, how = os.waitpid(plain.pid, 0)
        plain.returncode = 0
        if not os.WCOREDUMP(how):
            self.skipTest("nobody leaves a core on this machine")
        for number in (signal.SIGABRT, signal.SIGSEGV):
            how, log = self.ended_by(number, CORE)
            if "Sanitizer" in log:  # has a handler of its own
                continue
            self.assertEqual(os.waitstatus_to_exitcode(how), -number)
            self.assertTrue(os.WCOREDUMP(how), number)


if __name__ == "__main__":
    harness.main()
