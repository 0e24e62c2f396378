#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""inferctl's offline commands from outside: check_offline.py INFERCTL MODELS

Exit codes, texts, files and JSON keys that scripts rely on. Needs nothing but Python.
"""
import fcntl
import hashlib
import json
import os
import pathlib
import re
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import xml.dom.minidom

INFERCTL, MODELS = None, None


def write_npy(path, shape, values, code="f", descr="<f4"):
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {tuple(shape)!r}, }}\n"
    data = struct.pack(f"<{len(values)}{code}", *values)
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + data)


def read_npy(path):
    raw = path.read_bytes()
    length = struct.unpack("<H", raw[8:10])[0]
    header = eval(raw[10:10 + length])  # numpy's own format; written by the program under test
    data = raw[10 + length:]
    return header["shape"], struct.unpack(f"<{len(data) // 4}f", data)


class Offline(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.dir = pathlib.Path(self.folder.name)
        self.plan = self.dir / "digits.plan"
        self.digits = MODELS / "digits.onnx"

    def tearDown(self):
        self.folder.cleanup()

    def run_it(self, *args, code=0):
        env = dict(os.environ, XDG_CACHE_HOME=str(self.dir / "cache"), NO_COLOR="1",
                   INFERD_MODULE_DIR=str(self.dir))
        done = subprocess.run([INFERCTL, *map(str, args)], capture_output=True, text=True, env=env,
                              timeout=100, check=False)
        self.assertEqual(done.returncode, code, f"{args}: {done.stdout}{done.stderr}")
        if code:
            self.assertEqual(len(done.stderr.strip().split("\n")), 1, done.stderr)
        return done.stdout if code == 0 else done.stderr

    def build(self, *args):
        return self.run_it("build", self.digits, "-o", self.plan, "--threads", 1, "--no-tune",
                           *args)

    def test_usage(self):
        self.run_it("--help")
        self.assertEqual(self.run_it("help"), self.run_it("--help"))
        self.assertEqual(self.run_it("version"), self.run_it("--version"))
        self.run_it("build", "--help")
        self.assertEqual(self.run_it("help", "build"), self.run_it("build", "--help"))
        self.assertIn("no command", self.run_it("nothing", code=2))
        for wrong in (("bulid",), ("help", "buid"), ("build-", "x")):
            self.assertIn("(did you mean 'build'?)", self.run_it(*wrong, code=2))
        self.assertIn("required", self.run_it("build", self.digits, code=2))
        self.assertIn("usage", self.run_it("build", code=2))
        self.run_it("bench", self.plan, "--contexts", 0, code=2)

    def test_what_is_for_tests_stands_apart(self):
        for command in ("build", "run", "bench"):
            ours, _, tests = self.run_it(command, "--help").partition("For tests of inferd itself:")
            for option in ("--reference-only", "--fault"):
                self.assertNotIn(option, ours)
                self.assertIn(option, tests)

    def test_mistyped_options(self):
        for text, near in (("--bathc", "--batch"), ("--prec=fp16", "--precision"),
                           ("--Dim", "--dim"), ("--refrence-only", "--reference-only")):
            said = self.run_it("build", self.digits, text, code=2)
            self.assertIn(f"no such option '{text}' (did you mean '{near}'?)", said)
        self.assertNotIn("mean", self.run_it("build", self.digits, "--colour", code=2))
        self.assertIn("--threads 'two': expected a whole number",
                      self.run_it("build", self.digits, "--threads", "two", code=2))

    def test_options_that_do_nothing_to_a_plan(self):
        self.build("--batch", "1")
        given = (("--precision", "fp16"), ("--dim", "N=1"), ("--input-type", "image=uint8"),
                 ("--input-scale", "image=2"), ("--input-bias", "image=2"), ("--no-tune",),
                 ("--output-type", "y=fp16"),
                 ("--max-bytes", "1GiB"), ("--max-error", "0.1"), ("--data", "."),
                 ("--pin", "conv1=cpu"), ("--keep", "conv1"), ("--workspace", "1MiB"),
                 ("--memory-fraction", "0.5"),
                 ("--timing-cache", ""))
        for option in given:
            for command in ("run", "bench"):
                said = self.run_it(command, self.plan, *option, code=1)
                self.assertIn(f"{option[0]} says how a model is built", said)
        for option in (("--dim", "N=1"), ("--fused",), ("--device", "cpu")):
            self.assertIn(option[0], self.run_it("graph", self.plan, "-o", self.dir / "no.svg",
                                                 *option, code=1))
        self.assertFalse((self.dir / "no.svg").exists())
        at = ("run", self.plan, "--threads", 1)
        self.assertIn("--fault is for --device fault",
                      self.run_it(*at, "--fault", "apart", code=1))
        self.assertIn("--reference-only is for the CPU",
                      self.run_it(*at, "--reference-only", "--device", "cuda", code=1))
        self.assertIn("go with --check", self.run_it(*at, "--rtol", "1", code=2))

    def test_build_says_what_and_leaves_only_the_plan(self):
        out = self.build("--batch", "1,4")
        self.assertIn("2 profiles", out)
        self.assertRegex(out, r"precision fp32 \(FP32 \d+ layers")
        self.assertEqual(sorted(p.name for p in self.dir.iterdir()), ["cache", "digits.plan"])

    def test_max_error(self):
        for text in ("nothing", "0", "-1", "inf", "nan", ""):
            self.assertIn("a number above 0 was expected, or none",
                          self.run_it("build", self.digits, "-o", self.plan, "--max-error", text,
                                      code=1))
        for text in ("none", "0.5"):
            self.build("--batch", "1", "--max-error", text)

    def layers(self):
        profile = json.loads(self.run_it("inspect", self.plan, "--json"))["profiles"][0]
        return {layer["name"]: layer for layer in profile["layers"]}

    def test_pins(self):
        self.build("--batch", "1", "--pin", "conv*=reference", "--pin", "relu2=*",
                   "--keep", "conv1,bn*")
        layers = self.layers()
        self.assertEqual(layers["conv1 + bn1 + relu1"]["tactic"], "reference")
        self.assertNotEqual(layers["conv2 + bn2 + relu2"]["tactic"], "reference")
        given = ("build", self.digits, "-o", self.plan, "--threads", 1, "--no-tune")
        for option, text, said in (
                ("--pin", "conv1", "--pin 'conv1': the form is LAYER=WHAT"),
                ("--pin", "=cpu", "the form is LAYER=WHAT"),
                ("--pin", "conv1=!", "the form is LAYER=WHAT"),
                ("--keep", "conv1,", "the form is LAYER,LAYER,.."),
                ("--keep", ",".join(["a"] * 65), "at most 64 pins"),
                ("--pin", "vonv1=cpu", "did you mean 'conv1'?"),
                ("--keep", "nothing", "no layer has this name"),
                ("--pin", "conv1=int8", "tensors have ranges only with --precision int8"),
                ("--pin", "*=~fp8", "tensors have ranges only with --precision fp8"),
                ("--pin", "*=~fp16", "there are such kernels only with --precision fp16"),
                ("--pin", "conv1=fp16", "layer 'conv1 + bn1 + relu1' (conv) has no such kernel"),
                ("--pin", "conv1=cuda", "--pin conv1=cuda: layer 'conv1 + bn1 + relu1' (conv)")):
            with self.subTest(text):
                self.assertIn(said, self.run_it(*given, option, text, code=1))
        both = ("--pin", "conv1=reference", "--pin", "bn1=!reference")
        self.assertIn("--pin conv1=reference --pin bn1=!reference: layer 'conv1 + bn1 + relu1'",
                      self.run_it(*given, *both, code=1))

    def test_limits_of_memory(self):
        given = ("build", self.digits, "-o", self.plan, "--threads", 1, "--no-tune", "--batch", 64)
        for option, text, said in (
                ("--memory-fraction", "1.5", "at most 1"),
                ("--memory-fraction", "1e-9", "batch 64: needs "),
                ("--max-bytes", "100KiB", "at most 0.1 MiB are allowed")):
            self.assertIn(said, self.run_it(*given, option, text, code=1))
        self.run_it(*given, "--memory-fraction", "0.5", "--workspace", "1GiB")
        self.run_it(*given, "--workspace", "1")

    def test_data_for_the_error(self):
        given = ("build", self.digits, "-o", self.plan, "--batch", "1", "--data")
        self.assertIn("nowhere", self.run_it(*given, self.dir / "nowhere", code=1))
        (self.dir / "empty").mkdir()
        self.assertIn("empty", self.run_it(*given, self.dir / "empty", code=1))
        (self.dir / "empty" / "one.npy").write_bytes((MODELS / "digits_one.npy").read_bytes())
        self.run_it(*given, self.dir / "empty")

    def build_int8(self, relu1, *args):
        """A plan with made-up ranges, such as that of relu1; None: no kernels for 8 bits here."""
        ranges = self.dir / "ranges"
        ranges.write_text("inferd ranges 1\nmodel any\nimage range 0 16\n"
                          f"relu1 range 0 {relu1}\nrelu2 range 0 30\npool1 range 0 30\n"
                          "relu3 range 0 60\npool2 range 0 60\nflat range 0 60\n"
                          "relu4 range 0 80\n")
        samples = self.dir / "samples"
        samples.mkdir(exist_ok=True)
        (samples / "one.npy").write_bytes((MODELS / "digits_one.npy").read_bytes())
        said = self.run_it("build", self.digits, "-o", self.plan, "--threads", 1, "--no-tune",
                           "--batch", "1,3", "--precision", "int8", "--ranges", ranges, "--data",
                           samples, *args)
        return said if "INT8" in said or "held" in said else None

    def test_a_wrong_range_is_held_back(self):
        said = self.build_int8(0.01)
        if said is None:
            self.skipTest("no kernels for 8 bits on this processor")
        self.assertRegex(said, r"  held     from U?INT8: error 0\.\d+: conv")
        self.assertRegex(said, r"  error    [-.e\d]+ of output probabilities, agrees in 100%")
        text = self.run_it("inspect", self.plan)
        self.assertRegex(text, r"\nheld     from U?INT8: error 0\.\d+: conv1 \+ bn1 \+ relu1\n")
        kept = json.loads(self.run_it("inspect", self.plan, "--json"))["exactness"]
        self.assertEqual((kept["samples"], kept["data"]), (4, True))
        self.assertAlmostEqual(kept["bound"], 0.15)
        self.assertEqual([o["name"] for o in kept["outputs"]], ["probabilities"])
        self.assertLess(kept["outputs"][0]["error"], 0.15)
        self.assertEqual(kept["outputs"][0]["agreement"], 1)
        self.assertIn("conv1 + bn1 + relu1", [h["layer"] for h in kept["held"]])
        for layer in kept["held"]:
            self.assertIn(layer["dtype"], ("INT8", "UINT8"))
            self.assertGreater(layer["error"], 0.01)

    def test_without_a_bound_a_wrong_range_stays(self):
        said = self.build_int8(0.01, "--max-error", "none", "--sensitivity")
        if said is None:
            self.skipTest("no kernels for 8 bits on this processor")
        self.assertRegex(said, r"\n +0\.\d+ +0\.\d+ .*INT8 +no +conv +conv1 \+ bn1 \+ relu1\n")
        kept = json.loads(self.run_it("inspect", self.plan, "--json"))["exactness"]
        self.assertIsNone(kept["bound"])
        self.assertEqual(kept["held"], [])
        self.assertGreater(kept["outputs"][0]["error"], 0.1)
        self.build_int8(0.01, "--max-error", "none")
        self.assertIsNone(json.loads(self.run_it("inspect", self.plan, "--json"))["exactness"])

    def test_exactness_of_fp32(self):
        said = self.run_it("build", self.digits, "-o", self.plan, "--batch", "1", "--sensitivity")
        self.assertIn("no layer was to run in a shorter type", said)
        self.assertNotIn("\nerror ", self.run_it("inspect", self.plan))
        self.assertIsNone(json.loads(self.run_it("inspect", self.plan, "--json"))["exactness"])

    def test_a_build_says_what_it_did(self):
        base = ["build", self.digits, "-o", self.plan, "--threads", 1, "--batch", "1",
                "--timing-cache", ""]
        text = self.run_it(*base, "--no-tune")
        self.assertIn("fusion: 17 nodes became 9 (", text)
        self.assertIn("fold_batch_norm -3", text)
        self.assertRegex(text, r"\n  cpu: \d+ of \d+ layers \(")
        self.assertNotIn("batch normalisation moves", text)
        self.assertIn("3 x  batch normalisation moves into weights",
                      self.run_it(*base, "--no-tune", "-v"))
        text = self.run_it(*base, "--reference-only")
        self.assertRegex(text, r"no fast kernel: \d+ layers, 100% of the time: '.*' \(conv\)")

    def said_by(self, *flags):
        done = subprocess.run([INFERCTL, "build", self.digits, "-o", self.plan, "--threads", "1",
                               "--no-tune", "--timing-cache", "", "--batch", "1", *flags],
                              capture_output=True, text=True, timeout=100, check=True)
        return done.stderr

    def test_verbose_has_three_steps(self):
        self.assertEqual(self.said_by("-v"), "")
        twice = self.said_by("-vv")
        self.assertIn("fold_batch_norm: conv1 + bn1", twice)
        self.assertEqual(twice, self.said_by("-v", "-v"))
        self.assertGreater(len(self.said_by("-vvv")), len(twice))
        self.run_it("build", self.digits, "-o", self.plan, "-vx", code=2)

    def test_a_build_that_is_ended_leaves_nothing(self):
        folder = self.dir / "ended"
        folder.mkdir()

        def heeding_signals():  # whatever runs this may ignore or block them, as nohup does
            numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
            for number in numbers:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
            process = subprocess.Popen(
                [INFERCTL, "build", self.digits, "-o", folder / "m.plan", "--threads", "1",
                 "--timing-cache", "", "--batch", ",".join(map(str, range(1, 33)))],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=heeding_signals)
            end = time.monotonic() + 60
            while not list(folder.iterdir()) and time.monotonic() < end:
                time.sleep(0.001)
            process.send_signal(number)
            code = process.wait(60)
            if number != signal.SIGKILL:
                self.assertEqual((code, list(folder.iterdir())), (128 + number, []))
        self.assertEqual(code, -signal.SIGKILL)
        self.assertEqual(len(list(folder.iterdir())), 1)
        self.run_it("build", self.digits, "-o", folder / "other.plan", "--threads", 1, "--no-tune",
                    "--batch", "1", "--timing-cache", "")
        self.assertEqual([f.name for f in folder.iterdir()], ["other.plan"])

    def build_of_descriptors(self, model, *args, limit=None):
        """(exit status, stderr, plan) of a build as the daemon's child does it."""
        def small_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        with open(model, "rb") as source, tempfile.TemporaryFile() as plan:
            done = subprocess.run(
                [INFERCTL, "build", f"fd:{source.fileno()}:m.onnx", "-o", f"fd:{plan.fileno()}",
                 "--threads", "1", "--no-tune", "--timing-cache", "", *args],
                pass_fds=(source.fileno(), plan.fileno()), capture_output=True, text=True,
                timeout=100, check=False, preexec_fn=small_files if limit else None)
            plan.seek(0)
            return done.returncode, done.stderr, plan.read()

    def test_a_build_of_descriptors(self):
        self.build()
        code, said, plan = self.build_of_descriptors(self.digits)
        self.assertEqual((code, said), (0, ""))
        self.assertEqual(plan, self.plan.read_bytes())

    def test_a_build_of_descriptors_executes_nothing(self):
        """Before it says its first word, a filter of its own forbids it to execute programs."""
        out, end = os.pipe()
        os.write(end, b"x" * fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, 4096))  # it waits to speak
        with open(self.digits, "rb") as source, tempfile.TemporaryFile() as plan:
            process = subprocess.Popen(
                [INFERCTL, "build", f"fd:{source.fileno()}:m.onnx", "-o", f"fd:{plan.fileno()}",
                 "-vv", "--threads", "1", "--no-tune", "--timing-cache", ""],
                pass_fds=(source.fileno(), plan.fileno()), stdout=subprocess.DEVNULL, stderr=end,
                env=dict(os.environ, OMP_WAIT_POLICY="passive", LSAN_OPTIONS="detect_leaks=0"))
        os.close(end)
        try:
            filtered, begin = "", time.monotonic()
            while "Seccomp:\t2" not in filtered and time.monotonic() - begin < 20:
                filtered = pathlib.Path(f"/proc/{process.pid}/status").read_text()
                time.sleep(0.01)
            self.assertIn("Seccomp:\t2", filtered)
            self.assertIn("NoNewPrivs:\t1", filtered)
            with os.fdopen(out, "rb") as said:
                self.assertGreater(len(said.read()), 4096)
            self.assertEqual(process.wait(60), 0)
        finally:
            process.kill()
            process.wait()

    def test_a_failed_build_of_descriptors_says_its_cause(self):
        bad = self.dir / "bad.onnx"
        bad.write_bytes(b"\xff" * 100)
        code, said, _ = self.build_of_descriptors(bad)
        self.assertEqual(code, 64 + 3, said)  # INVALID_ARGUMENT, by its gRPC number
        self.assertIn("m.onnx", said)
        code, said, _ = self.build_of_descriptors(self.digits, limit=5000)
        table = pathlib.Path(__file__).parents[3] / "base/cause.h"
        causes = re.findall(r"(?m)^    X\((\w+),", table.read_text())
        self.assertEqual(causes[code - 64], "DISK_FULL", said)
        with open(self.digits, "rb") as source, open("/dev/null", "wb") as sink:
            done = subprocess.run(
                [INFERCTL, "build", f"fd:{source.fileno()}:m.onnx", "-o", f"fd:{sink.fileno()}"],
                pass_fds=(source.fileno(), sink.fileno()), capture_output=True, timeout=100,
                check=False)
        self.assertEqual(done.returncode, 64 + 3, done.stderr)

    def test_a_failed_build_leaves_the_old_plan(self):
        self.plan.write_text("old")
        broken = self.dir / "broken.onnx"
        broken.write_bytes(self.digits.read_bytes()[:5000])
        self.run_it("build", broken, "-o", self.plan, code=1)
        self.assertEqual(self.plan.read_text(), "old")
        self.assertEqual(sorted(p.name for p in self.dir.iterdir()),
                         ["broken.onnx", "cache", "digits.plan"])

    def test_a_killed_build_leaves_no_plan(self):
        env = dict(os.environ, XDG_CACHE_HOME=str(self.dir / "cache"))
        args = [INFERCTL, "build", str(self.digits), "-o", str(self.plan)]
        with subprocess.Popen(args, env=env, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as child:
            child.send_signal(signal.SIGKILL)
        if self.plan.exists():
            self.skipTest("it was faster than the signal")
        self.build("--batch", "1")  # it may have left a temporary, which does no harm

    def test_two_builds_of_one_plan_take_turns(self):
        env = dict(os.environ, XDG_CACHE_HOME=str(self.dir / "cache"))
        args = [INFERCTL, "build", str(self.digits), "-o", str(self.plan), "--threads", "1",
                "--no-tune", "--batch", "1,2,4"]
        children = [subprocess.Popen(args, env=env, stdout=subprocess.DEVNULL) for _ in range(4)]
        self.assertEqual([c.wait(timeout=100) for c in children], [0] * 4)
        self.assertEqual(sorted(p.name for p in self.dir.iterdir()), ["cache", "digits.plan"])
        self.run_it("run", self.plan, "--quiet")

    def test_unsupported_says_so(self):
        self.assertIn("unsupported", self.run_it("build", self.digits, "-o", self.plan, "--device",
                                                 "cuda", code=1))
        for precision in ("int4", "fp12"):
            self.assertIn(f"--precision '{precision}': there are 'fp32', 'tf32', 'fp16', 'bf16'",
                          self.run_it("build", self.digits, "-o", self.plan, "--precision",
                                      precision, code=1))

    def test_inspect(self):
        self.build("--batch", "1,2")
        text = self.run_it("inspect", self.plan)
        self.assertIn("conv1 + bn1 + relu1", text)
        plan = json.loads(self.run_it("inspect", self.plan, "--json"))
        self.assertEqual([p["batch"] for p in plan["profiles"]], [1, 2])
        self.assertEqual(plan["inputs"][0]["shape"][0], -1)
        layer = plan["profiles"][0]["layers"][0]
        for key in ("name", "op", "tactic", "precision", "time_ns", "fused"):
            self.assertIn(key, layer)
        self.assertEqual(layer["fused"], ["relu"])
        one = json.loads(self.run_it("inspect", self.plan, "--json", "--batch", 2))
        self.assertEqual(len(one["profiles"]), 1)
        self.assertIn("--batch 3: the plan has profiles for 1, 2\n",
                      self.run_it("inspect", self.plan, "--batch", 3, code=1))
        self.assertIn("--dim", self.run_it("inspect", self.plan, "--dim", "N=1", code=1))

    def test_inspect_a_model(self):
        text = self.run_it("inspect", self.digits)
        for line in ("input    image FP32 [N,1,8,8]", "output   probabilities FP32 [N,10]",
                     "open     N, which counts instances: --batch",
                     "nodes    17: 4 Relu, 3 BatchNormalization"):
            self.assertIn(line, text)
        model = json.loads(self.run_it("inspect", self.digits, "--json"))
        self.assertEqual(model["inputs"], [{"name": "image", "dtype": "FP32",
                                            "shape": ["N", 1, 8, 8]}])
        self.assertIs(type(model["opset"]), int)
        self.assertEqual((model["refused"], model["unbound"]), ([], ""))
        self.assertEqual(sum(op["nodes"] for op in model["ops"]), model["nodes"])
        broken = self.dir / "odd.onnx"
        broken.write_bytes(self.digits.read_bytes().replace(b"Softmax", b"Hardmix")
                           .replace(b"MaxPool", b"MixPool"))
        done = subprocess.run([INFERCTL, "inspect", broken], capture_output=True, text=True,
                              timeout=60, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stdout, r"refused  MixPool: this op is not supported \(2 nodes, ")
        self.assertRegex(done.stdout, r"refused  Hardmix '\w+': this op is not supported")

    def test_files_of_other_kinds(self):
        self.build("--batch", "1")
        text, npy = self.dir / "text.yaml", self.dir / "x.npy"
        text.write_text("root:x:0:0:root:/root:/bin/bash\n")
        write_npy(npy, (1, 1, 8, 8), [0] * 64)
        for file in (text, npy):
            for command in (("build", file, "-o", self.dir / "no.plan"), ("inspect", file),
                            ("run", file), ("graph", file, "-o", self.dir / "no.svg")):
                self.assertIn(f"{file}: not an ONNX file\n", self.run_it(*command, code=1))
        self.assertIn("it is a plan already",
                      self.run_it("build", self.plan, "-o", self.dir / "no.plan", code=1))
        self.assertIn(f"{text}: expected a tensor: a .npy file, or ONNX's in a .pb file",
                      self.run_it("run", self.plan, "--threads", 1, "--input", f"image={text}",
                                  code=1))

    def test_dimensions(self):
        at = ("build", self.digits, "-o", self.plan, "--no-tune", "--dim")
        self.assertIn("--dim N=4: 'N' counts instances; give --batch 4",
                      self.run_it(*at, "N=4", code=1))
        self.assertIn("--dim Q: no input has such a dimension; those with names: 'N'",
                      self.run_it(*at, "Q=4", code=1))
        self.assertIn("the form is NAME=N", self.run_it(*at, "N", code=1))
        self.assertFalse(self.plan.exists())

    def test_graph(self):
        before, after = self.dir / "before.svg", self.dir / "after.svg"
        self.build("--batch", "1")
        self.run_it("graph", self.digits, "-o", before)
        self.run_it("graph", self.plan, "-o", after)
        boxes = [len(xml.dom.minidom.parse(str(p)).getElementsByTagName("title"))
                 for p in (before, after)]
        self.assertGreater(boxes[0], boxes[1])
        self.run_it("graph", self.digits, code=2)

    def test_run_and_check(self):
        self.build("--batch", "1,4")
        image = self.dir / "image.npy"
        write_npy(image, (5, 1, 8, 8), [i * 7 % 17 for i in range(5 * 64)])
        out = self.dir / "out"
        self.run_it("run", self.plan, "--threads", 1, "--input", f"image={image}", "--output", out,
                    "--quiet")
        shape, values = read_npy(out / "probabilities.npy")
        self.assertEqual(shape, (5, 10))
        self.assertAlmostEqual(sum(values), 5.0, places=4)
        check = f"probabilities={out / 'probabilities.npy'}"
        self.assertIn("--batch 3: the files say",
                      self.run_it("run", self.plan, "--threads", 1, "--input", f"image={image}",
                                  "--batch", 3, code=1))
        text = self.run_it("run", self.digits, "--threads", 1, "--no-tune", "--reference-only",
                           "--input", f"image={image}", "--check", check, "--quiet")
        self.assertIn("agrees", text)
        write_npy(out / "probabilities.npy", shape, [v + 0.01 for v in values])
        text = self.run_it("run", self.plan, "--threads", 1, "--input", f"image={image}",
                           "--check", check, "--quiet", code=1)
        self.assertIn("differs", text)
        self.run_it("run", self.plan, "--threads", 1, "--input", f"image={image}", "--check", check,
                    "--atol", "0.02", "--quiet")

    def test_run_refuses_what_does_not_fit(self):
        self.build("--batch", "1")
        bad = self.dir / "bad.npy"
        write_npy(bad, (1, 1, 8, 7), [0] * 56)
        at = ("run", self.plan, "--threads", 1, "--input")
        self.assertIn("the model wants", self.run_it(*at, f"image={bad}", code=1))
        write_npy(bad, (1, 1, 8, 8), [0] * 64, "i", "<i4")
        self.assertIn("the model wants", self.run_it(*at, f"image={bad}", code=1))
        self.assertIn("it has 'image' (did you mean 'image'?)",
                      self.run_it(*at, f"imgae={bad}", code=1))
        self.assertIn("it has 'probabilities'\n",
                      self.run_it(*at[:-1], "--check", f"y={bad}", code=1))
        write_npy(bad, (0, 1, 8, 8), [])
        self.assertIn("no instances: dimension 0 counts them, and is 0",
                      self.run_it(*at, f"image={bad}", code=1))
        self.run_it(*at, "image=/nowhere.npy", code=1)
        self.run_it(*at, "image", code=1)

    def test_another_devices_plan(self):
        self.build("--batch", "1")
        text = self.run_it("run", self.plan, "--threads", 2, code=1)
        self.assertIn("build it again", text)

    def test_bench(self):
        self.build("--batch", "1,4")
        text = self.run_it("bench", self.plan, "--threads", 1, "--batch", 4, "--contexts", 2,
                           "--seconds", 0.2, "--json", "--layers", "--memory")
        result = json.loads(text)
        for key in ("batch", "contexts", "throughput", "p50_us", "p99_us"):
            self.assertIn(key, result)
        self.assertEqual((result["batch"], result["contexts"]), (4, 2))
        self.assertGreater(result["throughput"], 0)
        self.assertGreaterEqual(result["p99_us"], result["p50_us"])
        self.assertGreater(len(result["layers"]), 3)
        self.assertEqual({layer["precision"] for layer in result["layers"]}, {"FP32"})
        self.assertIn("weights", [m["tag"] for m in result["memory"]])
        self.assertEqual({m["where"] for m in result["memory"]}, {"host"})
        self.run_it("bench", self.plan, "--threads", 1, "--batch", 5, code=1)

    def check_trace(self, trace, contexts, seconds):
        """Rows are named, spans in order, apart and within the run; gives the spans by row."""
        names = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["ph"] == "M"}
        self.assertEqual(sorted(names.values()), sorted(
            f"context {c}: {row}" for c in range(contexts)
            for row in ("input copy", "compute", "output copy", "layers")))
        rows = {name: [] for name in names.values()}
        for event in trace["traceEvents"]:
            if event["ph"] == "X":
                rows[names[event["tid"]]].append((event["ts"], event["ts"] + event["dur"], event))
        for name, spans in rows.items():
            before = 0
            for begin, end, event in spans:
                self.assertGreaterEqual(begin, before - 0.01, (name, event))
                self.assertGreaterEqual(end, begin, (name, event))
                before = end
            self.assertLess(before, (seconds + 10) * 1e6, name)
        return rows

    def test_bench_trace(self):
        self.build("--batch", "1,4")
        path = self.dir / "trace.json"
        at = ("bench", self.plan, "--threads", 1, "--batch", 4, "--seconds", 0.1, "--trace", path)
        result = json.loads(self.run_it(*at, "--contexts", 2, "--layers", "--json"))
        rows = self.check_trace(json.loads(path.read_text()), 2, 0.1)
        for c in range(2):
            inputs, compute, outputs, layers = (
                rows[f"context {c}: {row}"]
                for row in ("input copy", "compute", "output copy", "layers"))
            self.assertGreater(len(compute), 0)
            self.assertEqual((len(inputs), len(outputs)), (len(compute), len(compute)))
            self.assertEqual(len(layers), len(compute) * len(result["layers"]))
            for i, k, o in zip(inputs, compute, outputs):
                self.assertLessEqual(i[1], k[0] + 0.01)
                self.assertLessEqual(k[1], o[0] + 0.01)
            self.assertGreaterEqual(layers[0][0], compute[0][0] - 0.01)
            self.assertLessEqual(layers[-1][1], compute[-1][1] + 0.01)
            self.assertEqual([s[2]["name"] for s in layers[:len(result["layers"])]],
                             [layer["name"] for layer in result["layers"]])
        batches = result["throughput"] * result["seconds"] / 4
        self.assertAlmostEqual(sum(len(rows[f"context {c}: compute"]) for c in range(2)), batches,
                               delta=0.5)
        self.run_it(*at[:-1], self.dir / "none" / "trace.json", code=1)

    def test_memory_over_time(self):
        self.build("--batch", "1,4")
        path = self.dir / "trace.json"
        for device, where in (((), {"host"}), (("--device", "fault", "--fault", "apart"),
                                               {"host", "device"})):
            at = ("bench", self.plan, *device, "--threads", 1, "--batch", 4, "--seconds", 0.05,
                  "--memory", "--trace", path)
            said = json.loads(self.run_it(*at, "--contexts", 2, "--layers", "--json"))
            events, held = said["memory_events"], {"host": 0, "device": 0}
            self.assertEqual({event["where"] for event in events}, where)
            for event in events:
                held[event["where"]] += event["bytes"]
                self.assertEqual((event["host_bytes"], event["device_bytes"]),
                                 (held["host"], held["device"]))
            self.assertEqual(sorted(e["ms"] for e in events), [e["ms"] for e in events])
            for side in held:
                self.assertEqual(said["memory_peak"][f"{side}_bytes"],
                                 max(event[f"{side}_bytes"] for event in events))
            layers = {layer["name"]: layer for layer in said["memory_layers"]}
            self.assertEqual(list(layers), [layer["name"] for layer in said["layers"]])
            arena = next(m["peak_bytes"] for m in said["memory"] if m["tag"] == "arena") / 2
            most = max(use["tensor_bytes"] + use["workspace_bytes"] for use in layers.values())
            self.assertTrue(0 < most <= arena, (most, arena))
            trace = json.loads(path.read_text())
            self.check_trace(trace, 2, 0.05)
            counters = [e for e in trace["traceEvents"] if e["ph"] == "C"]
            self.assertEqual({e["name"] for e in counters},
                             {f"{side} memory" for side in where} |
                             {f"context {c}: arena in use" for c in range(2)})
            last = [e["args"] for e in counters if e["name"] == "host memory"][-1]
            self.assertEqual(sum(last.values()), held["host"])
            self.assertEqual(most, max(sum(e["args"].values()) for e in counters
                                       if "arena" in e["name"]))
            text = self.run_it(*at)
            self.assertRegex(text, r"\n +0\.0 +\+[\d.]+  \w+ +weights ")
            self.assertRegex(text, r"\npeak: device [\d.]+ KiB, host [\d.]+ KiB\n")
            self.assertIn("of the arena most is in use at layer '", text)

    def test_bench_input_copy(self):
        self.build("--batch", "1")
        at = ("bench", self.plan, "--threads", 1, "--seconds", 0.05, "--json", "--input-copy")
        for how in ("none", "pinned"):
            result = json.loads(self.run_it(*at, how))
            self.assertEqual(result["input_copy"], how)
            for key in ("compute_p50_us", "input_p50_us", "output_p50_us", "load_ms", "ready_ms"):
                self.assertGreaterEqual(result[key], 0)
            self.assertLessEqual(result["compute_p50_us"], result["p99_us"])
        self.run_it(*at, "some", code=2)
        apart = json.loads(self.run_it(*at, "pinned", "--memory", "--device", "fault", "--fault",
                                       "apart"))
        self.assertEqual({m["tag"]: m["where"] for m in apart["memory"]},
                         {"weights": "device", "padding": "device", "arena": "device",
                          "staging": "host", "input": "host", "output": "host"})

    def test_faults(self):
        self.build("--batch", "1")
        at = ("run", self.plan, "--threads", 1, "--device", "fault", "--fault")
        self.assertIn("injected", self.run_it(*at, "launch#2:fail", code=1))
        self.assertIn("fault script", self.run_it(*at, "launch:sing", code=1))
        self.run_it(*at, "wait:delay=1ms")

    def test_token(self):
        token, line = self.run_it("token", "team-a").splitlines()
        digest = hashlib.sha256(token.encode()).hexdigest()
        self.assertRegex(token, r"^[A-Za-z0-9_-]{43}$")
        self.assertEqual(line, f"team-a sha256:{digest}")
        self.assertNotEqual(self.run_it("token", "team-a").splitlines()[0], token)
        line = self.run_it("token", "b.1", "--rights", "infer,status").splitlines()[1]
        self.assertRegex(line, r"^b\.1 sha256:[0-9a-f]{64} infer status$")

    def test_token_in_a_file(self):
        file = self.dir / "token"
        line = self.run_it("token", "a", "--output", file)
        self.assertEqual(file.stat().st_mode & 0o777, 0o600)
        token = file.read_text()
        self.assertEqual(line, f"a sha256:{hashlib.sha256(token.strip().encode()).hexdigest()}\n")
        self.run_it("token", "a", "-o", file, code=1)  # never over another one
        self.assertEqual(file.read_text(), token)

    def test_token_refused(self):
        self.run_it("token", code=2)
        self.run_it("token", "a", "b", code=2)
        for wrong in ("", ".a", "a/b", "a b", "x" * 65):
            self.assertIn("expected a name", self.run_it("token", wrong, code=1))
        for wrong in ("", "all", "infer,", "infer status"):
            self.assertIn("--rights: expected some of infer, describe, status, memory, admin",
                          self.run_it("token", "a", "--rights", wrong, code=1))

    def test_token_file_for_requests(self):
        file = self.dir / "token"
        for command in (("infer", "unix:/nowhere", "--model", "m"), ("status", "unix:/nowhere"),
                        ("load", "unix:/nowhere", "--model", "m")):
            for text in ("", "short\n", "a" * 129, "a" * 31 + " b"):
                file.write_text(text)
                self.assertIn("expected a token of 32 to 128 printable characters",
                              self.run_it(*command, "--token-file", file, code=1))
            file.write_text("a" * 43 + "\r\nmore\n")
            self.assertIn("/nowhere", self.run_it(*command, "--token-file", file, code=1))
            self.assertIn("nosuch", self.run_it(*command, "--token-file", "nosuch", code=1))
            self.run_it(*command, "--token-file", file, "--token", "x", code=2)


if __name__ == "__main__":
    INFERCTL, MODELS = sys.argv[1], pathlib.Path(sys.argv[2])
    unittest.main(argv=sys.argv[:1])
