#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The client printed in docs/protocol.md, taken from the page and run against a daemon.

    test_protocol_page.py INFERD INFERCTL ROOT
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import serving

INFERD, INFERCTL, ROOT = map(os.path.abspath, sys.argv[1:4])


class ProtocolPage(unittest.TestCase):
    def test_the_client_gets_probabilities(self):
        page = pathlib.Path(ROOT, "docs/protocol.md").read_text()
        programs = re.findall(r"(?ms)^```python\n(.*?)^```$", page)
        self.assertEqual(len(programs), 1)
        with tempfile.TemporaryDirectory() as folder:
            client, plan = pathlib.Path(folder, "client.py"), pathlib.Path(folder, "digits.plan")
            client.write_text(programs[0])
            subprocess.run([INFERCTL, "build", f"{ROOT}/models/digits.onnx", "-o", plan, "--batch",
                            "1"], check=True, capture_output=True, timeout=120)
            with serving.inferd(INFERD, f"digits={plan}") as address:
                host, port = address.rsplit(":", 1)
                done = subprocess.run([sys.executable, client, host, port], capture_output=True,
                                      text=True, timeout=120, check=False)
                wrong = client.with_name("wrong.py")
                wrong.write_text(programs[0].replace('b"digits"', 'b"nothing"'))
                refused = subprocess.run([sys.executable, wrong, host, port], capture_output=True,
                                         text=True, timeout=120, check=False)
        self.assertEqual((done.stderr, done.returncode), ("", 0))
        match = re.fullmatch(r"id 42 probabilities \((.*)\)\n", done.stdout)
        self.assertIsNotNone(match, done.stdout)
        values = [float(v) for v in match.group(1).split(",")]
        self.assertEqual(len(values), 10)
        self.assertAlmostEqual(sum(values), 1, places=4)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("status 5: ", refused.stderr)  # NOT_FOUND


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
