# SPDX-License-Identifier: Apache-2.0
"""Test servers: tiny models written by hand, plans built from them, inferd as a process.

Test programs are called with INFERD INFERCTL and start with `harness.main()`. Plain kernels are
used throughout, so that sanitizers see everything and answers do not depend on the machine.
"""
import atexit
import functools
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

import wire
from wire import PATIENCE, message

FLOAT, UINT8, INT64 = 1, 2, 7

INFERD, INFERCTL = (os.path.abspath(p) for p in sys.argv[1:3]) if len(sys.argv) > 2 else ("", "")

# For processes that are ended by force, at whose end ThreadSanitizer would report the threads.
FORCED_END = {"TSAN_OPTIONS": os.environ.get("TSAN_OPTIONS", "") + " report_thread_leaks=0"}


@functools.cache
def has_sanitizer(name):
    return f"__{name}_init".encode() in pathlib.Path(INFERD).read_bytes()


def sanitized():
    """Whether the server has a sanitizer, which keeps memory that was freed."""
    return has_sanitizer("asan") or has_sanitizer("tsan")


def fewer(count):
    """How often to do what shall be done `count` times: a fifth as often under ThreadSanitizer,
    where it takes long. The same threads meet, and the build with AddressSanitizer does it all."""
    return count // 5 if has_sanitizer("tsan") else count


_folder = None


def folder():
    """A temporary folder for the whole test program."""
    global _folder
    if not _folder:
        _folder = pathlib.Path(tempfile.mkdtemp(prefix="inferd-test-"))
        atexit.register(shutil.rmtree, _folder, ignore_errors=True)
    return _folder


# --- models ---


def value(name, dtype, dims):
    """A ValueInfoProto; a dimension may be a name."""
    shape = b"".join(
        wire.field(1, message((2, d)) if isinstance(d, str) else message((1, d))) for d in dims)
    return message((1, name), (2, message((1, message((1, dtype), (2, shape))))))


def node(op, inputs, outputs):
    return message(*((1, i) for i in inputs), *((2, o) for o in outputs), (3, outputs[0]), (4, op))


def constant(name, dtype, dims, data):
    """A TensorProto."""
    return message(*((1, d) for d in dims), (2, dtype), (8, name), (9, data))


def model(nodes, inputs, outputs, constants=()):
    graph = message(*((1, n) for n in nodes), (2, "test"), *((5, c) for c in constants),
                    *((11, i) for i in inputs), *((12, o) for o in outputs))
    return message((1, 8), (8, message((2, 13))), (7, graph))


def copy_model(width, dims=None):
    """x -> y, unchanged: [N, width] floats."""
    dims = dims or ["N", width]
    return model([node("Identity", ["x"], ["y"])], [value("x", FLOAT, dims)],
                 [value("y", FLOAT, dims)])


def expand_model(n):
    """x [N, 1] -> y [N, n]."""
    return model([node("Expand", ["x", "n"], ["y"])], [value("x", FLOAT, ["N", 1])],
                 [value("y", FLOAT, ["N", n])],
                 [constant("n", INT64, [2], struct.pack("<2q", 1, n))])


MODELS = {
    "copy": lambda: copy_model(4),
    "wide": lambda: copy_model(1 << 18),  # 1 MiB an instance
    "fixed": lambda: copy_model(0, [2, 3]),  # not batched
    # two inputs, three outputs
    "pair": lambda: model(
        [node("Add", ["a", "b"], ["sum"]), node("Identity", ["a"], ["same"]),
         node("Identity", ["n"], ["m"])],
        [value("a", FLOAT, ["N", 2]), value("b", FLOAT, ["N", 2]), value("n", INT64, ["N", 1])],
        [value("sum", FLOAT, ["N", 2]), value("same", FLOAT, ["N", 2]),
         value("m", INT64, ["N", 1])]),
    # rows of a table by their numbers: [[0, 1], [2, 3], [4, 5], [6, 7]]
    "rows": lambda: model(
        [node("Gather", ["table", "n"], ["y"])], [value("n", INT64, ["N", 1])],
        [value("y", FLOAT, ["N", 1, 2])],
        [constant("table", FLOAT, [4, 2], struct.pack("<8f", *range(8)))]),
    # each number of x handed on `n` times: an answer that is larger than its request
    "blown_up": lambda: expand_model(100 << 18),  # 100 MiB an instance
    "huge": lambda: expand_model(5 << 28),  # 5 GiB
    "grown": lambda: expand_model(3 << 18),  # 3 MiB
    # the same names as `copy`, another result
    "twice": lambda: model([node("Add", ["x", "x"], ["y"])], [value("x", FLOAT, ["N", 4])],
                           [value("y", FLOAT, ["N", 4])]),
}


def onnx(name):
    path = folder() / f"{name}.onnx"
    if not path.exists():
        path.write_bytes(MODELS[name]())
    return path


def plan(name, batches="1,2,4,8", reference=True):
    kind = "plan" if reference else "own.plan"
    path = folder() / f"{name}-{batches.replace(',', '-')}.{kind}"
    if not path.exists():
        done = subprocess.run(
            [INFERCTL, "build", onnx(name), "-o", path, "--batch", batches,
             *(["--reference-only"] if reference else []), "--no-tune", "--threads", "1",
             "--timing-cache", ""], capture_output=True, text=True, timeout=PATIENCE,
            check=False)
        if done.returncode != 0:
            raise AssertionError(f"inferctl build {name}: {done.stderr}")
    return path


# --- servers ---


def yaml(value, indent=0):
    """Just enough to write a configuration."""
    pad = "  " * indent
    if isinstance(value, dict):
        return "".join(
            f"{pad}{k}:" + (f"\n{yaml(v, indent + 1)}" if isinstance(v, (dict, list)) and v else
                            f" {yaml(v)}\n") for k, v in value.items())
    if isinstance(value, list) and value:
        return "".join(f"{pad}- {yaml(v, indent + 1).lstrip()}" if isinstance(v, dict) else
                       f"{pad}- {yaml(v)}\n" for v in value)
    if value is None:
        return "null"
    if isinstance(value, list):
        return "[]"
    return f'"{value}"' if isinstance(value, str) else str(value)


class Server:
    """inferd on a free port. `models` maps names to plans or ONNX files, or is a list of arguments;
    `env` is added to the environment (None removes a variable); `prefix` is a command that starts
    the program."""

    def __init__(self, models=(), config=None, env=None, arguments=(), wait=True, prefix=(),
                 **popen):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=folder()))
        self.config_path = self.folder / "inferd.yaml"
        self.config = {"threads": 1, "workers": 1, "max_delay_us": 0,
                       "cache": str(self.folder / "cache")}
        self.config.update({k: v for k, v in (config or {}).items() if v != {}})
        self.models = dict(models) if isinstance(models, dict) else {}
        self.write_config()
        listen = [] if "listen" in self.config else ["--listen", "127.0.0.1:0"]
        command = [*prefix, INFERD, "--config", str(self.config_path), *listen,
                   *map(str, arguments)]
        if not isinstance(models, dict):
            command += list(map(str, models))
        self.log_path = self.folder / "log"
        variables = dict(os.environ, INFERD_REFERENCE_KERNELS="1")
        variables.update(env or {})
        if has_sanitizer("tsan"):  # knows nothing of locks in libraries: oneDNN's look like races
            variables["INFERD_REFERENCE_KERNELS"] = "1"
        variables = {name: text for name, text in variables.items() if text is not None}
        variables.pop("NOTIFY_SOCKET", None) if "NOTIFY_SOCKET" not in (env or {}) else None
        with open(self.log_path, "wb") as sink:
            self.process = subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL,
                                            stdout=sink, stderr=subprocess.STDOUT, **popen)
        self.addresses = []
        if wait:
            try:
                self.wait_ready()
            except BaseException:
                self.kill()
                raise

    def write_config(self):
        models = [dict({"name": n}, **(m if isinstance(m, dict) else {"path": str(m)}))
                  for n, m in self.models.items()]
        config = dict(self.config, **({"models": models} if models else {}))
        self.config_path.write_text(yaml(config))

    def log(self):
        return self.log_path.read_text(errors="replace")

    def door(self, name):
        """The address of http, grpc or metrics, which the server has said."""
        return re.search(rf"(?m)^ready (\S+) \({name}\)$", self.log())[1]

    def shapes(self, model):
        """The dimensions of each input and output, as the model's metadata over HTTP say."""
        with urllib.request.urlopen(f"http://{self.door('http')}/v2/models/{model}",
                                    timeout=PATIENCE) as answer:
            said = json.load(answer)
        return {t["name"]: list(map(int, t["shape"])) for t in said["inputs"] + said["outputs"]}

    @property
    def address(self):
        return self.addresses[0]

    def wait_ready(self):
        self.wait_log(r"(?m)^ready .*\n", PATIENCE)  # all are written at once
        self.addresses = re.findall(r"(?m)^ready (\S+)$", self.log())

    def wait_log(self, pattern, seconds=PATIENCE, count=1):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if len(re.findall(pattern, self.log())) >= count:
                return
            if self.process.poll() is not None and count:
                if len(re.findall(pattern, self.log())) >= count:
                    return
                raise AssertionError(f"inferd ended with {self.process.returncode}:\n{self.log()}")
            time.sleep(0.01)
        raise AssertionError(f"no {pattern!r} in {seconds} s:\n{self.log()}")

    def client(self, **options):
        return wire.Client(self.address, **options)

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self, seconds=PATIENCE):
        return self.process.wait(seconds)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def stop(self, code=0):
        """SIGTERM must end the server in order; a sanitizer's report would change the exit code."""
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        got = self.wait()
        if got != code:
            raise AssertionError(f"exit code {got}, expected {code}:\n{self.log()}")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self.stop()
            else:
                sys.stderr.write(self.log())
        finally:
            self.kill()


class Served(unittest.TestCase):
    """Tests that share the one `server` that their class has started."""
    server = None

    @classmethod
    def tearDownClass(cls):
        try:
            cls.server.stop()
        finally:
            cls.server.kill()


class Background(threading.Thread):
    """A thread whose failure fails the test."""

    def __init__(self, function, *arguments):
        super().__init__(daemon=True)
        self.function, self.arguments, self.failure = function, arguments, None
        self.start()

    def run(self):
        try:
            self.function(*self.arguments)
        except BaseException as failure:
            self.failure = failure

    def finish(self, seconds=PATIENCE):
        self.join(seconds)
        if self.is_alive():
            raise AssertionError("a background thread does not end")
        if self.failure:
            raise self.failure


def together(count, function, seconds=PATIENCE):
    """Runs function(0) to function(count - 1) at once."""
    threads = [Background(function, i) for i in range(count)]
    for thread in threads:
        thread.finish(seconds)


def until(condition, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("not in time")
        time.sleep(0.01)


def until_in_flight(server, running, queued=0):
    """Waits until the workers have `running` requests and the queues have `queued` more."""
    with server.client() as probe:
        def there():
            body = probe.call(wire.STATUS).body
            waiting = sum(wire.one(m, 7, 0) for m in map(wire.decode, body.get(10, [])))
            return (wire.one(body, 9, 0), waiting) == (running + queued, queued)
        until(there)


def main():
    unittest.main(argv=sys.argv[:1])
