#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A plan file holds the old plan or the new one, whatever ends its writer, and wherever: kill -9 at
each of the writer's system calls, a failure of each call, a full disk.

    test_plan_writes.py INFERD INFERCTL SYSCALLS MODELS [TEST...]

SYSCALLS is the program of tests/inject/syscalls.c, MODELS the folder with digits.onnx.
INFERD_TEST_ALL=1 kills the daemon at each of its calls, too, instead of at a few.
"""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

import harness
import wire

SYSCALLS, MODELS = sys.argv[3:5]
ALL = bool(os.environ.get("INFERD_TEST_ALL"))
# between two of these calls nothing changes in the folder, except that a temporary is created
WRITES = ["write", "pwrite64", "writev", "fsync", "fdatasync", "ftruncate", "fallocate", "flock",
          "rename", "renameat", "renameat2", "unlink", "unlinkat"]
# LeakSanitizer's helper process would be killed, and waited for
NO_LEAKS = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0",
            "OMP_WAIT_POLICY": "passive"}
ENOSPC, EIO, EDQUOT = 28, 5, 122
X4 = struct.pack("<4f", 1, 2, 3, 4)


def numbers(names):
    lines = "".join(f"#ifdef SYS_{n}\nnumber SYS_{n}\n#endif\n" for n in names)
    done = subprocess.run(["cc", "-E", "-P", "-"], input="#include <sys/syscall.h>\n" + lines,
                          capture_output=True, text=True, check=True)
    return ",".join(line.split()[1] for line in done.stdout.splitlines() if "number" in line)


def build(model, plan, prefix=(), *more):
    return subprocess.run(
        [*prefix, harness.INFERCTL, "build", harness.onnx(model), "-o", plan, "--batch", "1,2",
         "--reference-only", "--threads", "1", "--timing-cache", plan.with_suffix(".times"),
         *more], capture_output=True, text=True, timeout=harness.PATIENCE, check=False,
        env={**os.environ, **NO_LEAKS})


class PlanWrites(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=harness.folder()))
        self.plan = self.folder / "model.plan"
        self.clean(build("copy", self.plan))
        self.old = self.digest()
        self.clean(build("twice", self.plan))
        self.new = self.digest()
        self.assertNotEqual(self.old, self.new)
        for name in ("copy", "twice"):
            self.clean(build(name, self.folder / f"{name}.plan"))

    def clean(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("ignored", done.stderr)

    def digest(self):
        """The digest of the model that the plan was made of; reading the plan checks all of it."""
        done = subprocess.run([harness.INFERCTL, "inspect", self.plan, "--json"],
                              capture_output=True, text=True, timeout=harness.PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["model_digest"]

    def begin(self):
        """The old plan, and no times."""
        shutil.copy(self.folder / "copy.plan", self.plan)
        self.plan.with_suffix(".times").unlink(missing_ok=True)

    def temporaries(self):
        return list(self.folder.glob(".*.inferd-tmp"))

    def calls(self, names):
        self.begin()
        path = self.folder / "calls"
        done = build("twice", self.plan, [SYSCALLS, "count", path, numbers(names)])
        if done.returncode == 77:
            self.skipTest("system calls cannot be watched here: " + done.stderr)
        self.clean(done)
        return len(path.read_text().split())

    def test_r33_r36_killed_at_each_call(self):
        after = []
        n = self.calls(WRITES)
        self.assertGreater(n, 5)
        for k in range(1, n + 1):
            self.begin()
            done = build("twice", self.plan,
                         [SYSCALLS, "kill", self.folder / "hit", numbers(WRITES), str(k)])
            self.assertEqual(done.returncode, -9, f"call {k}: {done.stderr}")
            digest = self.digest()
            self.assertIn(digest, (self.old, self.new), f"call {k}")
            after.append(digest)
            if self.temporaries():  # hinders neither plan nor times
                self.clean(build("twice", self.plan))
                self.assertEqual((self.digest(), self.temporaries()), (self.new, []), f"call {k}")
        self.assertEqual(set(after), {self.old, self.new})
        self.assertEqual(after, sorted(after, key=lambda d: d == self.new))  # once new, always new

    def test_r33_r35_each_call_fails(self):
        calls = ["write", "fsync", "ftruncate", "renameat", "fallocate", "flock"]
        outcomes = set()
        for k in range(1, self.calls(calls) + 1):
            for error in (ENOSPC, EIO, EDQUOT):
                self.begin()
                done = build("twice", self.plan, [SYSCALLS, "fail", self.folder / "hit",
                                                  numbers(calls), str(k), str(error)])
                outcomes.add(done.returncode)
                self.assertIn(done.returncode, (0, 1), f"call {k}: {done.stderr}")
                if done.returncode:
                    said = [line for line in done.stderr.splitlines()
                            if not line.startswith("warning: ")]  # a busy machine is named too
                    self.assertEqual(len(said), 1, done.stderr)
                else:  # only the times were lost
                    self.assertEqual(self.digest(), self.new)
                self.assertIn(self.digest(), (self.old, self.new), f"call {k}")
                # a temporary that could not be locked is not this writer's to remove; it is empty
                self.assertEqual(sum(t.stat().st_size for t in self.temporaries()), 0)
                self.assertTrue(not self.temporaries() or "temporary" in done.stderr, done.stderr)
        self.clean(build("twice", self.plan))
        self.assertEqual(self.temporaries(), [])
        self.assertEqual(outcomes, {0, 1})

    # --- a full disk ---

    def tmpfs(self, folder, size):
        """What runs a command with a small disk at `folder`, seen by that command alone."""
        prefix = ["unshare", "--mount", "sh", "-c",
                  f'mount -t tmpfs -o size={size},mode=0700 none "$0" && exec "$@"', str(folder)]
        if os.geteuid() != 0 or subprocess.run([*prefix, "true"], capture_output=True,
                                               check=False).returncode != 0:
            self.skipTest("a small disk takes root and mount namespaces")
        return prefix

    def test_r35_a_full_disk_leaves_the_old_plan(self):
        disk = self.folder / "disk"
        disk.mkdir()
        script = (f'cp "{self.folder}/copy.plan" "$0/m.plan" && ! "$1" build "$2" -o "$0/m.plan" '
                  '--no-tune --batch 1 --timing-cache "" && cmp "$0/m.plan" '
                  f'"{self.folder}/copy.plan" && ls -A "$0"')
        done = subprocess.run([*self.tmpfs(disk, "64k"), "sh", "-c", script, disk,
                               harness.INFERCTL, f"{MODELS}/digits.onnx"], capture_output=True,
                              text=True, timeout=harness.PATIENCE, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, "m.plan\n"), done.stderr)
        self.assertRegex(done.stderr, r"\Ainferctl build: [^\n]*No space left on device\n\Z")

    def test_r35_a_full_disk_serves_uncached(self):
        disk = self.folder / "cache"
        disk.mkdir()
        config = {"cache": str(disk)}
        model = {"digits": pathlib.Path(MODELS).resolve() / "digits.onnx"}
        with harness.Server(model, config, prefix=self.tmpfs(disk, "32k")) as s:
            with s.client() as client:
                body = wire.infer_body("digits", [("image", "FP32", [1, 1, 8, 8], bytes(256))])
                self.assertEqual(client.call(wire.INFER, body).status, wire.OK)
            self.assertIn("No space left on device", s.log())  # and not: the folder is not used
            self.assertEqual(s.log().count("building a plan from"), 2)

    # --- the daemon's cache ---

    def test_r36_a_daemon_killed_at_its_builds_writes(self):
        config = {"cache": str(self.folder / "cache")}
        body = wire.infer_body("copy", [("x", "FP32", [1, 4], X4)])
        env = {"AFTER": "prctl", **NO_LEAKS}

        def serve(prefix=(), **options):
            return harness.Server({"copy": harness.onnx("copy")}, config, prefix=prefix, **options)

        path = self.folder / "calls"
        s = serve([SYSCALLS, "count", path, numbers(WRITES)], env=env, wait=False)
        if s.process.poll() == 77:
            self.skipTest("system calls cannot be watched here: " + s.log())
        s.wait_ready()
        s.stop()
        n = len(path.read_text().split())
        for k in range(1, n + 1) if ALL else range(1, n + 1, max(n // 6, 1)):
            shutil.rmtree(config["cache"])
            s = serve([SYSCALLS, "kill", self.folder / "hit", numbers(WRITES), str(k)], env=env,
                      wait=False)
            while s.process.poll() is None and "\nready " not in s.log():
                harness.until(lambda: s.process.poll() is not None or "\nready " in s.log())
            s.kill()
            with serve() as s, s.client() as client:
                self.assertEqual(client.call(wire.INFER, body).status, wire.OK, f"call {k}")
                self.assertEqual(list(pathlib.Path(config["cache"]).glob(".*.inferd-tmp")), [])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]])
