#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""inferctl status --watch and inferctl load beside a daemon that changes meanwhile.

    test_watch.py INFERD INFERCTL
"""
import json
import struct
import subprocess
import tempfile
import unittest

import harness
import wire

X = ("x", "FP32", [1, 4], struct.pack("<4f", 1, 2, 3, 4))


class Watch:
    """The program, running; what it has printed so far."""

    def __init__(self, address, *arguments, interval=0.2):
        self.sink = tempfile.TemporaryFile(mode="w+", dir=harness.folder())
        self.process = subprocess.Popen(
            [harness.INFERCTL, "status", address, "--watch", "--interval", str(interval),
             "--count", "1000", *arguments], stdin=subprocess.DEVNULL, stdout=self.sink,
            stderr=subprocess.STDOUT)

    def text(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the watch ended with {self.process.returncode}")
        self.sink.seek(0)
        return self.sink.read()

    def lines(self):
        return [json.loads(line) for line in self.text().splitlines(keepends=True)
                if line.endswith("\n")]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.sink.close()


def infer(client, n=1):
    for _ in range(n):
        reply = client.infer("copy", [X])
        if reply.status != wire.OK:
            raise AssertionError(reply.message)


class Watching(unittest.TestCase):
    def test_an_interval_knows_nothing_of_the_time_before(self):
        """Many requests are fast, and then a fault makes a few slow. The median since the start is
        that of the fast requests, and the median of a late interval is that of the slow ones."""
        with harness.Server({"copy": harness.plan("copy")}, {"device": "fault"},
                            env={"INFERD_FAULT_SCRIPT": "on=cpu;launch#400+:delay=20ms"}) as s, \
                s.client() as client:
            while True:
                reply = client.infer("copy", [X])
                if wire.one(reply.timing, 3, 0) + wire.one(reply.timing, 2, 0) > 15e6:
                    break
            with Watch(s.address, "--json") as watch:
                def seen():
                    infer(client, 3)
                    return len(watch.lines()) >= 3
                harness.until(seen)
                model = watch.lines()[2]["models"][0]
            interval = model["interval"]
            self.assertLess(model["total_p50_us"], 15000)
            self.assertGreater(interval["total_p50_us"], 19000)
            self.assertGreaterEqual(interval["total_p99_us"], interval["total_p50_us"])
            self.assertLess(interval["instances_per_s"], 51)
            self.assertLess(interval["requests"], model["requests"])
            self.assertEqual((interval["batch"], interval["failures"]), (1, 0))

    def test_nothing_happens(self):
        with harness.Server({"copy": harness.plan("copy")}) as s, s.client() as client:
            infer(client, 5)
            with Watch(s.address, interval=0.05) as watch:
                harness.until(lambda: watch.text().count("\ncopy/1 ") >= 2)
                rows = [line.split() for line in watch.text().splitlines()
                        if line.startswith("copy/1 ")]
        self.assertEqual(rows[1], ["copy/1", "0", "-", "0", "-", "-", "-", "-", "-"])

    def test_a_server_that_is_started_again(self):
        with tempfile.TemporaryDirectory() as folder:
            address = f"unix:{folder}/socket"
            config = {"listen": {"framed": [address]}}
            models = {"copy": harness.plan("copy")}
            first = harness.Server(models, config)
            self.addCleanup(first.kill)
            with Watch(address, "--json", interval=0.1) as watch, \
                    Watch(address, interval=0.1) as text:
                with first.client() as client:
                    infer(client, 50)
                harness.until(lambda: len(watch.lines()) >= 2)
                first.kill()
                harness.until(lambda: "away_s" in watch.lines()[-1])
                harness.until(lambda: "the server is away" in text.text())
                self.assertIn("socket", watch.lines()[-1]["reason"])
                started = watch.lines()[0]["started_ms"]
                with harness.Server(models, config) as second:
                    with second.client() as client:
                        infer(client, 3)
                    harness.until(lambda: watch.lines()[-1]["ready"])
                    harness.until(lambda: "since it was started again" in text.text())
                    harness.until(lambda: watch.lines()[-1]["models"][0]["requests"] == 3)
                    lines = [line for line in watch.lines() if "models" in line]
                    self.assertNotIn(" -1", text.text())
                later = [line for line in lines if line["started_ms"] != started]
                self.assertTrue(later)
                # Each request is in one interval, and the requests of the first server are in none.
                self.assertEqual(sum(line["models"][0]["interval"]["requests"]
                                     for line in later), 3)
                for line in lines:
                    for value in line["models"][0]["interval"].values():
                        self.assertGreaterEqual(value, 0)

    def test_nobody_is_there_at_the_start(self):
        done = subprocess.run([harness.INFERCTL, "status", "unix:/nowhere/socket", "--watch"],
                              capture_output=True, text=True, timeout=harness.PATIENCE, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("inferctl status: ", done.stderr)

    def test_a_load_test_keeps_what_it_had_when_the_server_goes(self):
        out = harness.folder() / "cut.json"
        s = harness.Server({"copy": harness.plan("copy")})
        self.addCleanup(s.kill)
        load = subprocess.Popen(
            [harness.INFERCTL, "load", s.address, "--model", "copy", "--concurrency", "1:3",
             "--seconds", "0.3", "--warm-up", "0.1", "--max-windows", "1000", "--json", str(out)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(load.kill)
        lines = [load.stdout.readline() for _ in range(4)]  # the head, a row, where time went
        s.kill()
        rest, said = load.communicate(timeout=harness.PATIENCE)
        points = json.loads(out.read_text())["points"]
        self.assertEqual(load.returncode, 1)
        self.assertIn(s.address, said)
        self.assertGreater(points[0]["requests"], 0)
        self.assertFalse(points[0]["cut"])
        self.assertEqual(points[-1]["cut"], "cut short" in rest, (lines, rest))
        self.assertEqual(json.loads(out.read_text())["error"],
                         said.partition(": ")[2].strip())


harness.main()
