#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The documents against the tree: man pages without warnings, every key documented, links and paths
that exist.

    check_docs.py ROOT
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(sys.argv[1]).resolve()
MAN = ROOT / "docs" / "man"
PAGES = sorted(MAN.glob("*.[1-8]"))
MARKDOWN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")),
            ROOT / "models/README.md", ROOT / "models/glyphs/README.md"]


def plain(page):
    """A man page's text without its markup."""
    text = page.read_text().replace("\\-", "-").replace("\\fR", "").replace("\\fP", "")
    return text


def configuration_keys():
    """Every key of the reference file, also those of the commented entry."""
    return set(re.findall(r"(?m)^#?[ #-]*([a-z][a-z0-9_]*):(?: |$)",
                          (ROOT / "config/inferd.yaml").read_text()))


def anchors(text):
    heads = re.findall(r"(?m)^#+ (.*)$", text)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


class ManPages(unittest.TestCase):
    def test_no_warnings(self):
        env = dict(os.environ, LC_ALL="C.UTF-8", MANROFFSEQ="", MANWIDTH="80")
        for page in PAGES:
            done = subprocess.run(
                ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", str(page)], env=env,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                text=True, timeout=60)
            self.assertEqual((done.returncode, done.stderr), (0, ""), page.name)

    def test_every_configuration_key(self):
        keys, page = configuration_keys(), plain(MAN / "inferd.yaml.5")
        self.assertGreater(len(keys), 30)
        for key in keys:
            self.assertRegex(page, rf"(?m)^\.BR? .*\b{key}\b", key)


class Fusions(unittest.TestCase):
    """docs/fusions.md: a row at least for each pass, and none for another; tests that exist."""

    def rows(self, part):
        """The rows of the table in that part of the document."""
        text = (ROOT / "docs/fusions.md").read_text().split("\n## ")[part]
        return [[cell.strip() for cell in line.strip("|").split("|")]
                for line in text.splitlines() if line.startswith("| ")][1:]

    def test_rows_in_place(self):
        text = (ROOT / "tests/unit/runtime/test_parts.c").read_text()
        cases = set(re.findall(r'\{"([^"]+)", \d+,', text))
        rows = self.rows(1)
        self.assertGreater(len(rows), 3)
        for row in rows:
            self.assertEqual(len(row), 5, row)
            self.assertLessEqual(set(row[3].split("; ")), cases)

    def test_rows(self):
        rows = self.rows(0)
        passes = re.findall(r"ROW\((\w+), \"", (ROOT / "engine/passes/table.h").read_text())
        cases = {name for path in (ROOT / "tests/unit/passes").glob("*.c")
                 for name in re.findall(r'\{"((?:[^"\\]|\\.)*)",', path.read_text())}
        self.assertGreater(len(passes), 20)
        self.assertEqual(list(dict.fromkeys(row[0] for row in rows)), passes)
        for row in rows:
            self.assertEqual(len(row), 6, row)
            self.assertIn(row[4], cases, row[0])
            self.assertTrue(row[1] and row[3] and row[5], row)


class Markdown(unittest.TestCase):
    def test_links_lead_somewhere(self):
        for document in MARKDOWN:
            for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
                if re.match(r"[a-z]+:", target):
                    continue
                path, _, anchor = target.partition("#")
                file = (document.parent / path) if path else document
                self.assertTrue(file.exists(), f"{document.name}: {target}")
                if anchor:
                    self.assertIn(anchor, anchors(file.read_text()), f"{document.name}: {target}")

    def test_every_counter(self):
        """Of the daemon's, in the operations guide."""
        header = (ROOT / "daemon/counters.h").read_text()
        counters = re.findall(r'X\([A-Z_]+, "([a-z_]+)"\)', header)
        self.assertGreater(len(counters), 20)
        text = (ROOT / "docs/operations.md").read_text()
        for counter in counters:
            self.assertIn(f"`{counter}`", text)

    def test_paths_exist(self):
        """`engine/ir/ir.h` in a document is a file or folder of the tree."""
        tops = "base|batching|client|config|daemon|docs|engine|kernels|models|pool|proto|scripts"
        found = 0
        for document in MARKDOWN:
            for path in re.findall(rf"`((?:{tops}|systemd|tests|tools)/[\w./-]*)`",
                                   document.read_text()):
                found += 1
                built = ROOT / (path + ".c")  # a program of that name
                self.assertTrue((ROOT / path).exists() or built.exists(),
                                f"{document.name}: {path}")
        self.assertGreater(found, 20)


if __name__ == "__main__":
    if not shutil.which("man"):
        print("man is not here")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
