#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""inferd --check-config finds everything that the daemon would find, in one run.

    test_check_config.py INFERD INFERCTL
"""
import contextlib
import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import harness
import wire


def corrupt(name, data):
    path = harness.folder() / name
    path.write_bytes(data)
    return path


def repository(**models):
    root = pathlib.Path(tempfile.mkdtemp(dir=harness.folder()))
    for name, source in models.items():
        (root / name / "1").mkdir(parents=True)
        shutil.copy(source, root / name / "1" / ("model" + source.suffix))
    return root


def has_child(pid):
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if stat.read_text().rsplit(")", 1)[1].split()[1] == str(pid):
                return True
    return False


class CheckConfig(unittest.TestCase):
    def setUp(self):
        self.cache = pathlib.Path(tempfile.mkdtemp(dir=harness.folder()))

    def check(self, *arguments, listen="127.0.0.1:0", code, prefix=(), **config):
        path = harness.folder() / "check.yaml"
        path.write_text(harness.yaml(dict({"threads": 1, "cache": str(self.cache)}, **config)))
        done = subprocess.run(
            [*prefix, harness.INFERD, "--check-config", "--config", path, "--listen", listen,
             *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False,
            env=dict(os.environ, INFERD_REFERENCE_KERNELS="1"))
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"(?m)^in order" if code == 0 else r"(?m)^not in order")
        self.assertEqual(code == 0, done.stderr == "", done.stderr)
        return done

    def test_good_ones(self):
        root = repository(found=harness.plan("twice"))
        done = self.check(f"copy={harness.plan('copy')}", root, code=0)
        self.assertIn("model 'copy' version '1': plan, 4 profiles, ", done.stdout)
        self.assertIn("model 'found' version '1': plan, ", done.stdout)
        self.assertIn("in order: 2 models can be served\n", done.stdout)
        self.assertIn("device cpu: ", done.stdout)
        self.assertIn("address 127.0.0.1:0: ok\n", done.stdout)
        done = self.check(code=0)
        self.assertIn("no models are configured", done.stdout)

    def test_an_onnx_file_is_built_and_the_daemon_finds_its_plan(self):
        argument = f"m={harness.onnx('copy')}"
        self.assertIn("its plan built now", self.check(argument, code=0).stdout)
        self.assertIn("its plan from the cache", self.check(argument, code=0).stdout)
        with harness.Server({"m": harness.onnx("copy")}, {"cache": str(self.cache)}) as s:
            with s.client() as client:
                self.assertEqual(client.counters()["plans_built"], 0)

    def test_limits_of_a_build(self):
        entry = {"name": "m", "path": str(harness.onnx("copy"))}
        done = self.check(code=1, models=[dict(entry, max_bytes=16, batches=[32])])
        self.assertIn("MiB are allowed", done.stderr)
        for limits in ({"max_bytes": "1GiB"}, {"memory_percent": 50, "workspace": "1MiB"}):
            done = self.check(code=0, models=[dict(entry, **limits)])
            self.assertIn("its plan built now", done.stdout)
        done = self.check(code=0, models=[dict(entry, max_bytes="1GiB")])
        self.assertIn("its plan from the cache", done.stdout)

    def test_what_will_not_start_is_said(self):
        whole = harness.plan("copy").read_bytes()
        threads = harness.folder() / "threads.plan"
        subprocess.run([harness.INFERCTL, "build", harness.onnx("copy"), "-o", threads,
                        "--reference-only", "--no-tune", "--threads", "2", "--timing-cache", ""],
                       check=True, capture_output=True, timeout=harness.PATIENCE)
        wrong = {
            "cut": (corrupt("cut.plan", whole[:len(whole) // 2]), "cut.plan"),
            "bent": (corrupt("bent.plan", whole[:100] + bytes([whole[100] ^ 4]) + whole[101:]),
                     "bent.plan"),
            "text": (corrupt("text.onnx", b"This is no model.\n" * 9), "text.onnx"),
            "gone": (harness.folder() / "gone.plan", "No such file"),
            "threads": (threads, "the plan was built for"),
            "native": (harness.plan("copy", reference=False), "the plan was built for"),
        }
        for name, (path, text) in wrong.items():
            with self.subTest(name):
                done = self.check(f"m={path}", code=1)
                self.assertRegex(done.stderr, rf"(?m)^inferd: model 'm' version '1' .*{text}")
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                self.assertIn("not in order: 1 error; 0 of 1 models", done.stdout)

    def test_several_errors_in_one_run(self):
        root = repository(good=harness.plan("copy"), copy=harness.plan("twice"))
        (root / "broken" / "1").mkdir(parents=True)
        (root / "broken" / "1" / "model.plan").write_bytes(b"this is no plan" * 50)
        done = self.check(f"copy={harness.plan('copy')}", "gone=/nowhere/gone.plan",
                          f"text={corrupt('several.onnx', b'text' * 50)}", root, "--insecure",
                          listen="203.0.113.1:8003", code=1)
        for text in ("address 203.0.113.1:8003: ", "model 'gone' ", "model 'text' ",
                     "model 'broken' ", "model 'copy' version '1' is there twice"):
            self.assertIn(text, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 5, done.stderr)
        self.assertIn("5 errors; 3 of 6 models", done.stdout)

    def test_a_folder_without_models(self):
        root = pathlib.Path(tempfile.mkdtemp(dir=harness.folder()))
        (root / "settings.d").mkdir()
        for folder, text in ((root, "holds no model"), ("/nowhere/at/all", "No such file")):
            done = self.check(folder, code=1)
            self.assertIn(f"repository {folder}", done.stderr)
            self.assertIn(text, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_without_the_device_the_rest_is_checked(self):
        done = self.check(f"copy={harness.plan('copy')}", "gone=/nowhere/gone.plan",
                          f"bad={corrupt('apart.plan', b'this is no plan' * 50)}",
                          f"onnx={harness.onnx('copy')}", device="cuda:99", code=1)
        self.assertRegex(done.stderr, r"(?m)^inferd: device cuda:99: ")
        self.assertRegex(done.stderr, r"model 'copy' .*built for 'cpu; [^\n]*, not for cuda:99")
        self.assertRegex(done.stderr, r"(?m)^inferd: model 'gone' ")
        self.assertRegex(done.stderr, r"(?m)^inferd: model 'bad' ")
        self.assertIn("model 'onnx' version '1': ONNX file, not tried", done.stdout)
        self.assertEqual(list(self.cache.iterdir()), [])

    def test_beside_a_daemon_that_serves(self):
        path = harness.folder() / "served.sock"
        config = {"listen": {"framed": ["127.0.0.1:0", f"unix:{path}"]}}
        with harness.Server({"copy": harness.plan("copy")}, config) as s, s.client() as client:
            before = sorted(p.name for p in s.folder.iterdir())
            done = self.check("--listen", f"unix:{path}", f"copy={harness.plan('copy')}",
                              listen=s.address, code=0)
            self.assertIn(f"address {s.address}: in use", done.stdout)
            self.assertIn(f"address unix:{path}: its folder is there", done.stdout)
            body = wire.infer_body("copy", [("x", "FP32", [1, 4], bytes(16))])
            self.assertEqual(client.call(wire.INFER, body).status, wire.OK)
            self.assertEqual(sorted(p.name for p in s.folder.iterdir()), before)
            self.assertTrue(path.exists())

    def test_addresses(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen(1)
            address = "127.0.0.1:%d" % other.getsockname()[1]
            self.assertIn(f"address {address}: in use", self.check(listen=address, code=0).stdout)
        done = self.check(listen="unix:/nowhere/at/all/inferd.sock", code=1)
        self.assertIn("/nowhere/at/all: No such file", done.stderr)

    def test_a_build_is_bounded_and_can_be_interrupted(self):
        folder = pathlib.Path(tempfile.mkdtemp(dir=harness.folder()))
        os.link(harness.INFERD, folder / "inferd")
        # a program, for a script could not be started: the child may execute nothing else
        subprocess.run(["cc", "-x", "c", "-o", folder / "inferctl", "-"], check=True, text=True,
                       input="#include <unistd.h>\nint main(void) { for (;;) pause(); }\n")
        real, harness.INFERD = harness.INFERD, str(folder / "inferd")
        try:
            begun = time.monotonic()
            done = self.check(f"m={harness.onnx('copy')}", build_timeout_s=1, code=1)
            self.assertIn("build_timeout_s", done.stderr)
            self.assertLess(time.monotonic() - begun, 30)
            process = subprocess.Popen(
                [harness.INFERD, "--check-config", "--listen", "127.0.0.1:0",
                 f"m={harness.onnx('copy')}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                env=dict(os.environ, INFERD_REFERENCE_KERNELS="1",
                         CACHE_DIRECTORY=str(self.cache)))
            harness.until(lambda: has_child(process.pid))
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(harness.PATIENCE), -signal.SIGINT)
            process.stdout.close()
        finally:
            harness.INFERD = real

    def test_what_cannot_be_printed_is_a_failure(self):
        for arguments in (["--help"], ["--version"],
                          ["--check-config", "--listen", "127.0.0.1:0"]):
            with self.subTest(arguments), open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([harness.INFERD, *arguments], stdout=full, check=False,
                                      stderr=subprocess.PIPE, text=True, timeout=60,
                                      env=dict(os.environ, CACHE_DIRECTORY=str(self.cache)))
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn("inferd: standard output: ", done.stderr)


if __name__ == "__main__":
    harness.main()
