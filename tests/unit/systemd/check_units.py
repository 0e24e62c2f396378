#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The systemd units, as systemd itself judges them; it need not be running.

    check_units.py SERVICE SOCKET CUDA-DROP-IN MAN-FOLDER

The units go into a folder of their own, with a stand-in for the program and the man pages that they
name, so that `systemd-analyze verify` finds all that they refer to. Exit 77: no systemd here.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SERVICE, SOCKET, CUDA, MAN = (pathlib.Path(p) for p in sys.argv[1:5])
CONFIG = pathlib.Path(re.search(r"(?m)^ExecStart=.* --config (.*)$", SERVICE.read_text()).group(1))
GRPC = SOCKET.with_name("inferd-grpc.socket")
EXPOSURE_MOST = 1.5
CUDA_EXPOSURE_MOST = 2.5


class Units(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        root = pathlib.Path(cls.folder.name)
        program = root / "inferd"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        service = re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={program}", SERVICE.read_text())
        (root / "inferd.service").write_text(service)
        for socket in (SOCKET, GRPC):
            shutil.copy(socket, root / socket.name)
        for page in MAN.glob("inferd*.[1-8]"):
            section = root / "man" / f"man{page.suffix[1:]}"
            section.mkdir(parents=True, exist_ok=True)
            shutil.copy(page, section)
        cls.root = root

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def analyze(self, *args):
        env = dict(os.environ, MANPATH=str(self.root / "man"), LC_ALL="C.UTF-8", NO_COLOR="1")
        env.pop("MANPAGER", None)
        return subprocess.run(["systemd-analyze", "--no-pager", *args], env=env, cwd=self.root,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=60)

    def verify(self, *units):
        return self.analyze("verify", "--recursive-errors=yes", *units)

    def test_both_units_verify_clean(self):
        done = self.verify("./inferd.service", "./inferd.socket")
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_the_socket_of_grpc_verifies_clean(self):
        done = self.verify("./inferd-grpc.socket", "./inferd.service", "./inferd.socket")
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_verify_finds_a_mistake(self):
        broken = self.root / "broken.service"
        broken.write_text((self.root / "inferd.service").read_text() + "\n[Service]\nNoSuch=1\n")
        done = self.verify("./broken.service")
        broken.unlink()
        self.assertIn("NoSuch", done.stdout)

    def with_gpu(self):
        """The service with the drop-in behind it, as systemd reads them, under another name."""
        drop_in = CUDA.read_text().replace("/usr/bin/nvidia-modprobe", f"{self.root}/inferd")
        (self.root / "gpu.service").write_text(
            (self.root / "inferd.service").read_text() + "\n" + drop_in)
        return "./gpu.service"

    def test_the_drop_in_for_a_gpu_verifies_clean(self):
        done = self.verify(self.with_gpu(), "./inferd.socket", "./inferd.service")
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_the_drop_in_takes_back_little(self):
        exposure = self.exposure(self.with_gpu())
        print(f"exposure with a GPU {exposure}")
        self.assertLessEqual(exposure, CUDA_EXPOSURE_MOST)

    def exposure(self, unit):
        done = self.analyze("security", "--offline=yes", unit)
        match = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
        self.assertIsNotNone(match, done.stdout)
        return float(match.group(1))

    def test_exposure(self):
        exposure = self.exposure("./inferd.service")
        print(f"exposure {exposure}")
        self.assertLessEqual(exposure, EXPOSURE_MOST)

    def test_exposure_is_measured(self):
        bare = self.root / "bare.service"
        bare.write_text(f"[Service]\nExecStart={self.root}/inferd\n")
        self.assertGreater(self.exposure("./bare.service"), 9)

    def test_what_the_program_relies_on(self):
        lines = SERVICE.read_text().splitlines()
        for line in ("Type=notify", "CacheDirectory=inferd", "RuntimeDirectory=inferd",
                     "ExecReload=/bin/sh -c 'kill -HUP $MAINPID'", "Restart=on-failure"):
            self.assertIn(line, lines)
        self.assertRegex(SERVICE.read_text(), r"(?m)^WatchdogSec=\d+$")

    def test_a_machine_without_tokens_starts(self):
        """LoadCredential= of a missing path is fatal, unless there is a default."""
        text = SERVICE.read_text()
        self.assertEqual(re.findall(r"(?m)^LoadCredential=(.*)$", text),
                         [f"inferd.tokens:{CONFIG.parent}/tokens"])
        self.assertRegex(text, r"(?m)^SetCredential=inferd\.tokens:#")  # a comment: no tokens

    def test_users_can_be_told_apart(self):
        self.assertNotRegex(SERVICE.read_text(), r"(?m)^PrivateUsers=")

    def test_r16_the_sockets_are_of_this_machine(self):
        text = SOCKET.read_text()
        self.assertEqual(re.findall(r"(?m)^ListenStream=(.*)$", text),
                         ["127.0.0.1:8003", "/run/inferd.sock"])
        self.assertRegex(text, r"(?m)^SocketMode=0660$")
        self.assertRegex(text, r"(?m)^IPAddressDeny=any$")
        text = GRPC.read_text()
        self.assertEqual(re.findall(r"(?m)^ListenStream=(.*)$", text), ["127.0.0.1:8001"])
        self.assertRegex(text, r"(?m)^FileDescriptorName=grpc$")
        self.assertRegex(text, r"(?m)^IPAddressDeny=any$")

    def test_a_build_child_may_give_up_files(self):
        self.assertRegex(SERVICE.read_text(), r"(?m)^SystemCallFilter=(?=.*landlock_create_ruleset)"
                         r"(?=.*landlock_add_rule)(?=.*landlock_restrict_self)")

    def test_r40_no_memory_deny_write_execute(self):
        self.assertNotRegex(SERVICE.read_text(), r"(?m)^MemoryDenyWriteExecute=")


if __name__ == "__main__":
    if not shutil.which("systemd-analyze"):
        print("systemd-analyze is not here")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
