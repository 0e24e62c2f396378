#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of fuzz_onnx: a small model for each family of ops, and a few odd files.

    make_onnx_seeds.py FOLDER      (needs the onnx package)
"""
import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper

F, I, B = T.FLOAT, T.INT64, T.BOOL


def tensor(name, values, dtype):
    return numpy_helper.from_array(np.array(values, dtype=dtype), name)


def ints(name, *values):
    return tensor(name, values, np.int64)


def floats(name, shape):
    return numpy_helper.from_array(np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32)
                                   .reshape(shape), name)


def model(nodes, inputs, outputs=("y",), constants=(), opset=17, out_type=F):
    values = [h.make_tensor_value_info(n, t, s) for n, t, s in inputs]
    results = [h.make_tensor_value_info(o, out_type, None) for o in outputs]
    graph = h.make_graph(nodes, "g", values, results, list(constants))
    return h.make_model(graph, opset_imports=[h.make_opsetid("", opset)])


IMAGE, MATRIX = [("x", F, ["batch", 3, 8, 8])], [("x", F, ["batch", 4])]
W, V = floats("w", (6, 3, 3, 3)), floats("v", (3, 6, 3, 3))
C = [floats(n, (3,)) for n in "sbmv"]


def node(op, ins="x", outs="y", **attrs):
    return h.make_node(op, ins.split(" "), outs.split(" "), **attrs)


def of_ms(nodes, inputs, outputs=("y",), constants=()):
    """What onnxruntime's optimisers write."""
    for made in nodes:
        made.domain = "com.microsoft"
    made = model(nodes, inputs, outputs, constants)
    made.opset_import.append(h.make_opsetid("com.microsoft", 1))
    return made


def chain(*ops, end="y"):
    names = ["x"] + [f"t{i}" for i in range(len(ops) - 1)] + [end]
    return [node(op, names[i], names[i + 1]) for i, op in enumerate(ops)]


ROWS = [("x", F, [2, 5, 8])]
ANGLES = [floats("c", (9, 2)), floats("s", (9, 2))]

MODELS = {
    "ms_attention": of_ms([node("Attention", "x w b m p", "y o", num_heads=2, unidirectional=1)],
                          ROWS + [("m", T.INT32, [2, 8]), ("p", F, [2, 2, 2, 3, 4])], ("y", "o"),
                          [floats("w", (8, 24)), floats("b", (24,))]),
    "ms_multi_head": of_ms([node("MultiHeadAttention", "x k v b m", num_heads=2)],
                           ROWS + [("k", F, [2, 7, 8]), ("v", F, [2, 7, 8]), ("m", T.INT32, [2])],
                           constants=[floats("b", (24,))]),
    "ms_grouped": of_ms([node("GroupQueryAttention", "x k v p q l t c s", "y n o", num_heads=2,
                              kv_num_heads=1, do_rotary=1, local_window_size=4)],
                        [("x", F, [2, 1, 8]), ("k", F, [2, 1, 4]), ("v", F, [2, 1, 4]),
                         ("p", F, [2, 1, 6, 4]), ("q", F, [2, 1, 6, 4]), ("l", T.INT32, [2])],
                        ("y", "n", "o"), [tensor("t", 5, np.int32), *ANGLES]),
    "ms_rotary": of_ms([node("RotaryEmbedding", "x i c s", interleaved=1, num_heads=2,
                             rotary_embedding_dim=4)], ROWS + [("i", I, [2, 5])],
                       constants=ANGLES),
    "ms_embed": of_ms([node("EmbedLayerNormalization", "i  w p  g b m", "y n e")],
                      [("i", T.INT32, [2, 5]), ("m", T.INT32, [2, 5])], ("y", "e"),
                      [floats("w", (9, 8)), floats("p", (6, 8)), floats("g", (8,)),
                       floats("b", (8,))]),
    "ms_skip": of_ms([node("SkipLayerNormalization", "x x g g g", "t   u"),
                      node("SkipSimplifiedLayerNormalization", "t u g", "v"),
                      node("BiasGelu", "v g", "y")], ROWS, constants=[floats("g", (8,))]),
    "ms_fused": of_ms([node("FusedConv", "x w", "t", activation="Clip", pads=[1] * 4,
                            activation_params=[0.0, 6.0]),
                       node("GroupNorm", "t g g", "u", groups=2, activation=1, channels_last=0),
                       node("FusedMatMul", "u u", "y", transBatchA=1, transBatchB=1, transB=1,
                            alpha=0.5)],
                      [("x", F, [1, 3, 8, 8])], constants=[W, floats("g", (6,))]),
    "onnx_attention": model([node("Attention", "x x x m  ", "y k v q", q_num_heads=2,
                                  kv_num_heads=2, is_causal=1, softcap=2.0,
                                  qk_matmul_output_mode=3)], ROWS + [("m", B, [5, 4])],
                            ("y", "k", "v", "q"), opset=23),
    "conv": model([node("Conv", "x w", pads=[1, 0, 0, 1], strides=[2, 1], dilations=[1, 1])],
                  IMAGE, constants=[W]),
    "conv_same": model([node("Conv", "x w", auto_pad="SAME_LOWER")], IMAGE, constants=[W]),
    "deconv": model([node("ConvTranspose", "x v", output_shape=[17, 16], strides=[2, 2])], IMAGE,
                    constants=[V]),
    "pool": model([node("MaxPool", "x", "t", kernel_shape=[2, 2], ceil_mode=1),
                   node("AveragePool", "t", "u", kernel_shape=[2, 2], count_include_pad=1),
                   node("GlobalAveragePool", "u", "y")], IMAGE),
    "norm": model([node("BatchNormalization", "x s b m v", "t"),
                   node("InstanceNormalization", "t s b", "u"), node("LRN", "u", "y", size=3)],
                  IMAGE, constants=C),
    "layer_norm": model([node("LayerNormalization", "x s", "y mean")], MATRIX, ("y", "mean"),
                        constants=[floats("s", (4,))]),
    "gemm": model([node("Gemm", "x w b", transB=1, alpha=0.5, beta=2.0)], MATRIX,
                  constants=[floats("w", (5, 4)), floats("b", (5,))]),
    "matmul": model([node("MatMul", "x w")], MATRIX, constants=[floats("w", (4,))]),
    "unary": model(chain("Relu", "Sigmoid", "Elu", "Selu", "HardSigmoid", "Erf", "Neg"), MATRIX),
    "binary": model([node("Add", "x w", "t"), node("Pow", "t n", "u"), node("Max", "u x w", "y")],
                    MATRIX, constants=[floats("w", (4,)), tensor("n", 2, np.int64)]),
    "old_broadcast": model([node("Add", "x w", broadcast=1, axis=1)], IMAGE, opset=6,
                           constants=[floats("w", (3,))]),
    "clip": model([node("Clip", "x l h")], MATRIX,
                  constants=[tensor("l", -1, np.float32), tensor("h", 1, np.float32)]),
    "where": model([node("Greater", "x w", "c"), node("Where", "c x w", "t"),
                    node("Cast", "t", "y", to=T.DOUBLE)], MATRIX, constants=[floats("w", (1,))],
                   out_type=T.DOUBLE),
    "reduce": model([node("ReduceMean", "x", "t", axes=[-1]), node("ReduceSum", "t a", "y")],
                    IMAGE, constants=[ints("a", 1)]),
    "softmax": model([node("Softmax", "x", "t", axis=1), node("ArgMax", "t", "y", axis=-1)],
                     IMAGE, opset=11, out_type=I),
    "reshape": model([node("Shape", "x", "t"), node("Gather", "t z", "u"),
                      node("Unsqueeze", "u z1", "n"), node("Concat", "n r", "s", axis=0),
                      node("Reshape", "x s", "y")], IMAGE,
                     constants=[tensor("z", 0, np.int64), ints("z1", 0), ints("r", -1)]),
    "transpose": model([node("Transpose", "x", "t", perm=[0, 2, 3, 1]), node("Flatten", "t", "u"),
                        node("Squeeze", "u", "y")], IMAGE),
    "slice": model([node("Slice", "x a b c d", "t"), node("Split", "t", "y z", axis=1),
                    node("Pad", "y p", "q", mode="reflect")], IMAGE, ("q", "z"),
                   constants=[ints("a", 0, 7), ints("b", 2, -9), ints("c", 1, -1),
                              ints("d", 1, -2), ints("p", 0, 0, 1, 1, 0, 0, 1, 1)]),
    "resize": model([node("Resize", "x  s", mode="cubic")], IMAGE,
                    constants=[tensor("s", [1, 1, 2, 1.5], np.float32)]),
    "gather": model([node("GatherElements", "x i", "t"), node("ScatterND", "t j u", "y")],
                    [("x", F, [2, 2])],
                    constants=[tensor("i", [[1, 0]], np.int64), tensor("j", [[0]], np.int64),
                               floats("u", (1, 2))]),
    "topk": model([node("TopK", "x k", "y i", axis=0), node("CumSum", "y z", "t")], MATRIX,
                  ("t",), constants=[ints("k", 1), tensor("z", 1, np.int64)]),
    "one_hot": model([node("ArgMin", "x", "t"), node("OneHot", "t d v", "y")], MATRIX,
                     constants=[tensor("d", 3, np.int64), floats("v", (2,))]),
    "depth": model([node("SpaceToDepth", "x", "t", blocksize=2),
                    node("DepthToSpace", "t", "y", blocksize=2, mode="CRD")], IMAGE),
    "constant": model([node("ConstantOfShape", "s", "t", value=tensor("", [2], np.float32)),
                       node("Range", "a b c", "r"), node("Cast", "r", "f", to=F),
                       node("Add", "t f", "u"), node("Mul", "x u", "y")], [("x", F, [4])],
                      constants=[ints("s", 4), tensor("a", 0, np.int64), tensor("b", 4, np.int64),
                                 tensor("c", 1, np.int64)]),
    "attention": model([node("MatMul", "x w", "q"), node("Transpose", "q", "k", perm=[0, 2, 1]),
                        node("MatMul", "q k", "a"), node("Softmax", "a", "p"),
                        node("MatMul", "p q", "y")], [("x", F, ["batch", "sequence", 4])],
                       constants=[floats("w", (4, 4))]),
    "einsum": model([node("Einsum", "x w", equation="...ij,jk->...ik")], [("x", F, [2, 3, 4])],
                    constants=[floats("w", (4, 2))]),
    "quantised": model([node("QuantizeLinear", "x s z", "q", axis=1),
                        node("DequantizeLinear", "q s z", "y")], MATRIX,
                       constants=[floats("s", (4,)), tensor("z", [1, 2, 3, 4], np.uint8)]),
    "loss": model([node("SoftmaxCrossEntropyLoss", "x t", reduction="sum", ignore_index=1)],
                  [("x", F, [2, 3]), ("t", I, [2])]),
    "window": model([node("HannWindow", "n", "w"), node("Mul", "x w", "y")], [("x", F, [8])],
                    constants=[tensor("n", 8, np.int64)]),
    "unpool": model([node("MaxPool", "x", "p i", kernel_shape=[2, 2], strides=[2, 2]),
                     node("MaxUnpool", "p i", "y", kernel_shape=[2, 2], strides=[2, 2])], IMAGE),
    "shape_input": model([node("Reshape", "x s", "t"), node("Expand", "t e", "y")],
                         [("x", F, [4]), ("s", I, [2]), ("e", I, [3])]),
    "subgraph": model([h.make_node("If", ["c"], ["y"], then_branch=h.make_graph(
        chain("Relu", end="z"), "t", [], [h.make_tensor_value_info("z", F, None)]))],
        [("x", F, [1]), ("c", B, [])]),
    "sequence": model([node("SequenceConstruct", "x x", "y")], MATRIX),
    "resize_axes": model([node("Resize", "x   z", axes=[2, 3], mode="linear",
                               keep_aspect_ratio_policy="not_larger")], IMAGE,
                         constants=[ints("z", 4, 5)], opset=18),
    "resize_larger": model([node("Resize", "x   z", axes=[-1, 2], mode="cubic", antialias=1,
                                 keep_aspect_ratio_policy="not_smaller")], IMAGE,
                           constants=[ints("z", 4, 5)], opset=19),
    "resize_crop": model([node("Resize", "x r s", axes=[2, 3],
                               coordinate_transformation_mode="tf_crop_and_resize")], IMAGE,
                         constants=[tensor("r", [0, 0, 1, 1], np.float32),
                                    tensor("s", [2, 2], np.float32)], opset=18),
    "upsample": model([node("Upsample", scales=[1.0, 1.0, 2.0, 2.0], mode="nearest")], IMAGE,
                      opset=7),
    "upsample_1": model([node("Upsample", height_scale=2.0, width_scale=2.0, mode="bilinear")],
                        IMAGE, opset=1),
    "group_norm": model([node("GroupNormalization", "x s b", num_groups=3, epsilon=1e-3)], IMAGE,
                        constants=C, opset=18),
    "group_norm_21": model([node("GroupNormalization", "x s b", num_groups=3, stash_type=10)],
                           IMAGE, constants=C, opset=21),
    "layer_norm": model([node("LayerNormalization", "x w c", "y m d", axis=-1)], MATRIX,
                        constants=[floats("w", (4,)), floats("c", (4,))], outputs=("y", "m", "d")),
    "lp_norm": model([node("LpNormalization", "x", "t", axis=1, p=1),
                      node("MeanVarianceNormalization", "t", "y", axes=[0, 2, 3])], IMAGE),
    "batch_norm_6": model([node("BatchNormalization", "x s b m v", is_test=1, spatial=1)], IMAGE,
                          constants=C, opset=6),
    "clip_6": model([node("Clip", min=-1.0, max=1.0)], MATRIX, opset=6),
    "gelu": model([node("Gelu", "x", "t", approximate="tanh"), node("Gelu", "t", "y")], MATRIX,
                  opset=20),
    "reduce_nothing": model([node("ReduceMax", "x e", "t", noop_with_empty_axes=1),
                             node("ReduceSumSquare", "t e", "u", noop_with_empty_axes=1),
                             node("ReduceLogSum", "u a", "y", keepdims=0)], MATRIX,
                            constants=[ints("e"), ints("a", -1)], opset=18),
    "reduce_attr": model([node("ReduceMean", "x", "t", axes=[1], keepdims=1),
                          node("ReduceL1", "t", "y")], MATRIX, opset=11),
    "lp_pool_1": model([node("LpPool", kernel_shape=[2, 2], p=3.0)], IMAGE, opset=1),
    "broadcast_6": model([node("Add", "x w", axis=1, broadcast=1)], [("x", F, [2, 3, 4])],
                         constants=[floats("w", (3,))], opset=6),
    "reverse": model([node("ReverseSequence", "x n", batch_axis=1, time_axis=0)],
                     [("x", F, [3, 2])], constants=[ints("n", 1, 3)]),
    "compress": model([node("Compress", "x c", axis=1)], MATRIX,
                      constants=[tensor("c", [True, False, True], bool)]),
    "split_18": model([node("Split", "x", "y z w", num_outputs=3, axis=1)], MATRIX,
                      outputs=("y", "z", "w"), opset=18),
    "pad_18": model([node("Pad", "x p v a", mode="constant")], MATRIX,
                    constants=[ints("p", 1, 1), tensor("v", 3, np.float32), ints("a", -1)],
                    opset=18),
    "eye": model([node("EyeLike", "x", "t", dtype=1, k=-1), node("Mul", "x t")],
                 [("x", F, [3, 4])]),
    "constants": model([h.make_node("Constant", [], ["a"], value_floats=[1.0, 2.0]),
                        h.make_node("Constant", [], ["b"], value_int=3),
                        node("Cast", "b", "c", to=T.FLOAT16), node("Cast", "c", "d", to=F),
                        node("Mul", "a d", "e"), node("Add", "x e")], [("x", F, ["batch", 2])]),
}

TEXT = {
    "loop": """
agraph (float[batch, 2] x) => (float[batch, 2] y, float[3, batch, 2] k) {
  n = Constant <value = int64 {3}> ()
  t = Constant <value = bool {1}> ()
  y, k = Loop (n, t, x) <body = b (int64 i, bool c, float[batch, 2] s)
    => (bool d, float[batch, 2] u, float[batch, 2] v) {
      d = Identity (c)
      f = Cast <to = 1> (i)
      u = Add (s, f)
      v = Mul (u, x)
    }>
}""",
    "loop_while": """
agraph (float[2] x) => (float[2] y) {
  t = Constant <value = bool {1}> ()
  n = Constant <value = int64 {4}> ()
  y = Loop ("", t, x) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] u) {
      d = Less (i, n)
      u = If (c) <then_branch = p () => (float[2] o) { o = Neg (s) },
                  else_branch = q () => (float[2] o) { o = Sin (s) }>
    }>
}""",
    "loop_late": """
agraph (float[2] x, float[2] w) => (float[2] y, float[n] k, float[2] kept) {
  n = Constant <value = int64 {9}> ()
  t = Constant <value = bool {1}> ()
  far = Constant <value = float {20}> ()
  h = Sin (w)
  y, kept, k = Loop (n, t, x, h) <body = b (int64 i, bool c, float[2] s, float[2] a)
    => (bool d, float[2] u, float[2] b, float v) {
      e = Abs (s)
      f = Add (e, h)
      u = Add (f, w)
      v = ReduceSum <keepdims = 0> (u)
      d = Less (v, far)
      b = Identity (a)
    }>
}""",
    "loop_swaps": """
agraph (float[2] x, float[2] w) => (float[2] y, float[2] z, int64[n] k) {
  n = Constant <value = int64 {5}> ()
  z0 = Constant <value = float {0}> ()
  y, z, k = Loop (n, "", x, z0) <body = b (int64 i, bool c, float[2] s, float[2] a)
    => (bool d, float[2] u, float[2] b, int64 v) {
      u = Add (a, w)
      b = Sin (s)
      m = ReduceMax <keepdims = 0> (b)
      o = Constant <value = float {2}> ()
      d = Less (m, o)
      v = Identity (i)
    }>
}""",
    "loop_fills": """
agraph (float[1] x) => (float[6] y, int64[1] at) {
  n = Constant <value = int64 {9}> ()
  t = Constant <value = bool {1}> ()
  z = Constant <value = float[6] {0, 0, 0, 0, 0, 0}> ()
  first = Constant <value = int64[1] {0}> ()
  y, at, e = Loop (n, t, z, first, x) <body = b
    (int64 i, bool c, float[6] l, int64[1] p, float[1] s)
    => (bool d, float[6] m, int64[1] q, float[1] u) {
      one = Constant <value = int64[1] {1}> ()
      two = Constant <value = int64[1] {2}> ()
      none = Constant <value = int64[1] {0}> ()
      step = Constant <value = int64 {1}> ()
      far = Constant <value = float {7}> ()
      done = Constant <value = int64[0] {}> ()
      u = Add (s, x)
      q = Add (p, one)
      r = Add (p, two)
      w = Slice (l, p, r, none)
      g = Shape (w)
      v = Expand (u, g)
      p0 = Reshape (p, done)
      g0 = Reshape (g, done)
      p1 = Add (p0, g0)
      j = Range (p0, p1, step)
      m = ScatterElements (l, j, v)
      h = ReduceSum <keepdims = 0> (u)
      d0 = Less (h, far)
      f = If (d0) <then_branch = a () => (bool[1] o) { o = Less (h, x) },
                   else_branch = e () => (bool o) { o = Not (d0) }>
      k = Cast <to = 1> (f)
      d = Identity (d0)
    }>
}""",
    "choice": """
agraph (float[2] x, bool c) => (float[2] y) {
  y = If (c) <then_branch = p () => (float[2] o) { o = Neg (x) },
              else_branch = q () => (float[2] o) { o = Sin (x) }>
}""",
    "scan": """
agraph (float[2, 3] x, float[2] a) => (float[2] b, float[2, 3] k) {
  b, k = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1],
               scan_output_axes = [-1], scan_output_directions = [1],
               body = s (float[2] a, float[2] u) => (float[2] e, float[2] g) {
        e = Add (a, u)
        g = Sin (e)
      }> (a, x)
}""",
    "lstm": """
agraph (float[3, batch, 1] x, int32[batch] l) => (float[3, 2, batch, 1] y, float[2, batch, 1] h)
<float[2, 4, 1] w = {1, 2, 3, 4, 5, 6, 7, 8}, float[2, 4, 1] r = {1, 2, 3, 4, 5, 6, 7, 8},
 float[2, 3] p = {1, 2, 3, 4, 5, 6}> {
  y, h, c = LSTM <hidden_size = 1, direction = "bidirectional", clip = 1.0, input_forget = 1,
    activations = ["Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Affine", "Elu"],
    activation_alpha = [0.5, 0.5], activation_beta = [0.5]> (x, w, r, "", l, "", "", p)
}""",
    "gru": """
agraph (float[batch, 3, 1] x) => (float[batch, 3, 1, 1] y)
<float[1, 3, 1] w = {1, 2, 3}, float[1, 3, 1] r = {1, 2, 3}, float[1, 6] b = {1, 2, 3, 4, 5, 6}> {
  y = GRU <hidden_size = 1, layout = 1, linear_before_reset = 1, direction = "reverse"> (x, w, r, b)
}""",
}
HEAD = '<ir_version: 8, opset_import: ["" : 16]>\n'


def with_typed_data():
    m = MODELS["gemm"]
    copy = onnx.ModelProto()
    copy.CopyFrom(m)
    for init in copy.graph.initializer:
        values = np.frombuffer(init.raw_data, np.float32).copy()
        init.ClearField("raw_data")
        init.float_data.extend(values.tolist())
    return copy


def with_external_data():
    copy = onnx.ModelProto()
    copy.CopyFrom(MODELS["matmul"])
    init = copy.graph.initializer[0]
    init.ClearField("raw_data")
    init.data_location = T.EXTERNAL
    for key, value in (("location", "w.bin"), ("offset", "0"), ("length", "16")):
        init.external_data.add(key=key, value=value)
    return copy


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    MODELS["typed_data"], MODELS["external"] = with_typed_data(), with_external_data()
    MODELS.update({name: onnx.parser.parse_model(HEAD + text) for name, text in TEXT.items()})
    for name, proto in MODELS.items():
        (folder / f"{name}.onnx").write_bytes(proto.SerializeToString())
    (folder / "group").write_bytes(b"\x3b\x08\x01\x3c")
    (folder / "endless_length").write_bytes(b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")


main()
