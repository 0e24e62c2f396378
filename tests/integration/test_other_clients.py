#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that are not made for inferd, as they are: perf_analyzer, and KServe's client.

    test_other_clients.py INFERD INFERCTL

perf_analyzer was in the wheels of tritonclient for Linux (up to 2.50), and wants libcudart.so.12
beside it; KServe's client brings packages in versions of its own, so it has a Python of its own.
scripts/test puts them into .venv/clients; what is not there is skipped.
"""
import csv
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import harness

CLIENTS = pathlib.Path(__file__).resolve().parents[2] / ".venv" / "clients"
ANALYZER = next((path for path in (str(CLIENTS / "perf_analyzer"), shutil.which("perf_analyzer"))
                 if path and os.path.exists(path)), None)
KSERVE = CLIENTS / "kserve" / "bin" / "python"
LIBRARIES = dict(os.environ, LD_LIBRARY_PATH=str(CLIENTS))


def why_no_analyzer():
    if not ANALYZER:
        return "perf_analyzer is not here"
    done = subprocess.run([ANALYZER, "--version"], env=LIBRARIES, capture_output=True, text=True,
                          timeout=harness.PATIENCE, check=False)
    return f"perf_analyzer does not start: {done.stderr.strip()}" if done.returncode else None


def start():
    return harness.Server({name: harness.plan(name) for name in ("copy", "pair")},
                          arguments=["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"])


def doors(server):
    return {door: at for at, door in re.findall(r"(?m)^ready (\S+) \((\w+)\)$", server.log())}


class Doors(harness.Served):
    @classmethod
    def setUpClass(cls):
        cls.server = start()
        cls.doors = doors(cls.server)


NO_ANALYZER = why_no_analyzer()


@unittest.skipIf(NO_ANALYZER, NO_ANALYZER)
class PerfAnalyzer(Doors):
    def analyze(self, door, *options, model="copy"):
        """The rows of its table."""
        table = self.server.folder / "table.csv"
        done = subprocess.run(
            [ANALYZER, "-m", model, "-u", self.doors[door], "-i", door, "-p", "300", "-s", "999",
             "-r", "5", "-f", table, *options],
            env=LIBRARIES, capture_output=True, text=True, timeout=200, check=False)
        said = done.stdout + done.stderr
        self.assertNotIn("rror:", said)
        self.assertTrue(table.exists(), said)
        with open(table, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        table.unlink()
        self.assertTrue(rows, said)
        for row in rows:
            self.assertGreater(float(row["Inferences/Second"]), 0, said)
        return rows, said

    def test_sweeps_over_either_door_with_the_servers_share(self):
        for door in ("grpc", "http"):
            with self.subTest(door=door):
                rows, said = self.analyze(door, "--concurrency-range", "1:4:3")
                self.assertEqual({int(row["Concurrency"]) for row in rows}, {1, 4})
                self.assertIn("Server:", said) # from ModelStatistics around its windows
                self.assertTrue(all(float(row["Server Compute Infer"]) >= 0 for row in rows))

    def test_batches_and_several_inputs(self):
        for door in ("grpc", "http"):
            with self.subTest(door=door):
                self.analyze(door, "-b", "4", model="pair")

    def test_a_pipeline_and_what_it_is_made_of(self):
        file = self.server.folder / "chain.pbtxt"
        file.write_text("""
            platform: "ensemble" max_batch_size: 4
            input { name: "in" data_type: TYPE_FP32 dims: [ 4 ] }
            output { name: "out" data_type: TYPE_FP32 dims: [ 4 ] }
            ensemble_scheduling {
              step { model_name: "copy" input_map { key: "x" value: "in" }
                     output_map { key: "y" value: "between" } }
              step { model_name: "twice" input_map { key: "x" value: "between" }
                     output_map { key: "y" value: "out" } } }""")
        models = {"copy": harness.plan("copy"), "twice": harness.plan("twice"), "chain": file}
        with harness.Server(models, arguments=["--grpc", "127.0.0.1:0",
                                               "--http", "127.0.0.1:0"]) as server:
            for door in ("grpc", "http"):
                with self.subTest(door=door):
                    done = subprocess.run(
                        [ANALYZER, "-m", "chain", "-u", doors(server)[door], "-i", door, "-b", "2",
                         "-p", "300", "-s", "999", "-r", "5"],
                        env=LIBRARIES, capture_output=True, text=True, timeout=200, check=False)
                    said = done.stdout + done.stderr
                    self.assertEqual(done.returncode, 0, said)
                    composing = said[said.index("Composing models"):]
                    for model in ("copy", "twice"):
                        self.assertRegex(composing,
                                         rf"{model}, version: 1\s+Inference count: [1-9]")

    def test_streams(self):
        self.analyze("grpc", "--streaming", "--concurrency-range", "2:2:1")

    def test_asks_at_a_rate(self):
        rows, _ = self.analyze("grpc", "--request-rate-range", "50:50:1")
        self.assertLess(float(rows[0]["Inferences/Second"]), 75)

    def test_hears_of_a_model_that_is_not_there(self):
        done = subprocess.run([ANALYZER, "-m", "absent", "-u", self.doors["grpc"], "-i", "grpc"],
                              env=LIBRARIES, capture_output=True, text=True, timeout=120,
                              check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("absent", done.stdout + done.stderr)


@unittest.skipUnless(KSERVE.exists(), "KServe's client is not here")
class KServe(Doors):
    def test_rest_and_grpc_clients(self):
        script = pathlib.Path(__file__).with_name("kserve_client.py")
        done = subprocess.run([KSERVE, script, self.doors["http"], self.doors["grpc"]],
                              capture_output=True, text=True, timeout=200, check=False)
        self.assertIn("all answered", done.stdout, done.stderr)


if __name__ == "__main__":
    if NO_ANALYZER and not KSERVE.exists():
        print(f"SKIP: {NO_ANALYZER}; KServe's client is not here")
        sys.exit(77)
    harness.main()
