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
import sys
import tempfile
import unittest

C_LIKE = {".c", ".h", ".cu", ".cuh"}
SKIPPED = re.compile(r"^(build.*|\.git|\.venv|\.cache|__pycache__|subprojects|corpus|found)$")
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
    for path in sorted(root.rglob("*")):
        inside = path.relative_to(root)
        if any(SKIPPED.match(part) for part in inside.parts):
            continue
        if path.suffix in C_LIKE:
            found = check_source(path.read_text(encoding="utf-8"))
        elif path.suffix == ".md":
            found = american(1, path.read_text(encoding="utf-8"))
        else:
            continue
        checked += 1
        problems += [f"{inside}:{line}: {what}" for line, what in found]
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


def main():
    if sys.argv[1:] == ["--self"]:
        unittest.main(argv=sys.argv[:1])
    problems, checked = check(pathlib.Path(sys.argv[1]))
    print("\n".join(problems))
    print(f"{checked} files checked, {len(problems)} problems")
    if checked == 0 or problems:
        sys.exit(1)


if __name__ == "__main__":
    main()
