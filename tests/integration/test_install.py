#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that what `meson install` installs is complete, and that its parts name each other
rightly.

    test_install.py BUILD
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

BUILD = os.path.abspath(sys.argv[1])
EXPECTED = ["bin/inferd", "bin/inferctl", "include/inferd/client.h", "inferd/inferd.yaml",
            "lib/systemd/system/inferd.service", "lib/systemd/system/inferd.socket",
            "lib/systemd/system/inferd-grpc.socket",
            "share/inferd/inferd-cuda.conf",
            "man/man1/inferctl.1", "man/man5/inferd.yaml.5", "man/man8/inferd.8",
            "share/inferd/proto/inferd.proto", "share/inferd/proto/inference.proto",
            "pkgconfig/inferd-client.pc", "pkgconfig/inferd-engine.pc",
            "include/inferd_engine.h",
            "include/inferd_plugin.h"]
PAGES = (pathlib.Path(__file__).resolve().parents[2] / "docs").glob("*.md")
EXPECTED += [f"doc/inferd/{page.name}" for page in PAGES]


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        done = subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--destdir",
                               cls.root], capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)
        cls.files = {str(path.relative_to(cls.root)): path for path in cls.root.rglob("*")
                     if not path.is_dir()}

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def find(self, end):
        found = [path for name, path in self.files.items() if name.endswith("/" + end)]
        self.assertEqual(len(found), 1, f"{end} in {sorted(self.files)}")
        return found[0]

    def test_everything_is_there(self):
        for end in EXPECTED:
            self.find(end)

    def test_the_schema_compiles(self):
        """The two files work with nothing beside them: a client in another language needs only
        these."""
        folder = self.find("share/inferd/proto/inferd.proto").parent
        done = subprocess.run(["protoc", f"-I{folder}", "--descriptor_set_out=/dev/null",
                               "inferd.proto", "inference.proto"], capture_output=True, text=True,
                              timeout=120, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_programs_run(self):
        for program in ("bin/inferd", "bin/inferctl"):
            done = subprocess.run([self.find(program), "--version"], capture_output=True,
                                  text=True, timeout=120, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, r"\d+\.\d+\.\d+")

    def test_the_unit_names_what_is_installed(self):
        line = re.search(r"(?m)^ExecStart=(\S+) --config (\S+)$",
                         self.find("inferd.service").read_text())
        for path in line.groups():
            self.assertIn(path.lstrip("/"), self.files)
        config = pathlib.Path(line.group(2))
        page = self.find("man/man8/inferd.8").read_text()
        self.assertIn(f".I {config}\n", page)
        unit = self.find("inferd.service").read_text()
        self.assertIn(f"LoadCredential=inferd.tokens:{config.parent}/tokens\n", unit)
        for text in (page, unit):
            self.assertNotRegex(text, r"@\w+@")

    def test_the_configuration_is_in_order(self):
        done = subprocess.run([self.find("bin/inferd"), "--check-config", "--config",
                               self.find("inferd.yaml")], capture_output=True, text=True,
                              timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
