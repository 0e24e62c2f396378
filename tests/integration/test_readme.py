#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs README's lines for a first own model as they stand, in a copy of the files that they name,
except for compiling, the address and the seconds of the load test.

    test_readme.py INFERD INFERCTL ROOT
"""
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import unittest

import harness

ROOT = pathlib.Path(sys.argv[3]).resolve()
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True
import digits  # noqa: E402

NOTE = '#!/bin/sh\necho "$(basename "$0") $*" >>compiled\n'


class Readme(unittest.TestCase):
    def setUp(self):
        section = (ROOT / "README.md").read_text().split("## Your own model")[1]
        self.build, self.lines = re.findall(r"(?s)```\n(.*?)```", section)[:2]
        self.work = harness.folder() / "readme"
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(ROOT / "models", self.work / "models")

    def as_compiled(self):
        """The programs where a build would have put them; meson and ninja only note their calls."""
        tools = self.work / "bin"
        tools.mkdir()
        for name in ("meson", "ninja"):
            (tools / name).write_text(NOTE)
            (tools / name).chmod(0o755)
        for program in (harness.INFERD, harness.INFERCTL):
            source = pathlib.Path(program)
            place = self.work / "build-release" / source.parent.name
            place.mkdir(parents=True)
            (place / source.name).symlink_to(source)
        return tools

    def run_lines(self, script, address):
        script = script.replace("127.0.0.1:8003", address)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        script = script.replace("127.0.0.1:8000", f"127.0.0.1:{port}")
        script = re.sub(r"(?m)^(inferd \S+)", rf"\1 --listen {address}", script)
        script = script.replace("& sleep 1", "& until inferctl status " + address +
                                " >/dev/null 2>&1; do kill -0 $!; sleep 0.1; done")
        script = re.sub(r"(?m)^(inferctl load .*)$", r"\1 --seconds 0.3 --max-windows 3", script)
        env = dict(os.environ, PATH=f"{self.as_compiled()}:/usr/bin:/bin",
                   XDG_CACHE_HOME=str(self.work / "cache"))
        return subprocess.run(["sh", "-c", f"set -e\ntrap 'kill $!; wait $!' EXIT\n{script}"],
                              cwd=self.work, capture_output=True, text=True, env=env,
                              stdin=subprocess.DEVNULL, timeout=200, check=False)

    def test_a_first_own_model(self):
        self.assertGreater(len(self.lines.splitlines()), 6)
        done = self.run_lines(self.build + self.lines, f"unix:{self.work}/socket")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for said in ("builds   everything in it is supported", "digits version 1 READY",
                     "input   image FP32 [?,1,8,8]", '"shape":[-1,1,8,8]',
                     '"name":"probabilities"'):
            self.assertIn(said, done.stdout)
        shape, values = digits.npy_read(self.work / "out/probabilities.npy", "<f4")
        self.assertEqual(shape, (1, 10))
        self.assertEqual(max(range(10), key=values.__getitem__), 3)
        self.assertIn("<svg", (self.work / "digits.svg").read_text())

    def test_what_is_compiled_exists(self):
        options = set(re.findall(r"option\('(\w+)'", (ROOT / "meson_options.txt").read_text()))
        named = set(re.findall(r"-D(\w+)=", self.build))
        self.assertGreater(len(named), 1)
        self.assertLessEqual(named - {"buildtype"}, options)
        self.assertIn("meson setup build-release ", self.build)
        self.assertIn("ninja -C build-release\n", self.build)


if __name__ == "__main__":
    harness.main()
