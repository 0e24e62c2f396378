#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Quantised operators, run by a tuned plan, against numpy: check_quantised.py INFERCTL

Integer results must be equal. Where a real number is rounded to an integer, it may lie on either
side of a half: such elements may differ by one, and there must be few of them.
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

INFERCTL = sys.argv.pop(1)


def run(nodes, inputs, constants, outputs, opset=21):
    """The outputs of a graph, by inferctl run."""
    info = [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for k, v in inputs.items()]
    out = [helper.make_tensor_value_info(k, t, None) for k, t in outputs.items()]
    held = [v if isinstance(v, TensorProto) else numpy_helper.from_array(np.asarray(v), k)
            for k, v in constants.items()]
    graph = helper.make_graph(nodes, "q", info, out, held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        onnx.save(model, root / "m.onnx")
        args = [INFERCTL, "run", root / "m.onnx", "--output", root / "out"]
        for name, value in inputs.items():
            np.save(root / f"{name}.npy", value)
            args += ["--input", f"{name}={root / name}.npy"]
        done = subprocess.run(args, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return [np.load(root / "out" / f"{name}.npy") for name in outputs]


def saturated(x, dtype):
    return np.clip(x, np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype)


def conv(x, w, pads, stride, group, bias=None):
    """INT64 sums; x and w without their zero points."""
    x = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (pads, pads), (pads, pads)))
    k = w.shape[2]
    rows = (x.shape[2] - k) // stride + 1
    cols = (x.shape[3] - k) // stride + 1
    y = np.zeros((x.shape[0], w.shape[0], rows, cols), np.int64)
    per, out = w.shape[1], w.shape[0] // group
    for m in range(w.shape[0]):
        part = x[:, m // out * per:(m // out + 1) * per]
        for i in range(k):
            for j in range(k):
                seen = part[:, :, i:i + rows * stride:stride, j:j + cols * stride:stride]
                y[:, m] += (seen * w[m, :, i, j].astype(np.int64)[None, :, None, None]).sum(1)
    return y if bias is None else y + bias[None, :, None, None]


class Products(unittest.TestCase):
    def setUp(self):
        self.random = np.random.default_rng(7)

    def integers(self, dtype, *shape):
        return self.random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, True)

    def close(self, have, want):
        self.assertEqual((have.dtype, have.shape), (want.dtype, want.shape))
        off = np.abs(have.astype(np.int64) - want.astype(np.int64))
        self.assertLessEqual(off.max(initial=0), 1)
        self.assertLessEqual((off > 0).mean(), 0.002)

    def test_matmul_integer(self):
        for a_type, b_type, b_zero, known in [(np.uint8, np.int8, 0, True),
                                              (np.uint8, np.uint8, 128, True),
                                              (np.uint8, np.uint8, 101, True),
                                              (np.int8, np.int8, -77, True),
                                              (np.int8, np.int8, 3, False),
                                              (np.uint8, np.uint8, 7, False)]:
            a, b = self.integers(a_type, 2, 9, 40), self.integers(b_type, 40, 24)
            za, zb = self.integers(a_type, 1)[0], np.asarray(b_zero, b_type)
            want = np.matmul(a.astype(np.int64) - int(za), b.astype(np.int64) - b_zero)
            inputs, constants = {"a": a}, {"za": za, "zb": zb}
            (constants if known else inputs)["b"] = b
            node = helper.make_node("MatMulInteger", ["a", "b", "za", "zb"], ["y"])
            y, = run([node], inputs, constants, {"y": TensorProto.INT32})
            np.testing.assert_array_equal(y, want.astype(np.int32))

    def test_long_sums_are_exact(self):
        """Sums far beyond what fp32 holds, of numbers at both ends."""
        for rows, depth, columns in [(1, 1300, 3), (70, 512, 300), (33, 513, 65)]:
            a = np.full((rows, depth), 255, np.uint8)
            a[::2] = self.integers(np.uint8, *a[::2].shape)
            b = np.full((depth, columns), -128, np.int8)
            b[:, ::2] = self.integers(np.int8, *b[:, ::2].shape)
            for zero in ("known", "given"):
                za = np.asarray(0 if zero == "known" else 3, np.uint8)
                node = helper.make_node("MatMulInteger", ["a", "b", "za"], ["y"])
                held, given = {"b": b}, {"a": a}
                (held if zero == "known" else given)["za"] = za
                y, = run([node], given, held, {"y": TensorProto.INT32})
                want = (a.astype(np.int64) - int(za)) @ b.astype(np.int64)
                np.testing.assert_array_equal(y, want.astype(np.int32))

    def test_zero_points_of_rows_and_columns(self):
        for dtype, part in [(np.int8, 2), (np.int8, 1), (np.uint8, 1)]:
            a, b = self.integers(np.uint8, 6, 16), self.integers(dtype, 16, 5) // part
            za, zb = self.integers(np.uint8, 6), self.integers(dtype, 5) // part
            want = (a.astype(np.int64) - za[:, None]) @ (b.astype(np.int64) - zb)
            node = helper.make_node("MatMulInteger", ["a", "b", "za", "zb"], ["y"])
            y, = run([node], {"a": a}, {"b": b, "za": za, "zb": zb}, {"y": TensorProto.INT32})
            np.testing.assert_array_equal(y, want.astype(np.int32))

    def test_weights_with_a_wide_zero_point(self):
        """Differences of nine bits, in a batch of products, the other zero point known or not."""
        a, b = self.integers(np.uint8, 3, 6, 16), self.integers(np.uint8, 3, 16, 5)
        for za in (0, 9):
            want = (a.astype(np.int64) - za) @ (b.astype(np.int64) - 60)
            held = {"b": b, "zb": np.asarray(60, np.uint8), "za": np.asarray(za, np.uint8)}
            for given in ((), ("za",)):
                node = helper.make_node("MatMulInteger", ["a", "b", "za", "zb"], ["y"])
                inputs = {"a": a, **{name: held[name] for name in given}}
                constants = {name: x for name, x in held.items() if name not in given}
                y, = run([node], inputs, constants, {"y": TensorProto.INT32})
                np.testing.assert_array_equal(y, want.astype(np.int32))

    def test_conv_integer(self):
        each = self.integers(np.uint8, 12)
        for x_type, group, stride, known, w_type, zw in [
                (np.uint8, 1, 1, True, np.int8, 0), (np.uint8, 4, 2, True, np.int8, 0),
                (np.int8, 1, 2, True, np.int8, 0), (np.uint8, 1, 1, False, np.int8, 0),
                (np.int8, 4, 1, True, np.int8, 0), (np.uint8, 2, 2, True, np.int8, 0),
                (np.uint8, 1, 1, True, np.uint8, 77), (np.uint8, 1, 2, False, np.uint8, 77),
                (np.int8, 4, 1, False, np.uint8, 200), (np.uint8, 4, 2, True, np.int8, -90),
                (np.uint8, 1, 1, False, np.uint8, each), (np.uint8, 2, 1, True, np.uint8, each)]:
            x, w = self.integers(x_type, 2, 8, 11, 9), self.integers(w_type, 12, 8 // group, 3, 3)
            zx, zw = self.integers(x_type, 1)[0], np.asarray(zw, w_type)
            less = w.astype(np.int64) - zw.reshape(-1, 1, 1, 1)
            want = conv(x.astype(np.int64) - int(zx), less, 1, stride, group)
            node = helper.make_node("ConvInteger", ["x", "w", "zx", "zw"], ["y"], group=group,
                                    pads=[1, 1, 1, 1], strides=[stride, stride])
            inputs, constants = {"x": x}, {"w": w, "zw": zw}
            (constants if known else inputs)["zx"] = zx.reshape(())
            y, = run([node], inputs, constants, {"y": TensorProto.INT32})
            np.testing.assert_array_equal(y, want.astype(np.int32))

    def test_qlinear_conv(self):
        for w_type, zw, stride in [(np.int8, 0, 1), (np.uint8, 130, 2)]:
            x, w = self.integers(np.uint8, 1, 16, 12, 12), self.integers(w_type, 24, 16, 3, 3)
            if w_type == np.uint8:
                w = np.clip(w, 10, 250)
            bias = self.random.integers(-5000, 5000, 24, np.int32)
            sw = self.random.uniform(0.001, 0.01, 24).astype(np.float32)
            sx, sy, zx, zy = np.float32(0.04), np.float32(0.3), np.uint8(113), np.uint8(121)
            acc = conv(x.astype(np.int64) - zx, w.astype(np.int64) - zw, 1, stride, 1, bias)
            real = acc * (sx.astype(np.float64) * sw / sy)[None, :, None, None]
            names = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "b"]
            node = helper.make_node("QLinearConv", names, ["y"], pads=[1, 1, 1, 1],
                                    strides=[stride, stride])
            held = {"sx": sx, "zx": zx, "w": w, "sw": sw, "b": bias, "sy": sy, "zy": zy,
                    "zw": np.asarray(zw, w_type)}
            y, = run([node], {"x": x}, held, {"y": TensorProto.UINT8})
            self.close(y, saturated(np.rint(real) + zy, np.uint8))

    def test_qlinear_matmul(self):
        a, b = self.integers(np.int8, 7, 64), self.integers(np.int8, 64, 33)
        sa, sy = self.random.uniform(0.01, 0.05, 7).astype(np.float32), np.float32(2)
        sb = self.random.uniform(0.01, 0.05, 33).astype(np.float32)
        za, zb, zy = np.zeros(7, np.int8), np.zeros(33, np.int8), np.int8(-4)
        names = ["a", "sa", "za", "b", "sb", "zb", "sy", "zy"]
        node = helper.make_node("QLinearMatMul", names, ["y"])
        y, = run([node], {"a": a}, {"sa": sa, "za": za, "b": b, "sb": sb, "zb": zb, "sy": sy,
                                    "zy": zy}, {"y": TensorProto.INT8})
        real = a.astype(np.int64) @ b.astype(np.int64) * (sa[:, None].astype(np.float64) * sb / sy)
        self.close(y, saturated(np.rint(real) + zy, np.int8))


class Linear(unittest.TestCase):
    def test_blocks(self):
        random = np.random.default_rng(3)
        for axis, block in [(0, 2), (1, 3), (-1, 4)]:
            x = random.normal(0, 10, (5, 7, 9)).astype(np.float32)
            shape = list(x.shape)
            shape[axis] = -(-shape[axis] // block)
            scale = random.uniform(0.1, 1, shape).astype(np.float32)
            zero = random.integers(-30000, 30000, shape, np.int16)

            def spread(v):
                whole = np.repeat(v, block, axis)
                return np.take(whole, range(x.shape[axis]), axis)

            args = {"axis": axis, "block_size": block}
            nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **args),
                     helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **args)]
            q, y = run(nodes, {"x": x}, {"s": scale, "z": zero},
                       {"q": TensorProto.INT16, "y": TensorProto.FLOAT})
            want = saturated(np.rint(x / spread(scale)) + spread(zero), np.int16)
            np.testing.assert_array_equal(q, want)
            np.testing.assert_array_equal(
                y, (want.astype(np.float32) - spread(zero)) * spread(scale))

    def test_types(self):
        random = np.random.default_rng(4)
        x = random.normal(0, 20, (4, 6)).astype(np.float32)
        for dtype in (np.int8, np.uint8, np.int16, np.uint16):
            zero = np.asarray(np.iinfo(dtype).max // 3, dtype)
            node = helper.make_node("QuantizeLinear", ["x", "s"], ["q"],
                                    output_dtype=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
            other = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["p"])
            tensor = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
            q, p = run([node, other], {"x": x}, {"s": np.float32(0.25), "z": zero},
                       {"q": tensor, "p": tensor})
            np.testing.assert_array_equal(q, saturated(np.rint(x / 0.25), dtype))
            np.testing.assert_array_equal(p, saturated(np.rint(x / 0.25) + int(zero), dtype))

    def test_narrow_weights(self):
        """4-bit integers and 8-bit floats as constants: all values of each."""
        x = np.ones((2, 1), np.float32)
        rows = [(TensorProto.INT4, np.arange(-8, 8)), (TensorProto.UINT4, np.arange(16))]
        rows += [(t, np.arange(256)) for t in (TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ,
                                              TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ)]
        for kind, values in rows:
            n = len(values) - 1  # an odd number of nibbles
            if n < 16:
                raw = bytes((int(values[i]) & 15) | (int(values[i + 1]) & 15) << 4
                            for i in range(0, n, 2))
                want = values[:n].astype(np.float32)
            else:
                raw = bytes(range(n))
                want = np.frombuffer(raw, np.uint8).view(
                    helper.tensor_dtype_to_np_dtype(kind)).astype(np.float32)
                raw = bytes(b for b, v in zip(raw, want) if np.isfinite(v))
                want = want[np.isfinite(want)]
                n = len(want)
            held = TensorProto(name="w", data_type=kind, dims=[1, n], raw_data=raw)
            nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["d"]),
                     helper.make_node("MatMul", ["x", "d"], ["y"])]
            y, = run(nodes, {"x": x}, {"w": held, "s": np.float32(0.5)}, {"y": TensorProto.FLOAT})
            np.testing.assert_array_equal(y, np.stack([want / 2] * 2))

    def test_floats_of_eight_bits(self):
        """Q and DQ of E4M3FN: around a product by constant weights, with a zero point that says
        only the type, through a transpose, and by casts."""
        f8 = helper.tensor_dtype_to_np_dtype(TensorProto.FLOAT8E4M3FN)
        rng = np.random.default_rng(8)
        x = (rng.standard_normal((5, 32)) * 4).astype(np.float32)
        x[0, :4] = 1000, -1000, 1e-4, 0
        w = (rng.standard_normal((32, 16)) * 3).astype(f8)
        raw = TensorProto(name="w", data_type=TensorProto.FLOAT8E4M3FN, dims=w.shape,
                          raw_data=w.tobytes())
        zero = TensorProto(name="z", data_type=TensorProto.FLOAT8E4M3FN, dims=[], raw_data=b"\0")
        steps = np.linspace(0.5, 2, 16).astype(np.float32)
        nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
                 helper.make_node("Transpose", ["q"], ["t"], perm=[1, 0]),
                 helper.make_node("DequantizeLinear", ["t", "s", "z"], ["d"]),
                 helper.make_node("DequantizeLinear", ["w", "steps"], ["v"], axis=1),
                 helper.make_node("Transpose", ["d"], ["r"], perm=[1, 0]),
                 helper.make_node("MatMul", ["r", "v"], ["y"]),
                 helper.make_node("Cast", ["x"], ["c"], to=TensorProto.FLOAT8E4M3FN),
                 helper.make_node("Cast", ["c"], ["k"], to=TensorProto.FLOAT)]
        y, k = run(nodes, {"x": x}, {"w": raw, "z": zero, "s": np.float32(0.125), "steps": steps},
                   {"y": TensorProto.FLOAT, "k": TensorProto.FLOAT})
        near = np.clip(x / np.float32(0.125), -448, 448).astype(f8).astype(np.float32) * 0.125
        np.testing.assert_allclose(y, near @ (w.astype(np.float32) * steps), rtol=1e-5, atol=1e-4)
        np.testing.assert_array_equal(k, np.clip(x, -448, 448).astype(f8).astype(np.float32))


if __name__ == "__main__":
    unittest.main()
