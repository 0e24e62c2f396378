#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The whole daemon under load, for ThreadSanitizer above all: several loops and workers, models
that compute, load from the client library, peers of every kind, reloads that change models while
they serve, and in the end a drain in the middle of it. Each answer is right and comes once.

    test_load.py INFERD INFERCTL ROOT SECONDS
"""
import collections
import contextlib
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT, SECONDS = pathlib.Path(sys.argv[3]).resolve(), float(sys.argv[4])
sys.path.insert(0, str(ROOT / "tests" / "bench"))
import harness  # noqa: E402
import soak_clients  # noqa: E402  (needs the path)
import wire  # noqa: E402

BATCHES = "1,2,4,8"
GONE = {wire.NOT_FOUND, wire.UNAVAILABLE}
ENDED = (EOFError, ConnectionResetError, BrokenPipeError)
PATIENT = 60 * 1000 * 1000  # microseconds: until the drain
harness.MODELS["strip"] = lambda: harness.copy_model(soak_clients.STRIP)
harness.MODELS["digits"] = (ROOT / "models" / "digits.onnx").read_bytes


# --- models whose answers are known ---


def npy_rows(path, n):
    """The first `n` of an array of bytes."""
    data = path.read_bytes()
    size = struct.unpack("<H", data[8:10])[0]
    shape = [int(d) for d in re.search(rb"'shape': \(([^)]*)\)", data).group(1).split(b",") if d]
    each = 1
    for d in shape[1:]:
        each *= d
    return [data[10 + size + i * each : 10 + size + (i + 1) * each] for i in range(n)]


def digits_answers(plan, n):
    """[(image, probabilities)] as the engine computes them without a daemon, each image alone."""
    pairs = []
    for i, pixels in enumerate(npy_rows(ROOT / "models" / "digits_test_images.npy", n)):
        image = struct.pack("<64f", *pixels)
        folder = harness.folder() / f"digit-{i}"
        folder.mkdir()
        (folder / "in.pb").write_bytes(
            harness.constant("image", harness.FLOAT, [1, 1, 8, 8], image))
        subprocess.run([harness.INFERCTL, "run", plan, "--input", f"image={folder}/in.pb",
                        "--reference-only", "--threads", "1", "--output", folder], check=True,
                       stdout=subprocess.DEVNULL, timeout=harness.PATIENCE)
        pairs.append((image, (folder / "probabilities.npy").read_bytes()[-40:]))
    return pairs


class Requests:
    """The requests of peers, in the form of soak_clients: (body, what may come with OK, what else
    may come)."""

    def __init__(self, digits):
        self.pairs = digits
        self.table = dict(soak_clients.INFERENCES)
        del self.table[soak_clients.digits]
        self.table.update({self.digits: 20, self.rows: 10, self.version: 15})

    def digits(self, rng):
        chosen = [rng.choice(self.pairs) for _ in range(rng.randrange(1, 5))]
        body = wire.infer_body("digits", [("image", "FP32", [len(chosen), 1, 8, 8],
                                           b"".join(image for image, _ in chosen))])
        return body, [{"probabilities": b"".join(answer for _, answer in chosen)}], set()

    @staticmethod
    def rows(rng):
        """Now and then a number that is beyond the table, among others that are not."""
        numbers = [rng.randrange(4) for _ in range(rng.randrange(1, 4))]
        right = b"".join(struct.pack("<2f", 2 * n, 2 * n + 1) for n in numbers)
        guilty = rng.random() < 0.2
        if guilty:
            numbers[-1] = 99
        body = wire.infer_body("rows", [("n", "INT64", [len(numbers), 1],
                                         struct.pack(f"<{len(numbers)}q", *numbers))])
        return (body, [], {wire.INVALID_ARGUMENT}) if guilty else (body, [{"y": right}], set())

    @staticmethod
    def version(rng):
        """Version 1 is sometimes the identity and sometimes doubles; version 2 doubles and is not
        always there."""
        n, value, version = rng.randrange(1, 5), rng.randrange(1000), rng.choice(["", "1", "2"])
        same, twice = [struct.pack("<f", k * value) * (4 * n) for k in (1, 2)]
        body = wire.infer_body("versions", [("x", "FP32", [n, 4], same)], version=version)
        if version == "2":
            return body, [{"y": twice}], GONE
        return body, [{"y": same}, {"y": twice}], set()


# --- peers ---


class Peer(soak_clients.Peer):
    """The soak's peer, which here also asks for descriptions."""

    def infer(self):
        table = self.job.requests.table
        body, outputs, others = self.rng.choices(list(table), list(table.values()))[0](self.rng)
        self.send(wire.INFER, body, outputs, soak_clients.REFUSED | others | self.job.others,
                  timeout_us=self.rng.choice([0, 0, 0, 300, 5000, 50000]),
                  priority=self.rng.randrange(4))

    def ask(self):
        name = self.rng.choice(["digits", "versions", "extra"])
        kind, body = self.rng.choice(
            [(k, b"") for k in (wire.STATUS, wire.STATISTICS, wire.INDEX, wire.READY, wire.LIVE,
                                wire.SERVER_METADATA)] +
            [(wire.MODEL_METADATA, wire.message((1, name))),
             (wire.MODEL_READY, wire.message((1, name)))])
        self.send(kind, body, None, GONE)

    def drain(self):
        """Also checks that nothing comes behind the last answer."""
        super().drain()
        if not isinstance(self.client.socket, socket.socket):
            return  # one that reads slowly
        with contextlib.suppress(OSError):  # shut down before, or closed by the server
            self.client.socket.shutdown(socket.SHUT_WR)
        if self.client.socket.recv(1) != b"":
            raise AssertionError("an answer too many")


class Job:
    """A thread with one connection after the other, until it is told to stop."""

    def __init__(self, address, requests, conversation, seed, stop, others=frozenset()):
        self.address, self.requests, self.conversation = address, requests, conversation
        self.stop, self.others, self.counts = stop, others, collections.Counter()
        self.rng = random.Random(seed)
        self.thread = harness.Background(self.run)

    def count(self, which, n=1):
        self.counts[which] += n

    def run(self):
        while not self.stop.is_set():
            peer = Peer(self, self.rng)
            try:
                self.conversation(peer, self.rng, self.stop)
            finally:
                peer.close()


def through_the_drain(peer, _, stop):
    """Sends until the server closes. Every request that was sent before the signal has its answer,
    and no request that was sent after it has two."""
    sent_at = {}
    try:
        while True:
            peer.infer()
            sent_at[peer.client.next_id] = time.monotonic()
            if len(peer.sent) >= 16:
                peer.receive()
    except ENDED:
        pass
    try:
        while True:
            peer.receive()
    except ENDED:
        pass
    if not peer.job.stop.is_set():
        raise AssertionError("closed without a reason")
    late = [i for i in peer.sent if sent_at.get(i, stop.at) < stop.at]
    if late:
        raise AssertionError(f"{len(late)} requests unanswered that came before the signal")
    peer.sent.clear()


class Waiting:
    """Requests that wait for others to join their batch, which never come; the drain runs them. All
    requests of this kind in the test are fewer than a batch can hold."""

    def __init__(self, address):
        self.client, self.sent = wire.Client(address), {}
        for i in range(2):
            data = struct.pack("<4f", *range(i, i + 4))
            body = wire.infer_body("patient", [("x", "FP32", [1, 4], data)])
            self.sent[self.client.start(wire.INFER, body)] = data
        self.client.call(wire.STATUS)  # answered after they have arrived

    def finish(self):
        for _ in range(len(self.sent)):
            reply = self.client.receive()
            data = self.sent.pop(reply.id)
            if (reply.status, reply.outputs()["y"][2]) != (wire.OK, data):
                raise AssertionError((reply.status, reply.message))
        if not self.client.closed():
            raise AssertionError("not closed")
        self.client.close()


class Program:
    """Runs inferctl load, which uses the asynchronous half of the client library."""

    def __init__(self, address, seconds, *options):
        self.name = " ".join(map(str, options))
        self.process = subprocess.Popen(
            [harness.INFERCTL, "load", address, "--seconds", str(seconds), "--max-windows", "3",
             "--quiet", "--json", str(harness.folder() / f"{id(self)}.json"), *map(str, options)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def finish(self, codes, seconds):
        said = self.process.communicate(timeout=seconds)[1]
        if self.process.returncode not in codes or "Sanitizer" in said:
            raise AssertionError(f"load {self.name}: exit {self.process.returncode}: {said}")

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


# --- what changes on disk ---


class Operator:
    """One change after the other, each reloaded."""

    def __init__(self, server, repository):
        self.server, self.repository = server, repository
        self.steps, self.done, self.failed = [
            self.exchange, self.add, self.replace_version, self.other_source, self.remove_version,
            self.spoil, self.limits, self.exchange, self.remove, self.add_version,
        ], 0, 0

    def put(self, version, name):
        folder = self.repository / "versions" / version
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(harness.plan(name), folder / "new")
        os.rename(folder / "new", folder / "model.plan")

    def model(self, name):
        return self.server.models[name]

    def exchange(self):
        now = self.model("flip")["path"]
        self.model("flip")["path"] = str(
            harness.plan("twice" if now == str(harness.plan("copy")) else "copy"))

    def other_source(self):
        name = "twice" if "copy" in self.model("built")["path"] else "copy"
        self.model("built")["path"] = str(harness.onnx(name))

    def add(self):
        self.server.models["extra"] = {"path": str(harness.plan("twice"))}

    def remove(self):
        del self.server.models["extra"]

    def replace_version(self):
        self.put("1", "twice" if self.done // len(self.steps) % 2 else "copy")

    def add_version(self):
        self.put("2", "twice")

    def remove_version(self):
        shutil.rmtree(self.repository / "versions" / "2")

    def limits(self):
        self.model("copy")["max_delay_us"] = 1000 - self.model("copy").get("max_delay_us", 0)
        self.model("pair")["max_batch"] = 12 - self.model("pair").get("max_batch", 8)

    def spoil(self):
        with open(self.server.config_path, "a", encoding="utf-8") as file:
            file.write("models: [what: is this\n")

    def step(self):
        step = self.steps[(self.done + self.failed) % len(self.steps)]
        good = step != self.spoil
        if good:
            step()
        self.server.write_config()
        if not good:
            step()
        self.server.signal(signal.SIGHUP)
        self.done, self.failed = self.done + good, self.failed + (not good)
        self.server.wait_log(r"\breloaded\b", count=self.done)
        self.server.wait_log("reload failed", count=self.failed)

    def run(self, stop):
        while not stop.wait(0.3):
            self.step()


# --- the test ---


class Stop(threading.Event):
    """An event that knows when it was set."""
    at = float("inf")

    def set(self):
        self.at = min(self.at, time.monotonic())
        super().set()


def served(repository):
    """The configuration's models, and a repository with two versions of one."""
    models = {name: {"path": str(harness.plan(name, BATCHES))}
              for name in ("copy", "pair", "digits", "rows")}
    models["strip"] = {"path": str(harness.plan("strip", "1,2,4"))}
    models["flip"] = {"path": str(harness.plan("copy"))}
    models["patient"] = {"path": str(harness.plan("copy")), "max_delay_us": PATIENT}
    models["built"] = {"path": str(harness.onnx("copy")), "batches": [1, 2, 4]}
    config = {"workers": 3, "io_threads": 3, "device": "cpu", "max_delay_us": 300,
              "repository": str(repository), "limits": {"inflight_bytes": 64 << 20,
                                                        "connection_inflight_bytes": 2 << 20,
                                                        "frame_bytes": 1 << 20,
                                                        "output_bytes": 4 << 20}}
    return models, config


class Load(unittest.TestCase):
    def finish(self, jobs):
        for job in jobs:
            job.thread.finish()

    def test_r24_all_at_once_and_a_drain_in_the_middle(self):
        repository = pathlib.Path(tempfile.mkdtemp(dir=harness.folder()))
        for version, name in (("1", "copy"), ("2", "twice")):
            Operator(None, repository).put(version, name)
        models, config = served(repository)
        requests = Requests(digits_answers(harness.plan("digits", BATCHES), 4))
        path = f"unix:{repository}/socket"
        programs = []
        with harness.Server(models, config, arguments=["--listen", path]) as s:
            try:
                self.main_phase(s, path, repository, requests, programs)
                self.drain_phase(s, path, requests, programs)
            finally:
                for p in programs:
                    p.kill()

    def seen(self, s):
        """What has to happen, and how often it did."""
        with s.client() as client:
            counters = client.counters()
        counters["too_late"] = counters["expired_before_run"] + counters["rejected_deadline"]
        return {name: counters[name] for name in (
            "requests_ok", "batches_split", "cancelled", "too_late", "replies_dropped")}

    def main_phase(self, s, path, repository, requests, programs):
        stop = Stop()
        programs += [
            Program(s.address, SECONDS * 0.7, "--model", "digits", "--concurrency", 6, "--batch", 2,
                    "--connections", 3),
            Program(path, SECONDS * 0.7, "--model", "flip", "--concurrency", 4),
            Program(s.address, SECONDS * 0.7, "--model", "copy", "--rate", 100, "--poisson",
                    "--priority", 2),
        ]
        mixed = soak_clients.mixed
        conversations = [mixed(16, 0.005, False), mixed(16, 0.005, False), mixed(48, 0.001, False),
                         mixed(16, 0.005, True), mixed(16, 0.005, True), soak_clients.slow_reader,
                         soak_clients.never_reader]
        jobs = [Job(path if i % 3 == 2 else s.address, requests, conversation, i, stop)
                for i, conversation in enumerate(conversations)]
        operator = Operator(s, repository)
        reloads = harness.Background(operator.run, stop)
        stop.wait(SECONDS)
        # clients that get little time do little, and some of them all by chance
        harness.until(lambda: all(self.seen(s).values()))
        stop.set()
        self.finish(jobs)
        reloads.finish()
        for p in programs:
            p.finish({0}, 60)
        with s.client() as client:
            counters = client.counters()
        self.assertEqual((counters["reloads"], counters["reloads_failed"]),
                         (operator.done, operator.failed))
        print(f"{self.seen(s)}, {operator.done} reloads", file=sys.stderr)

    def drain_phase(self, s, path, requests, programs):
        stop = Stop()
        waiting = [Waiting(s.address), Waiting(path), Waiting(s.address)]
        programs += [Program(s.address, 60, "--model", "digits", "--concurrency", 6),
                     Program(path, 60, "--model", "copy", "--rate", 200)]
        jobs = [Job(path if i % 3 == 2 else s.address, requests, through_the_drain, 100 + i, stop,
                    others=GONE) for i in range(6)]
        harness.until(lambda: sum(j.counts[wire.OK] for j in jobs) > 300)
        s.signal(signal.SIGHUP)
        stop.set()
        s.signal(signal.SIGTERM)
        self.assertEqual(s.wait(), 0)
        for w in waiting:
            w.finish()
        self.finish(jobs)
        for p in programs[-2:]:
            p.finish({0, 1}, 30)


if __name__ == "__main__":
    harness.main()
