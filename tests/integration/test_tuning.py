#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every command of docs/tuning.md, in order, with the bundled model, a free port and short
measurements: each succeeds, and its output has the words that the page tells one to read.

    test_tuning.py INFERD INFERCTL ROOT
"""
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import unittest

import harness
import serving

ROOT = pathlib.Path(sys.argv[3]).resolve()
PAGE = (ROOT / "docs" / "tuning.md").read_text()
COMMAND = re.compile(r"inferctl|inferd ")
# The page's outputs are of commands: what stands in such lines is what there is to read.
READ = {"load": ["instances/s", "queue", "outside the server"], "bench": ["latency of a batch"],
        "status": ["queued", "compute"], "build": ["profiles up to batch 8"]}


def commands():
    """The lines of blocks that begin with a command."""
    for block in re.findall(r"(?s)```\n(.*?)```", PAGE):
        if COMMAND.match(block):
            yield from block.splitlines()


class Tuning(unittest.TestCase):
    def setUp(self):
        self.folder = harness.folder() / "tuning"
        self.folder.mkdir()
        shutil.copy(ROOT / "models" / "digits.onnx", self.folder / "m.onnx")
        self.server, self.address = None, None
        self.addCleanup(self.server_end)

    def server_end(self):
        if self.server:
            self.server.__exit__(None, None, None)
        self.server = None

    def serve(self, words):
        self.server_end()
        words = [f"m={self.folder / word[2:]}" if word.startswith("m=") else word
                 for word in words]
        self.server = serving.inferd(harness.INFERD, *words)
        self.address = self.server.__enter__()

    def ctl(self, words):
        line = " ".join(words).replace("127.0.0.1:8003", self.address or "")
        short = {"load": "--seconds 0.2 --max-windows 3", "bench": "--seconds 0.2",
                 "build": "--no-tune --timing-cache ''"}.get(words[0], "")
        done = subprocess.run([harness.INFERCTL, *shlex.split(f"{line} {short}")],
                              cwd=self.folder, capture_output=True, text=True, timeout=100,
                              check=False)
        said = done.stdout + done.stderr
        if "--p99" in words and "no rate keeps p99" in said:  # other work decides that
            self.assertEqual(done.returncode, 1, f"{line}: {said}")
            return
        self.assertEqual(done.returncode, 0, f"{line}: {said}")
        for word in READ[words[0]]:
            self.assertIn(word, said, line)
        if "--p99" in words:
            self.assertRegex(said, r"highest rate with p99 <= \d+ ms: \d+ requests/s \(")

    def test_its_commands_work_and_say_what_it_tells_to_read(self):
        lines = list(commands())
        self.assertGreater(len(lines), 10)
        for line in lines:
            program, *words = shlex.split(line)
            with self.subTest(line):
                self.assertIn(program, ("inferd", "inferctl"))
                (self.serve if program == "inferd" else self.ctl)(words)


if __name__ == "__main__":
    harness.main()
