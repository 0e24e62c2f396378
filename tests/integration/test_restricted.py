#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""R40: loading and inference work under what the systemd unit forbids.

    test_restricted.py INFERD INFERCTL UNIT ROOT PROBE
"""
import ctypes
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
import urllib.request

import serving
from restrict import NOBODY

INFERD, INFERCTL, UNIT, ROOT, PROBE = map(os.path.abspath, sys.argv[1:6])
RESTRICT = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "restrict.py")]
sys.path.insert(0, os.path.join(ROOT, "scripts"))
sys.dont_write_bytecode = True
import digits  # noqa: E402

# LeakSanitizer traces its own process at the end, which the unit forbids
QUIET = {"ASAN_OPTIONS": "detect_leaks=0"}


def has_landlock():
    return ctypes.CDLL(None).syscall(444, None, 0, 1) >= 1  # its version


class Restricted(unittest.TestCase):
    def setUp(self):
        # Outside the checkout, which the account without rights may be unable to enter.
        folder = tempfile.TemporaryDirectory(prefix="inferd-restricted-")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.root.chmod(0o755)
        (self.root / "cache").mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(self.root / "cache", NOBODY, NOBODY)
        shutil.copy(os.path.join(ROOT, "models/digits.onnx"), self.root)
        for program in (INFERD, INFERCTL):
            shutil.copy(program, self.root)

    def restricted(self, *command):
        return [*RESTRICT, UNIT, *map(str, command)]

    def test_restrictions_are_there(self):
        probe = ("import socket, sys\n"
                 "try:\n    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)\n"
                 "except PermissionError:\n    sys.exit(7)\n")
        done = subprocess.run(self.restricted("/usr/bin/python3", "-c", probe), check=False)
        self.assertEqual(done.returncode, 7)

    def infer(self, address, *more):
        digits.split(pathlib.Path(ROOT, "models"), self.root)
        done = subprocess.run([INFERCTL, "infer", address, "--model", "digits", "--input",
                               f"image={self.root}/000.npy", "--output", self.root / "out", *more],
                              capture_output=True, text=True, check=False, timeout=120)
        self.assertEqual((done.stderr, done.returncode), ("", 0))
        _, labels = digits.npy_read(pathlib.Path(ROOT, "models/digits_test_labels.npy"), "|u1")
        _, p = digits.npy_read(self.root / "out/probabilities.npy", "<f4")
        right = sum(max(range(10), key=p[10 * i : 10 * i + 10].__getitem__) == labels[i]
                    for i in range(32))
        self.assertGreaterEqual(right, 31)

    def test_r40_a_plan_is_served(self):
        plan = self.root / "digits.plan"
        subprocess.run([INFERCTL, "build", self.root / "digits.onnx", "-o", plan, "--batch",
                        "1,32"], check=True, capture_output=True, timeout=120)
        plan.chmod(0o644)
        command = self.restricted(self.root / "inferd", f"digits={plan}")
        with serving.inferd(*command, env=QUIET) as address:
            self.infer(address)

    def test_a_token_is_asked_for(self):
        token = self.root / "app.token"
        line = subprocess.run([INFERCTL, "token", "app", "--rights", "infer,describe", "--output",
                               token], check=True, capture_output=True, timeout=120).stdout
        credentials = self.root / "credentials"
        credentials.mkdir()
        (credentials / "inferd.tokens").write_bytes(line)
        (credentials / "inferd.tokens").chmod(0o444)  # the account is another one than here
        config = self.root / "inferd.yaml"
        config.write_text("tokens: inferd.tokens\n")
        command = self.restricted(self.root / "inferd", "--config", config,
                                  f"digits={self.root}/digits.onnx")
        env = dict(QUIET, CACHE_DIRECTORY=str(self.root / "cache"),
                   CREDENTIALS_DIRECTORY=str(credentials))
        with serving.inferd(*command, env=env) as address:
            self.infer(address, "--token-file", token)
            done = subprocess.run([INFERCTL, "infer", address, "--model", "digits"],
                                  capture_output=True, text=True, check=False, timeout=120)
            self.assertEqual(done.returncode, 1)
            self.assertIn("a token is needed for this", done.stderr)

    def test_r40_it_tells_about_itself(self):
        """Metrics, page and traces need nothing that the unit forbids."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        config = self.root / "inferd.yaml"
        config.write_text(f"trace_rate: 1\ntrace_file: {self.root}/cache/trace.json\n")
        command = self.restricted(self.root / "inferd", "--config", config, "--metrics",
                                  f"127.0.0.1:{port}", f"digits={self.root}/digits.onnx")
        env = dict(QUIET, CACHE_DIRECTORY=str(self.root / "cache"))
        with serving.inferd(*command, env=env) as address:
            self.infer(address)
            for path, words in (("metrics", b'nv_inference_count{model="digits",version="1"} 32'),
                                ("metrics", b"process_resident_memory_bytes"),
                                ("model/digits/1", b"</html>")):
                url = f"http://127.0.0.1:{port}/{path}"
                with urllib.request.urlopen(url, timeout=120) as answer:
                    self.assertIn(words, answer.read())
        self.assertIn('"compute"', (self.root / "cache/trace.json").read_text())

    def test_r40_a_model_is_built_and_served(self):
        command = self.restricted(self.root / "inferd", f"digits={self.root}/digits.onnx")
        env = dict(QUIET, CACHE_DIRECTORY=str(self.root / "cache"))
        with serving.inferd(*command, env=env) as address:
            self.infer(address)
        self.assertTrue(list((self.root / "cache").glob("*.plan")))

    def test_the_build_child_is_confined_under_the_unit(self):
        """The unit's filter lets the build child confine itself, by all means that the kernel has,
        files included."""
        shutil.copy(PROBE, self.root / "inferctl")
        (self.root / "tries.onnx").write_text("tries\n")
        env = dict(os.environ, **QUIET, CACHE_DIRECTORY=str(self.root / "cache"))
        config = self.root / "inferd.yaml"
        config.write_text("log_level: verbose\n")
        done = subprocess.run(
            self.restricted(self.root / "inferd", "--config", config, "--listen", "127.0.0.1:0",
                            f"m={self.root}/tries.onnx"),
            env=env, capture_output=True, text=True, timeout=120, check=False)
        self.assertIn("build: kill the parent: refused", done.stderr)
        self.assertNotIn(": DONE", done.stderr)
        self.assertEqual(has_landlock(), "Landlock is not available" not in done.stderr)


if __name__ == "__main__":
    if not shutil.which("systemd-analyze") or os.uname().machine != "x86_64":
        print("needs systemd-analyze and x86-64")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
