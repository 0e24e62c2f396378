#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the scripts compute: no failure may get lost in the count, and the demo's numbers are right.

    check_scripts.py SCRIPTS MODELS
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SCRIPTS, MODELS = (pathlib.Path(p) for p in sys.argv[1:3])
sys.path.insert(0, str(SCRIPTS))
sys.dont_write_bytecode = True
import digits  # noqa: E402

CMOCKA_OK = "[ RUN      ] a\n[       OK ] a\n[ RUN      ] b\n[       OK ] b\n"
CMOCKA_BAD = CMOCKA_OK + ("[  FAILED  ] c\n[==========] 3 test(s) run.\n[  PASSED  ] 2 test(s).\n"
                          "[  FAILED  ] 1 test(s), listed below:\n[  FAILED  ] c\n")


class Count(unittest.TestCase):
    def count(self, steps, *tests):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "steps").write_text(steps)
            lines = [json.dumps({"name": "n", "result": result, "stdout": out, "stderr": err})
                     for result, out, err in tests]
            (root / "log.json").write_text("".join(line + "\n" for line in lines))
            done = subprocess.run([sys.executable, SCRIPTS / "count_tests.py", root / "steps",
                                   root / "log.json"], capture_output=True, text=True)
        self.assertEqual(done.stderr, "")
        return done.stdout.splitlines()[-1], done.returncode

    def test_programs(self):
        table = [
            (("OK", CMOCKA_OK, ""), ("2 passed, 0 failed", 0)),
            (("OK", "", CMOCKA_OK), ("2 passed, 0 failed", 0)),
            (("FAIL", CMOCKA_BAD, ""), ("2 passed, 1 failed", 1)),
            (("FAIL", CMOCKA_OK, "ERROR: LeakSanitizer"), ("2 passed, 1 failed", 1)),
            (("FAIL", "", ""), ("0 passed, 1 failed", 1)),
            (("TIMEOUT", CMOCKA_OK, ""), ("2 passed, 1 failed", 1)),
            (("OK", "", ""), ("1 passed, 0 failed", 0)),
            (("OK", "Ran 5 tests in 0.1s\n\nOK\n", ""), ("5 passed, 0 failed", 0)),
            (("FAIL", "", "Ran 5 tests in 1s\n\nFAILED (failures=1, errors=2)\n"),
             ("2 passed, 3 failed", 1)),
            (("OK", "300 passed, 0 failed\n", ""), ("300 passed, 0 failed", 0)),
            (("FAIL", "300 passed, 2 failed\n", ""), ("300 passed, 2 failed", 1)),
            (("FAIL", "300 passed, 0 failed\n", ""), ("300 passed, 1 failed", 1)),
            (("OK", "1..3\nok 1 a\nok 2 - b\nok 3 c # SKIP why\n", ""), ("2 passed, 0 failed", 0)),
            (("FAIL", "1..2\nok 1 a\nnot ok 2 b\n", ""), ("1 passed, 1 failed", 1)),
            (("SKIP", "", ""), ("0 passed, 0 failed", 1)),
        ]
        for test, expected in table:
            self.assertEqual(self.count("", test), expected, test)

    def test_steps(self):
        self.assertEqual(self.count("pass a\npass b c\n"), ("2 passed, 0 failed", 0))
        self.assertEqual(self.count("pass a\nfail b\n", ("OK", CMOCKA_OK, "")),
                         ("3 passed, 1 failed", 1))
        self.assertEqual(self.count(""), ("0 passed, 0 failed", 1))


class Times(unittest.TestCase):
    def times(self, root, steps, *logs):
        (root / "times").write_text(steps)
        done = subprocess.run([sys.executable, SCRIPTS / "test_times.py", root / "times",
                               root / "cache/kept", *logs], capture_output=True, text=True)
        self.assertEqual((done.stderr, done.returncode), ("", 0))
        return done.stdout.splitlines()

    def test_what_passed_is_kept_until_it_passes_again(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            lines = self.times(root, "pass 30 a b\nfail 10 c\n")
            self.assertEqual([line.split() for line in lines],
                             [["seconds", "share", "step"], ["30", "75", "%", "a", "b"],
                              ["10", "25", "%", "c"]])
            self.assertEqual((root / "cache/kept").read_text(), "30 a b\n")
            self.times(root, "fail 2 a b\npass 5 c\n")
            self.assertEqual((root / "cache/kept").read_text(), "30 a b\n5 c\n")

    def test_slowest_tests_of_all_builds(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for build, durations in (("build-x", [1.5, 90]), ("build-y", [7])):
                (root / f"{build}.json").write_text("".join(
                    json.dumps({"name": f"inferd:unit / t{n}", "duration": n}) + "\n"
                    for n in durations))
            lines = self.times(root, "pass 1 a\n", root / "build-x.json", root / "build-y.json",
                               root / "build-without-log.json")
        self.assertEqual([line.split() for line in lines[3:]],
                         [["90.0", "t90", "(build-x)"], ["7.0", "t7", "(build-y)"],
                          ["1.5", "t1.5", "(build-x)"]])

    def test_every_step_has_its_function(self):
        script = (SCRIPTS / "test").read_text()
        rows = re.findall(r"(?m)^(?:    echo \")?([a-z_]+)(?::\S+)? \d+ \S", script)
        self.assertGreater(len(rows), 15)
        for function in rows:
            self.assertIn(f"\n{function}() {{\n", script)
            if function.startswith("test_"):
                self.assertIn(f"build_{function.removeprefix('test_')}", rows)

    def test_usage(self):
        for arguments, code in ((["--help"], 0), (["--quikc"], 2), (["--quick", "more"], 2)):
            done = subprocess.run([SCRIPTS / "test", *arguments], capture_output=True, text=True)
            self.assertEqual(done.returncode, code)
            self.assertIn("--quick", done.stdout + done.stderr)


class Demo(unittest.TestCase):
    def test_split_and_score(self):
        _, labels = digits.npy_read(MODELS / "digits_test_labels.npy", "|u1")
        shape, pixels = digits.npy_read(MODELS / "digits_test_images.npy", "|u1")
        self.assertEqual(shape[1:], (1, 8, 8))
        self.assertEqual(shape[0], len(labels))
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            digits.split(MODELS, root)
            seen = 0
            for batch in sorted(root.glob("*.npy")):
                size, values = digits.npy_read(batch, "<f4")
                self.assertEqual(list(values), list(pixels[64 * seen : 64 * (seen + size[0])]))
                answers = [float((label + (seen + i == 3)) % 10 == c)
                           for i, label in enumerate(labels[seen : seen + size[0]])
                           for c in range(10)]
                batch.with_suffix("").mkdir()
                digits.npy_write_f32(batch.with_suffix("") / "probabilities.npy", [size[0], 10],
                                     answers)
                seen += size[0]
            self.assertEqual(seen, len(labels))
            done = subprocess.run([sys.executable, SCRIPTS / "digits.py", "score", MODELS, root],
                                  capture_output=True, text=True)
        self.assertEqual((done.stderr, done.returncode), ("", 0))
        self.assertIn("596 of 597 right\naccuracy 0.9983\n", done.stdout)

    def test_missing_answers_are_no_score(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, SCRIPTS / "digits.py", "score", MODELS, folder],
                                  capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertNotIn("accuracy", done.stdout)

    def test_load_table(self):
        point = {"concurrency": 4, "throughput": 1234.5, "p50_us": 1500, "p99_us": 2500.0,
                 "mean_batch": 3.25, "errors": 0}
        for errors, code in ((0, 0), (2, 1)):
            with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
                json.dump({"points": [dict(point, errors=errors)]}, f)
                f.flush()
                done = subprocess.run([sys.executable, SCRIPTS / "load_table.py", f.name],
                                      capture_output=True, text=True)
            self.assertEqual(done.returncode, code)
            self.assertEqual(done.stdout.splitlines()[1].split(),
                             ["4", "1234", "1.500", "2.500", "3.25"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
