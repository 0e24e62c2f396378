#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What deploy/ holds fits the programs: configurations are taken, command lines are known, and the
container's file system is small and serves.

    test_deploy.py INFERD INFERCTL SOURCE_ROOT
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap
import unittest

import harness
import wire

ROOT = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else pathlib.Path(".")
DEPLOY = ROOT / "deploy"
MEGABYTES = 60


def run(*command, **more):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=120,
                          check=False, **more)


class Deploy(unittest.TestCase):
    def check(self, text):
        """The configuration, with free ports, and folders that are there."""
        models = harness.folder() / "models"
        (models / "m" / "1").mkdir(parents=True, exist_ok=True)
        shutil.copy(harness.plan("copy"), models / "m" / "1" / "model.plan")
        text = re.sub(r"0\.0\.0\.0:80\d\d", "127.0.0.1:0", text)
        text = text.replace(": /models", f": {models}").replace(
            ": /var/cache/inferd", f": {harness.folder() / 'deploy-cache'}")
        path = harness.folder() / "deploy.yaml"
        path.write_text(text + "\nthreads: 1\n")
        done = run(harness.INFERD, "--check-config", "--config", path,
                   env=dict(os.environ, INFERD_REFERENCE_KERNELS="1"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("1 model can be served", done.stdout)

    def test_configurations_are_in_order(self):
        self.check((DEPLOY / "container" / "inferd.yaml").read_text())
        manifest = (DEPLOY / "kubernetes" / "inferd.yaml").read_text()
        block = re.search(r"(?m)^  inferd\.yaml: \|\n((?:    .*\n)+)", manifest).group(1)
        self.check(textwrap.dedent(block))

    def test_times_of_the_manifest_fit(self):
        manifest = (DEPLOY / "kubernetes" / "inferd.yaml").read_text()

        def number(key):
            return int(re.search(rf"\b{key}: (\d+)", manifest).group(1))

        self.assertGreater(number("terminationGracePeriodSeconds") * 1000,
                           number("drain_delay_ms") + number("drain_timeout_ms"))
        readiness = manifest[manifest.index("readinessProbe"):]
        period = int(re.search(r"periodSeconds: (\d+)", readiness).group(1))
        self.assertGreater(number("drain_delay_ms"), 2000 * period)

    def test_arguments_are_known(self):
        options = run(harness.INFERD, "--help").stdout
        for path in DEPLOY.rglob("*.yaml"):
            for arguments in re.findall(r"args: \[(.*)\]", path.read_text()):
                for option in re.findall(r"--[a-z-]+", arguments):
                    self.assertIn(option, options, path)

    @unittest.skipIf(harness.sanitized() or os.geteuid() or not shutil.which("ldd"),
                     "needs root and programs without sanitizers")
    def test_the_containers_file_system_serves_and_is_small(self):
        fs = harness.folder() / "rootfs"
        done = run(DEPLOY / "container" / "rootfs", "/", fs, harness.INFERD, harness.INFERCTL)
        self.assertEqual(done.returncode, 0, done.stderr)
        size = sum(p.stat().st_size for p in fs.rglob("*") if p.is_file() and not p.is_symlink())
        self.assertLess(size, MEGABYTES << 20)
        # a plan: to build one takes /proc and /dev, which containers have and this folder has not
        shutil.copy(harness.plan("copy"), fs / "models" / "m.plan")
        config = (DEPLOY / "container" / "inferd.yaml").read_text()
        (fs / "etc" / "inferd" / "inferd.yaml").write_text(
            re.sub(r"0\.0\.0\.0:80\d\d", "127.0.0.1:0", config) + "\nthreads: 1\n")
        log = open(harness.folder() / "rootfs.log", "wb")
        with log:
            process = subprocess.Popen(
                [shutil.which("chroot"), "--userspec=65532:65532", fs, "/usr/bin/inferd",
                 "--config", "/etc/inferd/inferd.yaml", "m=/models/m.plan"],
                env={"INFERD_REFERENCE_KERNELS": "1"},
                stdout=log, stderr=log)
        try:
            text = lambda: pathlib.Path(log.name).read_text()
            harness.until(lambda: "ready " in text() or process.poll() is not None)
            self.assertIsNone(process.poll(), text())
            with wire.Client(re.search(r"(?m)^ready (\S+)$", text()).group(1)) as c:
                reply = c.infer("m", [("x", "FP32", [1, 4], bytes(16))])
                self.assertEqual(reply.status, wire.OK, reply.message)
            process.terminate()
            self.assertEqual(process.wait(harness.PATIENCE), 0, text())
        finally:
            process.kill()
            process.wait()


if __name__ == "__main__":
    harness.main()
