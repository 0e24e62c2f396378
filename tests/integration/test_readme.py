#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""README's five lines for a first own model, run as they stand, but for address and seconds.

    test_readme.py INFERD INFERCTL ROOT
"""
import os
import pathlib
import re
import subprocess
import sys
import unittest

import harness

ROOT = pathlib.Path(sys.argv[3]).resolve()
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True
import digits  # noqa: E402

WAIT = "until inferctl status ADDRESS >/dev/null 2>&1; do kill -0 $!; sleep 0.1; done\n"


class Readme(unittest.TestCase):
    def test_a_first_own_model(self):
        section = (ROOT / "README.md").read_text().split("## Your own model")[1]
        lines = re.search(r"(?s)```\n(.*?)```", section).group(1)
        self.assertEqual(len(lines.splitlines()), 5)
        work = harness.folder() / "readme"
        work.mkdir()
        (work / "mymodel.onnx").write_bytes(harness.onnx("twice").read_bytes())
        digits.npy_write_f32(work / "x.npy", [2, 4], [1, 2, 3, 4, 5, 6, 7, 8])

        address = f"unix:{work}/socket"
        script, several = re.subn(r"(?m)^(inferd .*?) &.*$", rf"\1 --listen {address} &\n" + WAIT,
                                  lines)
        self.assertEqual(several, 1)
        script = re.sub(r"(?m)^(inferctl load .*)$", r"\1 --seconds 0.3 --max-windows 3", script)
        script = script.replace("127.0.0.1:8003", address).replace("ADDRESS", address)
        script = f"set -e\ntrap 'kill $!; wait $!' EXIT\n{script}"
        path = os.pathsep.join([os.path.dirname(harness.INFERD), os.path.dirname(harness.INFERCTL),
                                os.environ["PATH"]])
        done = subprocess.run(["sh", "-c", script], cwd=work, capture_output=True, text=True,
                              env=dict(os.environ, PATH=path, XDG_CACHE_HOME=str(work)),
                              stdin=subprocess.DEVNULL, timeout=170, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        shape, values = digits.npy_read(work / "out/y.npy", "<f4")
        self.assertEqual((shape, list(values)), ((2, 4), [2, 4, 6, 8, 10, 12, 14, 16]))


if __name__ == "__main__":
    harness.main()
