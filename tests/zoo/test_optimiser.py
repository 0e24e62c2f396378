#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What onnxruntime's optimiser writes: test_optimiser.py INFERCTL. First the operators of its own
domain and ONNX's attention, in each form and with each attribute, then small networks that its
optimisers have rewritten. inferctl's answers are onnxruntime's. Prints TAP; skipped without onnx or
onnxruntime.
"""
import os
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import TensorProto as T
    import compare
    from bundle import Bundle
except ImportError as e:
    print(f"1..0 # SKIP {e}")
    sys.exit(0)

BOUND = 1e-5
MS = "com.microsoft"


def angles(rows, columns):
    at = np.arange(rows)[:, None] / 10.0 ** (np.arange(columns) / columns)
    return np.cos(at).astype(np.float32), np.sin(at).astype(np.float32)


def weights(b, *shape):
    return b.constant(b.rng.standard_normal(shape) / 4, np.float32)


# --- products and functions ---

def products(b):
    for attrs in ({}, {"alpha": 0.5}, {"transA": 1}, {"transB": 1, "alpha": 2.0},
                  {"transA": 1, "transB": 1}):
        a = (2, 3, 5, 4) if attrs.get("transA") else (2, 3, 4, 5)
        c = (2, 3, 6, 5) if attrs.get("transB") else (2, 3, 5, 6)
        b.node("FusedMatMul", b.data(*a), b.data(*c), domain=MS, **attrs)
        b.node("FusedMatMul", b.data(*a), weights(b, *c[2:]), domain=MS, **attrs)
    b.node("FusedMatMul", b.data(4, 3, 5), b.data(3, 5, 6), domain=MS, transBatchA=1)
    b.node("FusedMatMul", b.data(3, 4, 5), b.data(5, 3, 6), domain=MS, transBatchB=1)
    b.node("FusedMatMul", b.data(5, 3, 4), b.data(6, 3, 5), domain=MS, transBatchA=1,
           transBatchB=1, transA=1, transB=1, alpha=0.3)
    b.node("FusedMatMul", b.data(5), b.data(5, 6), domain=MS, alpha=3.0)
    b.node("TransposeMatMul", b.data(5, 4), b.data(5, 6), domain=MS, transA=1, alpha=0.1)
    for i, (name, extra) in enumerate([
            ("Relu", {}), ("Tanh", {}), ("Sigmoid", {}), ("LeakyRelu", {"activation_alpha": 0.3}),
            ("Elu", {"activation_alpha": 0.7}), ("Softplus", {}), ("Softsign", {}),
            ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}),
            ("ThresholdedRelu", {"activation_alpha": 0.3}), ("Celu", {"activation_alpha": 0.6})]):
        third = [weights(b, 6)] if i % 2 else [b.data(4, 1)] if i % 4 else []
        b.node("FusedGemm", b.data(4, 5), weights(b, 6, 5), *third, domain=MS, transB=1,
               alpha=0.5 if i % 3 else 1.0, beta=2.0 if i % 3 == 1 else 1.0, activation=name,
               **extra)


def blocks(b):
    """Weights of few bits, with scales and zero points for blocks of them."""
    def whole(high, *shape):
        return b.constant(b.rng.integers(0, high, shape), np.uint8)
    for bits, depth, columns, block in ((4, 64, 6, 32), (4, 70, 5, 16), (8, 40, 3, 32),
                                        (4, 33, 8, 64), (2, 64, 8, 32)):
        n = -(-depth // block)
        rows = -(-n * bits // 8)
        sizes = {"K": depth, "N": columns, "bits": bits, "block_size": block}
        given = [whole(256, columns, n, block * bits // 8), weights(b, columns * n)]
        for zeros in ("", whole(256, columns * rows)):
            b.node("MatMulNBits", b.data(3, depth), *given, zeros, domain=MS, **sizes)
        if bits == 4:
            b.node("MatMulNBits", b.data(2, 3, depth), *given, weights(b, columns * n), domain=MS,
                   **sizes)
            b.node("MatMulNBits", b.data(2, 3, depth), *given, whole(256, columns * rows), "",
                   weights(b, columns), domain=MS, accuracy_level=1, **sizes)
            groups = b.constant(b.rng.permutation(np.arange(depth) // block), np.int32)
            b.node("MatMulNBits", b.data(4, depth), *given, "", groups, domain=MS, **sizes)


def convolutions(b):
    for name, parameters in (("Relu", []), ("Tanh", []), ("Sigmoid", []), ("LeakyRelu", [0.2]),
                             ("Clip", [-0.5, 0.7]), ("HardSigmoid", [0.3, 0.4])):
        more = {"activation_params": parameters} if parameters else {}
        b.node("FusedConv", b.data(2, 4, 7, 6), weights(b, 6, 2, 3, 3), weights(b, 6), domain=MS,
               activation=name, group=2, pads=[1, 1, 1, 1], **more)
    b.node("FusedConv", b.data(2, 4, 7, 6), weights(b, 6, 4, 3, 3), weights(b, 6),
           b.data(2, 6, 5, 4), domain=MS, activation="Relu")
    b.node("FusedConv", b.data(2, 4, 7, 6), weights(b, 6, 4, 1, 1), "", b.data(2, 6, 4, 3),
           domain=MS, activation="Relu", strides=[2, 2])


def functions(b):
    b.node("Gelu", b.data(3, 4, 8), domain=MS)
    b.node("BiasGelu", b.data(3, 4, 8), weights(b, 8), domain=MS)
    b.node("FastGelu", b.data(3, 4, 8), domain=MS)
    b.node("FastGelu", b.data(3, 4, 8), weights(b, 8), domain=MS)
    b.node("QuickGelu", b.data(3, 4, 8), domain=MS)
    b.node("QuickGelu", b.data(3, 4, 8), domain=MS, alpha=0.7)
    for upper in (0, 1):
        b.node("Trilu", b.data(2, 4, 5), b.constant(1), domain=MS, upper=upper)


# --- normalisation ---

def norms(b):
    for bias in (False, True):
        extra = [weights(b, 8)] if bias else []
        b.node("SkipLayerNormalization", b.data(2, 5, 8), b.data(2, 5, 8), weights(b, 8),
               weights(b, 8), *extra, domain=MS, epsilon=1e-5)
        b.node("SkipSimplifiedLayerNormalization", b.data(2, 5, 8), b.data(2, 5, 8), weights(b, 8),
               *extra, domain=MS, epsilon=1e-4)
    b.node("SkipLayerNormalization", b.data(2, 5, 8), b.data(1, 5, 8), weights(b, 8), domain=MS)
    b.node("SkipLayerNormalization", b.data(2, 5, 8), b.data(5, 8), weights(b, 8), weights(b, 8),
           domain=MS)
    b.node("SkipLayerNormalization", b.data(10, 8), b.data(10, 8), weights(b, 8), weights(b, 8),
           weights(b, 8), domain=MS, types=(T.FLOAT, 0, 0, T.FLOAT))
    b.node("SimplifiedLayerNormalization", b.data(2, 5, 8), weights(b, 8), epsilon=1e-6)
    b.node("SimplifiedLayerNormalization", b.data(2, 5, 3, 8), weights(b, 3, 8), axis=-2)


def embeddings(b):
    def ids(high, *shape):
        return b.feed(b.rng.integers(0, high, shape).astype(np.int32))
    tables = [weights(b, 20, 8), weights(b, 9, 8)]
    norm = [weights(b, 8), weights(b, 8)]
    kinds = (T.FLOAT, T.INT32)
    b.node("EmbedLayerNormalization", ids(20, 2, 5), ids(2, 2, 5), *tables, weights(b, 2, 8), *norm,
           domain=MS, types=kinds, epsilon=1e-6)
    b.node("EmbedLayerNormalization", ids(20, 2, 5), "", *tables, "", *norm, ids(2, 2, 5),
           domain=MS, types=(T.FLOAT, T.INT32, T.FLOAT))
    b.node("EmbedLayerNormalization", ids(20, 3, 5), ids(2, 3, 5), *tables, weights(b, 2, 8), *norm,
           ids(2, 3, 5), ids(9, 3, 5), domain=MS, types=kinds)


def rotary(b):
    cos, sin = (b.constant(t, np.float32) for t in angles(20, 4))
    part = [b.constant(t, np.float32) for t in angles(20, 2)]
    for neighbours in (0, 1):
        places = b.feed(b.rng.integers(0, 20, (2, 5)))
        first = b.feed(np.array([3], np.int64))
        for where in (places, first):
            b.node("RotaryEmbedding", b.data(2, 5, 24), where, cos, sin, domain=MS,
                   interleaved=neighbours)
            b.node("RotaryEmbedding", b.data(2, 3, 5, 8), where, cos, sin, domain=MS,
                   interleaved=neighbours)
        b.node("RotaryEmbedding", b.data(2, 5, 24), places, *part, domain=MS, num_heads=3,
               rotary_embedding_dim=4, interleaved=neighbours)
        # ONNX's own, of opset 23
        b.node("RotaryEmbedding", b.data(2, 5, 24), cos, sin, places, num_heads=3,
               interleaved=neighbours)
        b.node("RotaryEmbedding", b.data(2, 3, 5, 8), *part, places, rotary_embedding_dim=4,
               interleaved=neighbours)
        b.node("RotaryEmbedding", b.data(2, 3, 5, 8), b.data(2, 5, 4), b.data(2, 5, 4),
               interleaved=neighbours)


# --- attention: 2 sequences, 5 queries, 3 heads of 4 columns ---

def keys_seen(b, *shape):
    seen = (b.rng.integers(0, 3, shape) > 0).astype(np.int32)
    seen[..., 0] = 1
    return b.feed(seen)


def masks(b, queries, keys):
    yield ""
    yield keys_seen(b, 2, keys)
    yield keys_seen(b, 2, queries, keys)
    yield b.feed(np.array([keys - 1, keys - 3], np.int32))


def attention(b):
    for way in (0, 1):
        for mask in masks(b, 5, 5):
            b.node("Attention", b.data(2, 5, 8), weights(b, 8, 36), weights(b, 36), mask,
                   domain=MS, num_heads=3, unidirectional=way)
    lengths = b.feed(np.array([4, 5, 1, 0], np.int32))
    b.node("Attention", b.data(2, 5, 8), weights(b, 8, 36), weights(b, 36), lengths, domain=MS,
           num_heads=3)
    b.node("Attention", b.data(2, 5, 8), weights(b, 8, 36), weights(b, 36), keys_seen(b, 2, 5),
           domain=MS, num_heads=3, scale=0.4, mask_filter_value=-3.0)
    b.node("Attention", b.data(2, 5, 8), weights(b, 8, 30), weights(b, 30), domain=MS, num_heads=3,
           qkv_hidden_sizes=[12, 12, 6])
    for bias in (b.data(2, 3, 5, 5), b.data(1, 1, 5, 5)):
        b.node("Attention", b.data(2, 5, 8), weights(b, 8, 36), weights(b, 36), keys_seen(b, 2, 5),
               "", bias, domain=MS, num_heads=3)
    kinds = (T.FLOAT, T.FLOAT)
    b.node("Attention", b.data(2, 5, 8), weights(b, 8, 36), weights(b, 36), domain=MS, num_heads=3,
           types=kinds, unidirectional=1)
    for way, mask in ((0, ""), (1, ""), (1, keys_seen(b, 2, 9)), (0, keys_seen(b, 2, 5, 9))):
        b.node("Attention", b.data(2, 5, 8), weights(b, 8, 36), weights(b, 36), mask,
               b.data(2, 2, 3, 4, 4), domain=MS, num_heads=3, types=kinds, unidirectional=way)


def multi_head(b):
    for mask in masks(b, 5, 7):
        b.node("MultiHeadAttention", b.data(2, 5, 12), b.data(2, 7, 12), b.data(2, 7, 6),
               "", mask, domain=MS, num_heads=3)
    bias = weights(b, 36)
    b.node("MultiHeadAttention", b.data(2, 5, 12), b.data(2, 7, 12), b.data(2, 7, 12), bias,
           domain=MS, num_heads=3, scale=0.3)
    b.node("MultiHeadAttention", b.data(2, 5, 12), b.data(2, 5, 12), b.data(2, 5, 12), bias,
           domain=MS, num_heads=3, unidirectional=1)
    b.node("MultiHeadAttention", b.data(2, 5, 12), b.data(2, 3, 7, 4), b.data(2, 3, 7, 4),
           domain=MS, num_heads=3)
    for extra in (b.data(2, 3, 5, 7), b.data(1, 3, 5, 7), b.data(2, 1, 5, 7), b.data(1, 1, 5, 7)):
        b.node("MultiHeadAttention", b.data(2, 5, 12), b.data(2, 7, 12), b.data(2, 7, 12), "",
               keys_seen(b, 2, 7), extra, domain=MS, num_heads=3)
    kinds = (T.FLOAT,) * 3
    b.node("MultiHeadAttention", b.data(2, 5, 12), b.data(2, 5, 12), b.data(2, 5, 12), bias, "", "",
           b.data(2, 3, 4, 4), b.data(2, 3, 4, 4), domain=MS, num_heads=3, types=kinds)
    b.node("MultiHeadAttention", b.data(2, 5, 12), b.data(2, 5, 12), b.data(2, 5, 12), "",
           keys_seen(b, 2, 9), b.data(1, 1, 5, 9), b.data(2, 3, 4, 4), b.data(2, 3, 4, 4),
           domain=MS, num_heads=3, types=kinds, unidirectional=1)
    b.node("MultiHeadAttention", b.data(2, 5, 12), b.data(2, 5, 12), b.data(2, 5, 12),
           domain=MS, num_heads=3, types=kinds)


def grouped(b):
    def total(n):
        return b.constant(n, np.int32)
    cos, sin = (b.constant(t, np.float32) for t in angles(20, 8))
    full = b.constant([4, 4], np.int32)

    def apart(queries):
        return [b.data(2, queries, 64), b.data(2, queries, 32), b.data(2, queries, 32)]
    common = {"domain": MS, "num_heads": 4, "kv_num_heads": 2, "types": (T.FLOAT,) * 3}
    b.node("GroupQueryAttention", *apart(5), "", "", full, total(5), **common)
    b.node("GroupQueryAttention", b.data(2, 5, 128), "", "", "", "", full, total(5), **common)
    b.node("GroupQueryAttention", *apart(5), "", "", full, total(5), scale=0.2, **common)
    b.node("GroupQueryAttention", *apart(5), "", "", full, total(5), local_window_size=2, **common)
    b.node("GroupQueryAttention", *apart(5), "", "", full, total(5), softcap=0.8, **common)
    for neighbours in (0, 1):
        b.node("GroupQueryAttention", *apart(5), "", "", full, total(5), cos, sin, do_rotary=1,
               rotary_interleaved=neighbours, **common)
    # A past of 7 rows, or a cache of 12 of which 7 are in use. What onnxruntime gives for the
    # others is not said.
    for kept, kinds in ((7, (T.FLOAT,) * 3), (12, (T.FLOAT, None, None))):
        common["types"] = kinds
        past = [b.data(2, 2, kept, 16), b.data(2, 2, kept, 16)]
        seven = b.feed(np.array([7, 7], np.int32))
        b.node("GroupQueryAttention", *apart(1), *past, seven, total(8), **common)
        b.node("GroupQueryAttention", *apart(1), *past, seven, total(8), cos, sin, do_rotary=1,
               **common)
        b.node("GroupQueryAttention", *apart(1), *past, seven, total(8), local_window_size=3,
               **common)
    uneven = b.feed(np.array([7, 4], np.int32))
    b.node("GroupQueryAttention", *apart(1), *past, uneven, total(8), cos, sin, do_rotary=1,
           **common)


def onnx_attention(b):
    three = {"q_num_heads": 3, "kv_num_heads": 3}
    for more in ({}, {"is_causal": 1}, {"scale": 0.3}, {"softcap": 0.5}):
        b.node("Attention", b.data(2, 5, 12), b.data(2, 7, 12), b.data(2, 7, 6), **three, **more)
        b.node("Attention", b.data(2, 3, 5, 4), b.data(2, 3, 7, 4), b.data(2, 3, 7, 5), **more)
        b.node("Attention", b.data(2, 6, 5, 4), b.data(2, 2, 7, 4), b.data(2, 2, 7, 5), **more)


def onnx_attention_masks(b):
    three = {"q_num_heads": 3, "kv_num_heads": 3}
    kinds = (T.FLOAT,) * 3
    seen = b.rng.integers(0, 3, (5, 7)) > 0
    seen[:, 0] = True
    for mask in (b.feed(seen), b.data(5, 7), b.data(1, 3, 5, 7), b.data(2, 1, 5, 7)):
        b.node("Attention", b.data(2, 3, 5, 4), b.data(2, 3, 7, 4), b.data(2, 3, 7, 5), mask)
        b.node("Attention", b.data(2, 3, 5, 4), b.data(2, 3, 7, 4), b.data(2, 3, 7, 5), mask,
               is_causal=1)
    for way in (0, 1):
        b.node("Attention", b.data(2, 6, 5, 4), b.data(2, 2, 5, 4), b.data(2, 2, 5, 5), "",
               b.data(2, 2, 3, 4), b.data(2, 2, 3, 5), types=kinds, is_causal=way)
        b.node("Attention", b.data(2, 5, 12), b.data(2, 5, 12), b.data(2, 5, 12), b.data(5, 8),
               b.data(2, 3, 3, 4), b.data(2, 3, 3, 4), types=kinds, is_causal=way, **three)


BUNDLES = [(17, products), (17, blocks), (17, convolutions), (17, functions), (17, norms),
           (17, embeddings), (23, rotary), (17, attention), (17, multi_head), (17, grouped),
           (23, onnx_attention), (23, onnx_attention_masks)]


def check(number, ok, text):
    print(f"{'ok' if ok else 'not ok'} {number} - {text}", flush=True)
    return ok


def main():
    inferctl, failed, number = sys.argv[1], 0, 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        path = os.path.join(folder, "bundle.onnx")
        for opset, family in BUNDLES:
            number += 1
            b = Bundle(opset, np.random.default_rng([1, number]))
            family(b)
            b.save(path)
            mine, wrong = compare.ours(inferctl, path, b.feeds, ["--no-tune"]), []
            for name, want in compare.theirs(path, b.feeds).items():
                error = compare.relative_error(mine.get(name), want)
                if not error <= BOUND:
                    wrong.append(f"{name} {b.told[name]}: {error:.1e} "
                                 f"{getattr(mine.get(name), 'shape', None)} {want.shape}")
            failed += not check(number, not wrong, f"{family.__name__}: {len(b.nodes)} nodes")
            for line in wrong:
                print(f"# {line}")
    print(f"1..{number}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
