#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of requirements in docs/operations.md against the tests that carry their numbers.

    check_requirements.py ROOT
"""
import collections
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv[1]).resolve()
ALL = range(1, 41)
# This is about a part that does not exist, so there is only a row that says so.
WITHOUT_TEST = {32: "MPS"}


def rows():
    text = (ROOT / "docs/operations.md").read_text()
    for number, promise, where in re.findall(r"(?m)^\| R(\d+) \| (.*) \| (.*) \|$", text):
        yield int(number), promise, set(re.split(r", *", where)) - {"-"}


def tests():
    """number -> the files that have a test of it"""
    found = collections.defaultdict(set)
    for path in (ROOT / "tests").rglob("*"):
        if path.suffix not in (".c", ".py"):
            continue
        text = path.read_text()
        names = re.findall(r"(?m)^static void (?:test_)?r(\d+)_\w+\(", text)
        names += re.findall(r"(?m)^ +def test_r(\d+)_\w+\(self\)", text)
        for number in names:
            found[int(number)].add(path.stem)
    return found


class Requirements(unittest.TestCase):
    def test_every_number_has_one_row(self):
        self.assertEqual([number for number, _, _ in rows()], list(ALL))

    def test_rows_name_tests_that_there_are(self):
        found = tests()
        self.assertLessEqual(set(found), set(ALL))
        for number, promise, where in rows():
            self.assertLessEqual(where, found[number], f"R{number}")
            if number in WITHOUT_TEST:
                self.assertIn(WITHOUT_TEST[number], promise)
            else:
                self.assertTrue(where, f"R{number} has no test")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
