#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where inferctl's outputs go, and where they must not: check_outputs.py INFERCTL MODELS"""
import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import unittest

INFERCTL, MODELS = None, None
QUICK = ("--threads", 1, "--no-tune")


class Outputs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.dir = pathlib.Path(self.folder.name)
        self.model = self.dir / "digits.onnx"
        shutil.copy(MODELS / "digits.onnx", self.model)
        self.plan = self.dir / "digits.plan"

    def tearDown(self):
        self.folder.cleanup()

    def start(self, *args, **more):
        env = dict(os.environ, XDG_CACHE_HOME=str(self.dir / "cache"),
                   INFERD_MODULE_DIR=str(self.dir))
        return subprocess.run([INFERCTL, *map(str, args)], text=True, env=env, timeout=100,
                              check=False, **{"stdout": subprocess.PIPE,
                                              "stderr": subprocess.PIPE, **more})

    def run_it(self, *args, code=0):
        done = self.start(*args)
        self.assertEqual(done.returncode, code, f"{args}: {done.stdout}{done.stderr}")
        return done.stderr if code else done.stdout

    def build(self):
        self.run_it("build", self.model, "-o", self.plan, "--batch", 1, *QUICK)

    def refused(self, path, *args):
        """The command fails, and the file stays what it is."""
        before = (path.lstat().st_ino, path.lstat().st_mode)
        data = path.read_bytes() if path.is_file() else b""
        said = self.run_it(*args, code=1)
        self.assertEqual((path.lstat().st_ino, path.lstat().st_mode), before)
        if path.is_file():
            self.assertEqual(path.read_bytes(), data)
        self.assertEqual([p for p in self.dir.iterdir() if "inferd-tmp" in p.name], [])
        return said

    def test_inputs_are_not_written_over(self):
        self.build()
        twin = self.dir / "twin.plan"
        twin.symlink_to("digits.onnx")
        destroy = "writing it would destroy"
        self.assertIn(destroy, self.refused(self.model, "build", self.model, "-o", self.model))
        self.assertIn(destroy, self.refused(self.model, "build", self.model, "-o", twin))
        self.assertIn(destroy, self.refused(self.plan, "graph", self.plan, "-o", self.plan))
        self.assertIn(destroy, self.refused(self.model, "calibrate", self.model, "--data",
                                            self.dir, "-o", self.model))
        folder = self.dir / "outputs"
        self.run_it("run", self.plan, "-q", "-o", folder)
        one = sorted(folder.iterdir())[0]
        self.assertIn(destroy, self.refused(one, "run", self.plan, "-q", "-o", folder, "--check",
                                            f"{one.stem}={one}"))

    def test_a_plan_replaces_regular_files_alone(self):
        pipe, link = self.dir / "pipe", self.dir / "link"
        os.mkfifo(pipe)
        link.symlink_to("pipe")
        for path in (pipe, link, self.dir / "cache"):
            (self.dir / "cache").mkdir(exist_ok=True)
            self.assertIn("not a regular file",
                          self.refused(path, "build", self.model, "-o", path, *QUICK))
        real = self.dir / "real.plan"
        link.unlink()
        link.symlink_to("real.plan")
        self.run_it("build", self.model, "-o", link, "--batch", 1, *QUICK)
        self.assertTrue(link.is_symlink() and real.is_file())

    def test_texts_go_where_their_path_leads(self):
        self.build()
        stdout = self.dir / "stdout"  # as /dev/stdout, which a failing test must not destroy
        stdout.symlink_to("/proc/self/fd/1")
        drawn = self.run_it("graph", self.plan, "-o", stdout)
        self.assertTrue(drawn.startswith("<svg") and drawn.endswith("</svg>\n"))
        out = self.dir / "out"
        with open(out, "w", encoding="utf-8") as to:
            to.write("before\n")
            to.flush()
            self.start("graph", self.plan, "-o", stdout, stdout=to)
        self.assertEqual(out.read_text(), "before\n" + drawn)
        pipe, got = self.dir / "pipe", []
        os.mkfifo(pipe)
        reader = threading.Thread(target=lambda: got.append(pipe.read_text()), daemon=True)
        reader.start()
        self.run_it("graph", self.plan, "-o", pipe)
        reader.join(20)
        self.assertEqual(got, [drawn])
        self.assertTrue(stat.S_ISFIFO(pipe.lstat().st_mode))

    def test_a_folder_that_is_none_is_found_before_the_work(self):
        self.build()
        (self.dir / "file").write_text("x")
        said = self.refused(self.dir / "file", "run", self.plan, "-o", self.dir / "file")
        self.assertIn("Not a directory", said)

    def test_a_trace_is_tried_before_the_measurement(self):
        self.build()
        nowhere = self.dir / "nowhere" / "trace"
        done = self.start("bench", self.plan, "--seconds", "50", "--trace", nowhere)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("nowhere/trace: No such file", done.stderr)
        self.assertIn("would destroy", self.refused(self.plan, "bench", self.plan, "--seconds",
                                                    "0.01", "--trace", self.plan))
        trace = self.dir / "trace"
        self.run_it("bench", self.plan, "--seconds", "0.01", "--trace", trace)
        self.assertTrue(json.loads(trace.read_text())["traceEvents"])

    def test_what_cannot_be_printed_is_a_failure(self):
        self.build()
        cases = (("help",), ("version",), ("graph", "--help"), ("completion", "bash"),
                 ("inspect", self.plan), ("inspect", self.model, "--json"),
                 ("bench", self.plan, "--seconds", "0.01", "--json"), ("run", self.plan),
                 ("build", self.model, "-o", self.plan, "--batch", 1, *QUICK))
        for case in cases:
            with self.subTest(case), open("/dev/full", "w", encoding="utf-8") as full:
                done = self.start(*case, stdout=full)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertRegex(done.stderr, r"\Ainferctl: standard output: .*\n\Z")
        with open("/dev/full", "w", encoding="utf-8") as full:
            self.assertEqual(self.start("nothing", stdout=full).returncode, 2)


if __name__ == "__main__":
    INFERCTL, MODELS = sys.argv[1], pathlib.Path(sys.argv[2])
    unittest.main(argv=sys.argv[:1])
