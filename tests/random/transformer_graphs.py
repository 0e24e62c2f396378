# SPDX-License-Identifier: Apache-2.0
"""Graphs of transformers' parts: products, attention in its spellings, normalisations, GELU,
rotary embeddings, embeddings, and chains of reshapes and transposes between them."""
import numpy as np
from conv_graphs import ACTIVATIONS, either, roll, scalar, spelt
from values import Reject


def rows(v):
    """Tokens: [N, S, D]."""
    return v.dtype == np.float32 and v.rank == 3


def linear(g, v, out, bias=None):
    """A product with weights, with or without bias, in one of its spellings."""
    wide = v.shape[-1]
    bias = g.chance(0.7) if bias is None else bias
    if v.rank == 3 and g.chance(0.15):
        flat = g.reshape(v, [-1, wide]) if not g.batched else None
        if flat is not None:
            y = g.op("Gemm", flat, g.weight([wide, out], wide), g.weight([out], 1))
            return g.reshape(y, [*v.shape[:-1], out])
    if g.chance(0.15):
        w = g.transpose(g.weight([out, wide], wide), [1, 0])
    else:
        w = g.weight([wide, out], wide)
    y = g.op("MatMul", v, w)
    return either(g, "Add", y, g.weight([out], 1)) if bias else y


def product(g):
    return linear(g, g.pick(rows), g.size())


def product_of_two(g):
    a = g.pick(lambda v: v.dtype == np.float32 and v.rank >= 3)
    b = g.pick(lambda v: v.dtype == np.float32 and v.rank >= 3 and v.shape[-2] == a.shape[-1])
    return g.op("MatMul", a, b)


def product_with_itself(g):
    a = g.pick(lambda v: v.dtype == np.float32 and v.rank >= 3)
    perm = list(range(a.rank - 2)) + [a.rank - 1, a.rank - 2]
    t = g.transpose(a, perm)
    y = g.op("MatMul", a, t) if g.chance(0.5) else g.op("MatMul", t, a)
    return g.op("Mul", y, scalar(g, 1.0 / max(1, a.shape[-1])))


def layer_norm(g, v=None):
    v = v or g.pick(lambda v: rows(v) and v.shape[-1] > 2)
    wide = v.shape[-1]
    if g.chance(0.6) and g.opset >= 17:
        extra = [g.weight([wide], 1)] if g.chance(0.8) else []
        return g.op("LayerNormalization", v, g.positive([wide]), *extra,
                    axis=g.choice([-1, 2]), epsilon=g.choice([1e-5, 1e-3]))
    mean = g.with_axes("ReduceMean", v, [-1])
    off = g.op("Sub", v, mean)
    square = g.op("Pow", off, scalar(g, 2)) if g.chance(0.6) else g.op("Mul", off, off)
    deviation = g.op("Sqrt", g.op("Add", g.with_axes("ReduceMean", square, [-1]),
                                  scalar(g, 1e-3)))
    y = g.op("Div", off, deviation)
    if g.chance(0.8):
        y = either(g, "Mul", y, g.positive([wide]))
    return g.op("Add", y, g.weight([wide], 1)) if g.chance(0.8) else y


def rms_norm(g):
    v = g.pick(lambda v: rows(v) and v.shape[-1] > 2)
    wide = v.shape[-1]
    if g.opset >= 23 and g.chance(0.7):
        return g.op("RMSNormalization", v, g.positive([wide]), epsilon=1e-3)
    square = g.op("Pow", v, scalar(g, 2)) if g.chance(0.5) else g.op("Mul", v, v)
    mean = g.op("Add", g.with_axes("ReduceMean", square, [-1]), scalar(g, 1e-3))
    if g.chance(0.5):
        y = g.op("Mul", v, g.op("Reciprocal", g.op("Sqrt", mean)))
    else:
        y = g.op("Div", v, g.op("Sqrt", mean))
    return g.op("Mul", g.positive([wide]), y)


def gelu(g, v=None):
    v = v or g.pick(rows)
    return spelt(g, v, g.choice(["gelu", "gelu_tanh", "silu"]))


def activation(g):
    v = g.pick(rows)
    name = g.choice(list(ACTIVATIONS))
    return g.op(name, v, **ACTIVATIONS[name])


def feed_forward(g):
    v = g.pick(rows)
    wide, mid = v.shape[-1], g.size()
    up = linear(g, v, mid)
    if g.chance(0.25):
        gate = linear(g, v, mid)
        up = g.op("Mul", spelt(g, gate, "silu"), up)
    else:
        up = gelu(g, up) if g.chance(0.7) else g.op(g.choice(["Relu", "Tanh"]), up)
    down = linear(g, up, wide)
    return either(g, "Add", down, v) if g.chance(0.7) else down


def heads_of(g, v, heads, key=False):
    """[N,S,D] -> [N,H,S,D/H], or [N,H,D/H,S] for a key."""
    n, s, d = v.shape
    y = g.reshape(v, [n, s, heads, d // heads])
    return g.transpose(y, [0, 2, 3, 1] if key else [0, 2, 1, 3])


def rotate(g, v):
    """Rotary embedding over the last axis of [N,H,S,D]."""
    _, _, s, d = v.shape
    angle = g.numbers([1, 1, s, d // 2], low=0, high=3.0)
    angle = np.concatenate([angle, angle], -1)
    cos, sin = (g.constant(f(angle).astype(np.float32)) for f in (np.cos, np.sin))
    if g.chance(0.5):
        first, second = g.split(v, -1, [d // 2, d - d // 2])
    else:
        ends = (0, d // 2, d // 2, np.iinfo(np.int64).max)
        first = g.op("Slice", v, g.ints(ends[0]), g.ints(ends[1]), g.ints(-1))
        second = g.op("Slice", v, g.ints(ends[2]), g.ints(ends[3]), g.ints(3))
    turned = g.op("Concat", g.op("Neg", second), first, axis=-1)
    return g.op("Add", g.op("Mul", v, cos), g.op("Mul", turned, sin))


def mask_for(g, n, heads, s, t):
    """A mask to add, as a constant, an input, or computed from one of booleans or numbers."""
    kind = g.choice(["causal", "random", "input", "where", "flags"])
    if kind == "causal":
        m = np.triu(np.full([s, t], -50.0, np.float32), 1)
        return g.constant(m.reshape(g.choice([[s, t], [1, 1, s, t]])))
    if kind == "random":
        shape = [1, g.choice([1, heads]), g.choice([1, s]), t]
        return g.constant(np.where(g.rng.random(shape) < 0.3, -50.0, 0.0).astype(np.float32))
    if kind == "input":
        return g.input([1, 1, t] if g.batched else [n, 1, 1, t], low=-3.0, high=0.0)
    flags = g.input([t] if g.batched else [n, t], np.int64 if g.chance(0.5) else np.float32,
                    low=0, high=2)
    if kind == "where" and flags.dtype == np.int64:
        keep = g.op("Cast", flags, to=9)
        keep = g.with_axes("Unsqueeze", keep, [1, 2])
        return g.op("Where", keep, scalar(g, 0.0), scalar(g, -50.0))
    floats = g.op("Cast", flags, to=1) if flags.dtype == np.int64 else flags
    wide = g.with_axes("Unsqueeze", g.with_axes("Unsqueeze", floats, [1]), [2])
    return g.op("Mul", g.op("Sub", scalar(g, 1.0), wide), scalar(g, -20.0))


def queries(g, v, heads, d):
    """Three projections: products of their own, or one that is split."""
    kind = g.choice(["own", "own", "split", "slices", "reshape"])
    wide = heads * d
    if kind == "own":
        return [linear(g, v, wide) for _ in range(3)]
    packed = linear(g, v, 3 * wide)
    if kind == "split":
        return g.split(packed, -1, [wide] * 3)
    if kind == "slices":
        return [g.op("Slice", packed, g.ints(i * wide), g.ints((i + 1) * wide), g.ints(2))
                for i in range(3)]
    n, s, _ = v.shape
    y = g.transpose(g.reshape(packed, [n, s, 3, heads, d]), [2, 0, 3, 1, 4])
    return [g.op("Gather", y, g.constant(np.int64(i)), axis=0) for i in range(3)]


def attention(g):
    v = g.pick(rows)
    n, s, wide = v.shape
    heads, d = g.choice([1, 2, 3, 4]), g.choice([1, 2, 4, 5, 8])
    parts = queries(g, v, heads, d)
    if parts[0].rank == 4:
        q, k, value = parts
        k = g.transpose(k, [0, 1, 3, 2])
    else:
        spin = d % 2 == 0 and g.chance(0.25)
        q = heads_of(g, parts[0], heads)
        k = heads_of(g, parts[1], heads, key=not spin)
        if spin:
            q, k = rotate(g, q), g.transpose(rotate(g, k), [0, 1, 3, 2])
        value = heads_of(g, parts[2], heads)
    return finish_attention(g, v, q, k, value, (n, s, heads, d))


def finish_attention(g, v, q, k, value, sizes):
    n, s, heads, d = sizes
    how = g.choice(["after", "after", "before", "both", "none"])
    if how == "before":
        q = g.op("Mul", q, scalar(g, 1 / np.sqrt(d)))
    elif how == "both":
        q, k = (g.op("Mul", x, scalar(g, d ** -0.25)) for x in (q, k))
    scores = g.op("MatMul", q, k)
    if how == "after":
        scores = g.op("Div", scores, scalar(g, np.sqrt(d)))
    if g.chance(0.5):
        scores = g.op("Add", scores, mask_for(g, n, heads, s, k.shape[-1]))
    weights = g.op("Softmax", scores, axis=-1 if g.opset >= 13 or g.chance(0.5) else 3)
    if g.chance(0.1):
        weights = g.ops("Dropout", [weights], 1)[0]
    y = g.transpose(g.op("MatMul", weights, value), [0, 2, 1, 3])
    y = g.reshape(y, [n, s, heads * d])
    if g.chance(0.8):
        y = linear(g, y, v.shape[-1])
        return either(g, "Add", y, v) if g.chance(0.7) else y
    return y


def cross_attention(g):
    """Takes queries from one row of tokens, and keys and values from another."""
    v, w = g.pick(rows), g.pick(rows)
    if v.shape[0] != w.shape[0]:
        raise Reject("another batch")
    heads, d = g.choice([1, 2, 3]), g.choice([2, 4, 7])
    q = heads_of(g, linear(g, v, heads * d), heads)
    k = heads_of(g, linear(g, w, heads * d), heads, key=True)
    value = heads_of(g, linear(g, w, heads * d), heads)
    return finish_attention(g, v, q, k, value, (v.shape[0], v.shape[1], heads, d))


def embedding(g):
    rows_, wide, s = g.size(), g.size(), g.size(8)
    ids = g.input([s] if g.batched else [g.choice([1, 2, 3]), s],
                  g.choice([np.int64, np.int32]), low=0, high=rows_)
    y = g.op("Gather", g.weight([rows_, wide], 1), ids, axis=0)
    if g.chance(0.6):
        y = g.op("Add", y, g.weight([s, wide], 1))
    return layer_norm(g, y) if wide > 2 and g.chance(0.5) else y


def residual(g):
    a = g.pick(rows)
    b = g.pick(lambda v: rows(v) and v.shape == a.shape)
    return g.op(g.choice(["Add", "Add", "Mul", "Sub"]), a, b)


def softmax(g):
    v = g.pick(lambda v: v.dtype == np.float32 and v.rank > 1)
    return g.op(g.choice(["Softmax", "Softmax", "LogSoftmax"]), v, axis=g.axis(v))


def shuffles(g):
    """Reshapes and transposes in a row."""
    y = g.pick(lambda v: v.dtype == np.float32 and v.rank >= 3)
    first = g.first_axis
    for _ in range(g.integer(1, 4)):
        if g.chance(0.5):
            perm = list(range(first)) + (first + g.rng.permutation(y.rank - first)).tolist()
            y = g.transpose(y, perm)
        else:
            y = g.reshape(y, [*y.shape[:first], *refactor(g, y.shape[first:])])
    return y


def refactor(g, dims):
    """Another shape of as many elements."""
    dims = list(dims)
    if len(dims) > 1 and g.chance(0.5):
        i = g.integer(0, len(dims) - 2)
        dims[i:i + 2] = [dims[i] * dims[i + 1]]
    else:
        i = g.integer(0, len(dims) - 1)
        d = g.choice([d for d in range(1, dims[i] + 1) if dims[i] % d == 0])
        if len(dims) < 5:
            dims[i:i + 1] = [d, dims[i] // d]
    return dims


def tokens_again(g):
    """Turns a value of another rank into tokens."""
    v = g.pick(lambda v: v.dtype == np.float32 and v.rank >= 2)
    wide = int(np.prod(v.shape[1:]))
    d = g.choice([d for d in range(1, wide + 1) if wide % d == 0 and d <= 64])
    return g.reshape(v, [v.shape[0], wide // d, d])


def first_token(g):
    v = g.pick(rows)
    y = g.op("Gather", v, g.constant(np.int64(0)), axis=1)
    wide = v.shape[-1]
    return g.op("Tanh", g.op("Gemm", y, g.weight([g.size(), wide], wide), transB=1))


def scale(g):
    v = g.pick(rows)
    op = g.choice(["Mul", "Add", "Div", "Sub"])
    return g.op(op, v, g.positive(g.choice([[], [1], [v.shape[-1]], [1, 1, v.shape[-1]],
                                            [v.shape[1], 1], [1, v.shape[1], v.shape[2]]])))


def where(g):
    v = g.pick(rows)
    mask = g.constant(g.rng.random([v.shape[1], g.choice([1, v.shape[2]])]) < 0.5)
    return g.op("Where", mask, v, scalar(g, 0.25))


def shift(g):
    return roll(g, g.pick(lambda v: rows(v) and v.shape[1] > 1), 1)


BLOCKS = [(5, product), (3, product_of_two), (1, product_with_itself), (4, layer_norm),
          (2, rms_norm), (3, gelu), (2, activation), (5, feed_forward), (7, attention),
          (2, cross_attention), (2, embedding), (3, residual), (2, softmax), (3, shuffles),
          (2, tokens_again), (1, first_token), (2, scale), (1, where), (1, shift)]


def start(g):
    lead = [] if g.batched else [g.choice([1, 1, 2, 3])]
    s, wide = g.choice([1, 3, 5, 7, 17]), g.choice([1, 3, 4, 8, 16, 17, 32])
    g.input([*lead, s, wide])
    if g.chance(0.4):
        g.input([*lead, g.choice([s, 1, 4]), g.choice([wide, 8])])
