#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plugins as others make them: compiled against the installed header, named on the command line.

    test_plugin.py BUILD INFERD INFERCTL ROOT SANITIZE CC CXX

Models come from the package onnx; without it the test is skipped.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper
except ImportError:
    print("SKIP: numpy and onnx are not installed")
    sys.exit(77)

import installed

BUILD, INFERD, INFERCTL, ROOT = map(os.path.abspath, sys.argv[1:5])
SANITIZE, CC, CXX = sys.argv[5], sys.argv[6].split(), sys.argv[7].split()
NVCC = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
sys.path.insert(0, os.path.join(ROOT, "tests/integration"))
import serving  # noqa: E402  (needs the path)

EXAMPLE = pathlib.Path(ROOT, "engine/plugin/examples/window_energy.c")
CUDA = EXAMPLE.with_name("peak_scale.cu")
BAD = pathlib.Path(ROOT, "tests/library/bad_plugin.c")
os.environ.pop("LD_LIBRARY_PATH", None)  # it names the build folder's library
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-shared", "-fPIC", "-O2"]
UNTUNED = ["--no-tune", "--timing-cache", ""]


def run(*command, code=0):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=120, check=False)
    if done.returncode != code:
        raise AssertionError(f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def save(path, nodes, inputs, outputs, domain):
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))


def value(name, dtype, shape):
    return helper.make_tensor_value_info(name, dtype, shape)


def energy_model(path, **attributes):
    made = {"size": 8, "stride": 2, **attributes}
    example = {"domain": "example.inferd"}
    save(path, [helper.make_node("Relu", ["x"], ["a"]),
                helper.make_node("WindowEnergy", ["a"], ["b", "p0"], **example, **made),
                helper.make_node("Sqrt", ["b"], ["e"]),
                helper.make_node("Rank", ["p0"], ["r"], order="descending", **example),
                helper.make_node("Relu", ["p0"], ["p"])],
         [value("x", TensorProto.FLOAT, ["n", 4, 64])],
         [value("e", TensorProto.FLOAT, None), value("p", TensorProto.FLOAT, None),
          value("r", TensorProto.INT32, None)], "example.inferd")


def energy(x, size=8, stride=2):
    """What the model computes."""
    a = np.maximum(x, 0).astype(np.float64)
    b = np.stack([np.mean(a[..., i:i + size] ** 2, axis=-1)
                  for i in range(0, a.shape[-1] - size + 1, stride)], axis=-1)
    peak = b.max(axis=-1)
    return {"e": np.sqrt(b), "p": peak, "r": np.argsort(np.argsort(-peak, axis=-1, kind="stable"))}


class Plugins(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        cls.tree = installed.Tree(BUILD, cls.root / "tree", r"inferd-engine|inferd_\w+\.h$")
        header = cls.tree.find("inferd_plugin.h").parent
        cls.include = [f"-I{header}"]
        cls.example = cls.plugin("example.so", EXAMPLE, [*CC, "-std=c99"])
        cls.model = cls.root / "energy.onnx"
        energy_model(cls.model)
        cls.plan = cls.root / "energy.plan"
        run(INFERCTL, "build", cls.model, "-o", cls.plan, "--batch", "1,4", "--plugin",
            cls.example, "--timing-cache", "")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def plugin(cls, name, source, compiler, *flags):
        return installed.compile_program([*compiler, *STRICT], source, cls.root / name,
                                         *cls.include, *flags)

    def outputs(self, plan, x, *options):
        np.save(self.root / "x.npy", x)
        out = self.root / "out"
        run(INFERCTL, "run", plan, "--input", f"x={self.root}/x.npy", "--output", out, *options)
        return {path.stem: np.load(path) for path in out.glob("*.npy")}

    def agrees(self, got, x):
        for name, expected in energy(x).items():
            np.testing.assert_allclose(got[name], expected, rtol=1e-5, atol=1e-6)

    def test_an_op_of_ones_own_is_imported_tuned_and_run(self):
        x = np.random.default_rng(7).normal(size=(3, 4, 64)).astype(np.float32)
        self.agrees(self.outputs(self.plan, x, "--plugin", self.example), x)
        said = run(INFERCTL, "inspect", self.plan, "--plugin", self.example)
        self.assertRegex(said, r"plugin +FP32 .*(plugin window-energy\.sliding|reference) ")
        self.assertIn("supported", run(INFERCTL, "inspect", self.model, "--plugin", self.example))

    def test_every_kernel_gives_the_same(self):
        x = np.random.default_rng(8).normal(size=(2, 4, 64)).astype(np.float32)
        for option in ([], ["--reference-only"]):
            plan = self.root / "one.plan"
            run(INFERCTL, "build", self.model, "-o", plan, "--batch", "2", "--plugin",
                self.example, *UNTUNED, *option)
            self.agrees(self.outputs(plan, x, "--plugin", self.example, *option), x)

    def test_both_kernels_are_timed(self):
        said = run(INFERCTL, "build", self.model, "-o", self.root / "v.plan", "--batch", "4",
                   "--plugin", self.example, "--timing-cache", "", "-vvv")
        for kernel in ("plugin window-energy.sliding", "reference"):
            self.assertRegex(said, rf"plugin '\w+' [^:]*: {re.escape(kernel)}: [\d.]+ us")

    def test_a_plugin_in_cpp(self):
        if not shutil.which(CXX[0]):
            self.skipTest("no C++ compiler")
        plugin = self.plugin("cpp.so", EXAMPLE, [*CXX, "-x", "c++", "-std=c++11"])
        x = np.ones((1, 4, 64), np.float32)
        run(INFERCTL, "build", self.model, "-o", self.root / "cpp.plan", "--batch", "1",
            "--plugin", plugin, *UNTUNED)
        self.agrees(self.outputs(self.root / "cpp.plan", x, "--plugin", plugin), x)

    @unittest.skipUnless(NVCC, "no nvcc")
    def test_a_plugin_for_cuda_runs_without_a_gpu(self):
        plugin, model, plan = (self.root / f"peak.{end}" for end in ("so", "onnx", "plan"))
        run(NVCC, "-shared", "-Xcompiler", "-fPIC,-Wall,-Wextra,-Werror", "-O2", *self.include,
            CUDA, "-o", plugin)
        save(model, [helper.make_node("PeakScale", ["x"], ["y", "p"], domain="example.inferd",
                                      to=2.0)],
             [value("x", TensorProto.FLOAT, ["n", 3, 5])],
             [value("y", TensorProto.FLOAT, None), value("p", TensorProto.FLOAT, None)],
             "example.inferd")
        run(INFERCTL, "build", model, "-o", plan, "--batch", "4", "--plugin", plugin,
            "--timing-cache", "")
        x = np.random.default_rng(10).normal(size=(4, 3, 5)).astype(np.float32)
        got, peak = self.outputs(plan, x, "--plugin", plugin), np.abs(x).max(axis=(1, 2))
        np.testing.assert_array_equal(got["p"], peak)
        np.testing.assert_allclose(got["y"], x * (2 / peak)[:, None, None], rtol=1e-6)

    def test_a_plan_needs_the_plugin_it_was_built_with(self):
        said = run(INFERCTL, "run", self.plan, code=1)
        self.assertRegex(said, r"needs the plugin 'window-energy' version 1\.0 \(digest "
                               r"[0-9a-f]{32}\), which is not loaded: name its file")
        source = EXAMPLE.read_text()
        newer = self.root / "newer.c"
        for old, new, what in (('"1.0"', '"1.1"', r"loaded is version 1\.1"),
                               ("double most = 0", "double most = -1", "loaded is version 1.0")):
            newer.write_text(source.replace(old, new))
            other = self.plugin("newer.so", newer, [*CC, "-std=c99"])
            said = run(INFERCTL, "run", self.plan, "--plugin", other, code=1)
            self.assertRegex(said, what)
            self.assertIn("build the plan again", said)
        run(INFERCTL, "run", self.plan, "--plugin", other, "--plugin", self.example, code=1)

    def test_nodes_that_the_plugin_refuses(self):
        model = self.root / "refused.onnx"
        energy_model(model, size=65)
        said = run(INFERCTL, "build", model, "-o", self.root / "r.plan", "--plugin", self.example,
                   *UNTUNED, code=1)
        self.assertIn("size 65 and stride 2 do not fit a dimension of 64", said)
        tensor = helper.make_tensor("t", TensorProto.FLOAT, [1], [1.0])
        for attributes, reason in (
                ({"size": [1] * 600}, "larger than 4096 bytes"),
                ({"table": tensor}, "attribute 'table': plugins get numbers and texts alone"),
                ({f"a{i}": i for i in range(31)}, "33 attributes, at most 32")):
            with self.subTest(reason):
                energy_model(model, **attributes)
                said = run(INFERCTL, "build", model, "-o", self.root / "r.plan",
                           "--plugin", self.example, *UNTUNED, code=1)
                self.assertIn(reason, said)
        said = run(INFERCTL, "build", self.model, "-o", self.root / "r.plan", *UNTUNED, code=1)
        self.assertIn("unsupported", said)
        self.assertIn("no plugin has it", said)

    def test_what_is_no_plugin(self):
        text = self.root / "text.so"
        text.write_text("no ELF")
        library = self.tree.find(r"libinferd-engine\.so\.\d+\.\d+\.\d+")
        for path, reason in ((self.root / "nowhere.so", "No such file"), (text, "does not load"),
                             (library, "it is no plugin")):
            if path == library and SANITIZE != "none":
                continue
            self.assertIn(reason, run(INFERCTL, "run", self.plan, "--plugin", path, code=1))

    def bad(self, fault):
        return self.plugin(f"{fault}.so", BAD, [*CC, "-std=c11"], f"-DFAULT={fault}")

    def test_a_faulty_table_is_refused(self):
        for fault, reason in (("ABI", "has ABI 2, expected 1"), ("OP_SIZE", "op_size"),
                              ("NAME", "name or version"), ("NO_OPS", "no ops"),
                              ("NO_KERNELS", "without kernels"), ("NO_RUN", "a function"),
                              ("DOMAIN_", "ONNX's own domain"), ("ON_DEVICE", "runs on the CPU"),
                              ("TWICE", "two ops have the same name"),
                              ("FLAGS", "flags that this version does not know")):
            with self.subTest(fault):
                said = run(INFERCTL, "run", self.plan, "--plugin", self.bad(fault), code=1)
                self.assertIn(reason, said)
                self.assertEqual(len(said.strip().split("\n")), 1)

    def test_faulty_answers_are_refused(self):
        model, plan = self.root / "copy.onnx", self.root / "copy.plan"
        save(model, [helper.make_node("Copy", ["x"], ["y0"], domain="test.bad"),
                     helper.make_node("Relu", ["y0"], ["y"])],
             [value("x", TensorProto.FLOAT, ["n", 16])], [value("y", TensorProto.FLOAT, None)],
             "test.bad")
        for fault, reason in (("OUTPUTS", "more than 4"), ("RANK", "more than 8 dimensions"),
                              ("NEGATIVE", "dimension below 0"), ("HUGE_", "too large"),
                              ("TYPE", "no type"), ("REFUSES", "does not like\\x0athis node"),
                              ("CHANGES", ""), ("LONG_WHY", "xxx"), ("WORKSPACE", "")):
            with self.subTest(fault):
                said = run(INFERCTL, "build", model, "-o", plan, "--batch", "1,2", "--plugin",
                           self.bad(fault), *UNTUNED, code=1)
                self.assertIn(reason, said)
        for fault, batched in (("NONE", True), ("MIXES", False)):
            plugin = self.bad(fault)
            run(INFERCTL, "build", model, "-o", plan, "--plugin", plugin, *UNTUNED)
            said = run(INFERCTL, "inspect", plan, "--plugin", plugin)
            self.assertEqual("not batched" not in said, batched)
        plugin = self.bad("FAILS")
        run(INFERCTL, "build", model, "-o", plan, "--batch", "1", "--plugin", plugin, *UNTUNED)
        self.assertIn("out of luck", run(INFERCTL, "run", plan, "--plugin", plugin, code=1))

    def served(self, config, *models):
        path = self.root / "inferd.yaml"
        path.write_text(config)
        x = np.random.default_rng(9).normal(size=(2, 4, 64)).astype(np.float32)
        np.save(self.root / "x.npy", x)
        with serving.inferd(INFERD, "--config", path, *models,
                            env={"XDG_CACHE_HOME": str(self.root / "cache")}) as address:
            run(INFERCTL, "infer", address, "--model", "energy", "--input",
                f"x={self.root}/x.npy", "--output", self.root / "served")
        self.agrees({path.stem: np.load(path) for path in (self.root / "served").glob("*.npy")}, x)

    def test_the_daemon_serves_plans_and_builds_models(self):
        config = f"plugins: [{self.example}]\n"
        self.served(config, f"energy={self.plan}")
        self.served(config, f"energy={self.model}")  # its build child has the plugin, too
        self.served(config, f"energy={self.model}")  # from its cache

    def test_the_library_runs_such_plans(self):
        flags = self.tree.flags("inferd-engine")
        if SANITIZE != "none":
            flags.append(f"-fsanitize={SANITIZE}")
        source = self.root / "with_plugin.c"
        source.write_text(pathlib.Path(ROOT, "engine/library/examples/run_plan.c").read_text()
                          .replace("options.log_level =",
                                   "const char *files[] = {PLUGIN};\n    options.plugins = files;"
                                   "\n    options.n_plugins = 1;\n    options.log_level ="))
        for file, code in ((self.example, 0), (self.root / "no.so", 1)):
            program = installed.compile_program([*CC, "-std=c99"], source, self.root / "lib",
                                                *flags, f'-DPLUGIN="{file}"')
            self.assertIn("" if code else "r INT32:", run(program, self.plan, "cpu", code=code))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
