#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rules about what comments and pages say, as far as a program can tell.

    check_words.py ROOT      checks a tree and prints one line for each thing that is wrong
    check_words.py --self    checks the rules themselves, on small trees that break them

- A name in backticks exists in the file that speaks of it, so that a renamed parameter takes its
  description along. What lives elsewhere is written without backticks.
- R1 to R40 are the requirements listed in docs/operations.md; a file that cites one says so once.
- The spelling is British, with -ise. Names that others gave (ONNX's `initializer`, CSS's `color`)
  stand in backticks or in code.
"""
import pathlib
import re
import tempfile
import unittest

import check_tree

PIECE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
NAME = re.compile(r"`([A-Za-z_]\w*)`")
REQUIREMENT = re.compile(r"\bR[1-4]?[0-9]\b")
PAGE = "docs/operations.md"
STEMS = ("optimiz", "normaliz", "serializ", "initializ(?!er)", "quantiz", "recogniz", "organiz",
         "minimiz", "maximiz", "synchroniz", "specializ", "generaliz", "utiliz", "finaliz",
         "analyz", "customiz", "summariz", "vectoriz", "behavior", "favor", "neighbor", "honor",
         "canceled", "canceling", "labeled", "labeling", "modeled", "color", "center", "gray")
AMERICAN = re.compile(r"(?<![/\w])(un|re|de|pre)?(" + "|".join(STEMS) + r")[a-z]*\b")


def split(text):
    """The comments of a C source, each with its line, and all else, strings included."""
    comments, code, last = [], [], 0
    for match in PIECE.finditer(text):
        code.append(text[last:match.start()])
        if match.group().startswith("/"):
            comments.append((text.count("\n", 0, match.start()) + 1, match.group()))
        else:
            code.append(match.group())
        last = match.end()
    code.append(text[last:])
    return comments, " ".join(code)


def american(line, text):
    without_code = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)|<[^>]*>",
                          lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S)
    for match in AMERICAN.finditer(without_code):
        at = line + without_code.count("\n", 0, match.start())
        yield at, f"American spelling: {match.group()}"


def check_source(text):
    comments, code = split(text)
    names = set(re.findall(r"[A-Za-z_]\w*", code))
    cites = None
    for line, comment in comments:
        for match in NAME.finditer(comment):
            if match.group(1) not in names:
                at = line + comment.count("\n", 0, match.start())
                yield at, f"`{match.group(1)}` is nothing in this file"
        if cites is None and REQUIREMENT.search(comment):
            cites = line
        yield from american(line, comment)
    if cites and PAGE not in text:
        yield cites, f"cites a requirement without saying that {PAGE} lists them"


def check(root):
    problems, checked = [], 0
    for path in check_tree.files(root):
        if path.suffix not in check_tree.C_LIKE | {".md"}:
            continue
        text = (root / path).read_text(encoding="utf-8")
        found = american(1, text) if path.suffix == ".md" else check_source(text)
        checked += 1
        problems += [f"{path}:{line}: {what}" for line, what in found]
    return problems, checked


class RulesFire(unittest.TestCase):
    def problems(self, name, text):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / name).write_text(text)
            return check(pathlib.Path(folder))[0]

    def test_names(self):
        self.assertEqual(self.problems("a.c", "/* `len` bytes */\nint a(int len);\n"), [])
        self.assertIn("`length` is nothing", self.problems("a.c", "/* `length` */\nint len;\n")[0])
        self.assertIn("a.c:2", self.problems("a.c", "/*\n * `length` */\nint len;\n")[0])

    def test_requirements(self):
        self.assertEqual(self.problems("a.h", f"/* R12 of {PAGE} */\n"), [])
        self.assertIn("cites", self.problems("a.h", "/* bounded (R12) */\n")[0])

    def test_spelling(self):
        self.assertEqual(self.problems("a.md", "optimised; `color`, LayerNormalization\n"), [])
        self.assertIn("a.md:2", self.problems("a.md", "\nunoptimized\n")[0])
        self.assertIn("normalized", self.problems("a.c", "/* is normalized */\n")[0])
        self.assertEqual(self.problems("a.c", "int normalized;\n"), [])


if __name__ == "__main__":
    check_tree.run(check)
