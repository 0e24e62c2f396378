# SPDX-License-Identifier: Apache-2.0
"""Graphs that mix everything: elementwise operations that broadcast, reductions, indices, integers
and doubles, constants, dead nodes, and blocks of the other families.

Not generated, because onnxruntime differs from ONNX or ONNX leaves it open:
  - integer division and remainder by zero, overflow of integers (wraps or saturates), casts of
    floats beyond the target's range, casts of negative floats to unsigned integers
  - shifts by as many bits as the type has, or more
  - duplicate indices in ScatterElements and ScatterND without a reduction
  - Shrink of doubles, which ORT computes in floats
  - ReduceMax and ReduceMin of nothing; Pow of a negative base
"""
import conv_graphs as conv
import numpy as np
import transformer_graphs as transformer
from onnx import TensorProto
from values import Reject

FLOAT, DOUBLE, HALF = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16
INTEGERS = {np.dtype(t) for t in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16,
                                  np.uint32, np.uint64)}


def real(v):
    return v.dtype in (np.float32, np.float64) and v.rank > 0


def whole(v):
    return v.dtype in INTEGERS and v.rank > 0


def signed(v):
    return v.dtype in (np.int32, np.int64) and v.rank > 0


def flags(v):
    return v.dtype == np.bool_ and v.rank > 0


def single(v):
    return v.dtype == np.float32 and v.rank > 0


def mask_shape(g, v):
    """A shape that broadcasts to v's, of any rank up to it."""
    shape = [n if g.chance(0.6) else 1 for n in v.shape]
    if g.batched:
        shape[0] = 1
    cut = g.choice([0, 0, *range(v.rank + 1)])
    return shape[cut:]


def companion(g, v):
    """Another operand: an existing value, or a constant that broadcasts."""
    if g.chance(0.6):
        try:
            return g.pick(lambda w: w.dtype == v.dtype and fits(g, v, w))
        except Reject:
            pass
    if v.dtype.kind == "f":
        return g.constant(g.numbers(mask_shape(g, v), v.dtype, low=0.4, high=1.6))
    return g.constant(g.numbers(mask_shape(g, v), v.dtype, low=1, high=6))


def broadcasts(a, b):
    return all(x == y or x == 1 or y == 1 for x, y in zip(reversed(a), reversed(b)))


def fits(g, v, w):
    """Whether the shapes broadcast without mixing instances."""
    return broadcasts(v.shape, w.shape) and (v.rank == w.rank or not g.batched)


def arithmetic(g):
    v = g.pick(real)
    w = companion(g, v)
    op = g.choice(["Add", "Sub", "Mul", "Div", "Max", "Min", "Add", "Mul"])
    if op == "Div" and np.min([np.min(np.abs(d), initial=1.0) for d in w.data]) < 0.1:
        op = "Mul"
    return conv.either(g, op, v, w) if op in ("Add", "Mul", "Max") else g.op(op, v, w)


def several(g):
    v = g.pick(real)
    others = [companion(g, v) for _ in range(g.integer(0, 3))]
    return g.op(g.choice(["Sum", "Mean", "Max", "Min"]), v, *others)


def with_expand(g):
    """The same operation with an operand that is expanded first."""
    v = g.pick(single)
    c = g.constant(g.numbers(mask_shape(g, v), low=0.5, high=1.5))
    if g.batched and len(c.shape) == v.rank:
        return g.op("Mul", v, c)
    return g.op("Mul", v, g.op("Expand", c, g.ints(*v.shape[1 if g.batched else 0:])))


def integers(g):
    v = g.pick(whole)
    w = companion(g, v)
    op = g.choice(["Add", "Sub", "Mul", "Max", "Min", "Div", "Mod", "BitwiseAnd", "BitwiseOr",
                   "BitwiseXor"])
    if op in ("Div", "Mod") and any(np.any(d == 0) or np.any(e < 0)
                                    for d, e in zip(w.data, v.data)):
        op = "Max"
    if op == "Sub" and v.dtype.kind == "u":
        op = "Min"
    y = g.op(op, v, w)
    limit = min(10**6, np.iinfo(y.dtype).max // 2)
    if any(np.any(np.abs(d.astype(np.float64)) > limit) for d in y.data):
        forget(g, y)
        raise Reject("integers grow")
    return y


def forget(g, value):
    """Hides the value from later nodes; its own node stays, and is dead or makes an output."""
    if value in g.pool:
        g.pool.remove(value)


def integer_unary(g):
    v = g.pick(signed)
    return g.op(g.choice(["Neg", "Abs", "Sign", "Identity", "BitwiseNot"]), v)


def compare(g):
    v = g.pick(lambda v: real(v) or signed(v))
    op = g.choice(["Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal"])
    y = g.op(op, v, companion(g, v))
    return y


def logic(g):
    v = g.pick(flags)
    if g.chance(0.3):
        return g.op("Not", v)
    w = companion(g, v) if g.chance(0.3) else \
        g.pick(lambda w: flags(w) and fits(g, v, w))
    return g.op(g.choice(["And", "Or", "Xor"]), v, w)


def choose(g):
    c = g.pick(flags)
    v = g.pick(lambda v: real(v) and fits(g, c, v))
    return g.op("Where", c, v, companion(g, v)) if g.chance(0.5) else \
        g.op("Where", c, companion(g, v), v)


def cast(g):
    v = g.pick(lambda v: v.rank > 0)
    kinds = [FLOAT, FLOAT, DOUBLE, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL]
    if v.dtype == np.float32:
        kinds.append(HALF)
    if all(np.all(d > 0) and np.all(d < 100) for d in v.data):
        kinds += [TensorProto.UINT8, TensorProto.INT8, TensorProto.UINT32, TensorProto.INT16]
    to = g.choice(kinds)
    if v.is_float and to == TensorProto.BOOL:
        raise Reject("no float is nearly zero for sure")
    return g.op("Cast", v, to=to)


def half_again(g):
    """Through half precision and back, as exporters leave it."""
    v = g.pick(single)
    return g.op("Cast", g.op("Cast", v, to=HALF), to=FLOAT)


UNARY = ["Abs", "Neg", "Floor", "Ceil", "Round", "Sign", "Sin", "Cos", "Atan", "Tanh", "Sigmoid",
         "Erf", "Softsign", "Reciprocal", "Exp", "Log", "Sqrt", "Sinh", "Cosh", "Asinh", "Tan",
         "Shrink", "Elu", "LeakyRelu", "HardSigmoid", "ThresholdedRelu", "Identity", "Relu"]


def unary(g):
    v = g.pick(real)
    op = g.choice(UNARY)
    if op == "Shrink" and v.dtype == np.float64:
        op = "Abs"
    low = min(np.min(d, initial=1.0) for d in v.data)
    if op in ("Log", "Sqrt", "Reciprocal") and low < 0.1:
        y = g.op("Add", g.op("Mul", v, v), g.constant(np.array(0.3, v.dtype)))
        return g.op(op, y)
    return g.op(op, v)


def power(g):
    v = g.pick(real)
    exponent = g.choice([2, 3, 0.5, 1, -1, 2.5])
    if exponent not in (1, 2, 3) and min(np.min(d, initial=1.0) for d in v.data) < 0.1:
        exponent = 2
    c = g.constant(np.array(exponent, v.dtype) if g.chance(0.7)
                   else np.array([exponent], np.float32))
    return g.op("Pow", v, c)


REDUCE = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1",
          "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp", "ReduceLogSum"]


def reduce(g):
    v = g.pick(lambda v: real(v) or signed(v))
    op = g.choice(REDUCE if v.is_float else REDUCE[:1] + REDUCE[2:4])
    axes = [a for a in range(g.first_axis, v.rank) if g.chance(0.5)]
    if not axes and (g.batched or g.chance(0.7)):
        axes = [g.axis(v)]
    if op == "ReduceLogSum" and v.is_float:
        v = g.op("Abs", v)
    keep = g.integer(0, 1)
    if not axes:
        return g.op(op, v, keepdims=keep)
    return g.with_axes(op, v, [a - v.rank if g.chance(0.3) else a for a in axes], keepdims=keep)


def norm_spelt(g):
    """Sums, logarithms and roots, spelt in parts that passes recognise."""
    v = g.pick(single)
    axes, kind = [g.axis(v)], g.choice(["l1", "l2", "squares", "log", "log_exp"])
    if kind == "l1":
        return g.with_axes("ReduceSum", g.op("Abs", v), axes, keepdims=g.integer(0, 1))
    if kind == "log_exp":
        return g.op("Log", g.with_axes("ReduceSum", g.op("Exp", v), axes,
                                       keepdims=g.integer(0, 1)))
    square = g.op("Mul", v, v) if g.chance(0.5) else g.op("Pow", v, g.constant(np.float32(2)))
    y = g.with_axes("ReduceSum", square, axes, keepdims=g.integer(0, 1))
    return y if kind == "squares" else g.op("Sqrt" if kind == "l2" else "Log", y)


def arg(g):
    v = g.pick(real)
    axis, op = g.axis(v), g.choice(["ArgMax", "ArgMin", "TopK", "Hardmax"])
    if op == "Hardmax" and g.opset >= 13:
        return g.op(op, v, axis=axis)
    if op == "TopK" or op == "Hardmax":
        k = g.integer(1, v.shape[axis])
        both = g.ops("TopK", [v, g.ints(k)], 2, axis=axis, largest=g.integer(0, 1))
        return both[0]
    return g.op(op, v, axis=axis, keepdims=g.integer(0, 1))


def cumsum(g):
    v = g.pick(lambda v: real(v) or signed(v))
    return g.op("CumSum", v, g.constant(np.array(g.axis(v), g.choice([np.int32, np.int64]))),
                exclusive=g.integer(0, 1), reverse=g.integer(0, 1))


def take(g):
    v = g.pick(lambda v: v.rank > 0)
    axis = g.axis(v)
    n = v.shape[axis]
    shape = g.choice([[], [1], [g.size(5)], [2, g.size(4)]])
    index = g.numbers(shape, g.choice([np.int32, np.int64]), low=-n, high=n)
    if not g.batched and g.chance(0.3):
        return g.op("Gather", v, g.input(index.shape, index.dtype, low=-n, high=n), axis=axis)
    return g.op("Gather", v, g.constant(index), axis=axis)


def gather_elements(g):
    v = g.pick(lambda v: v.rank > 0)
    axis = g.axis(v, negative=False)
    shape = list(v.shape)
    shape[axis] = g.size(5)
    if g.batched:
        index = g.input(shape[1:], np.int64, low=-v.shape[axis], high=v.shape[axis])
    else:
        index = g.constant(g.numbers(shape, np.int64, low=-v.shape[axis], high=v.shape[axis]))
    return g.op("GatherElements", v, index, axis=axis)


def gather_nd(g):
    v = g.pick(lambda v: v.rank > 1)
    dims = g.integer(0, v.rank - 1) if not g.batched else 1
    if g.batched and g.opset < 12:
        raise Reject("no batch_dims")
    depth = g.integer(1, v.rank - (1 if g.batched else 0))
    size = [] if g.chance(0.3) else [g.size(4)]
    if g.batched:
        index = g.input([*size, depth], np.int64, low=0,
                        high=min(v.shape[1:1 + depth]))
        return g.op("GatherND", v, index, batch_dims=1)
    del dims
    index = np.stack([g.numbers(size, np.int64, low=-n, high=n) for n in v.shape[:depth]], -1)
    return g.op("GatherND", v, g.constant(index))


def scatter(g):
    v = g.pick(lambda v: real(v) or signed(v))
    if g.batched:
        raise Reject("indices without instances")
    axis = g.axis(v, negative=False)
    count = g.integer(1, v.shape[axis])
    shape = [g.integer(1, n) for n in v.shape]
    shape[axis] = count
    index = np.empty(shape, np.int64)
    for at in np.ndindex(*[n for i, n in enumerate(shape) if i != axis]):
        at = list(at)
        at.insert(axis, slice(None))
        index[tuple(at)] = g.rng.permutation(v.shape[axis])[:count]
    updates = g.constant(g.numbers(shape, v.dtype))
    reduction = {}
    if g.opset >= 18 and g.chance(0.5):
        reduction = {"reduction": g.choice(["add", "mul", "max", "min"])}
        index = g.numbers(shape, np.int64, low=-v.shape[axis], high=v.shape[axis])
    return g.op("ScatterElements", v, g.constant(index), updates, axis=axis, **reduction)


def scatter_nd(g):
    v = g.pick(lambda v: real(v) or signed(v))
    if g.batched:
        raise Reject("indices without instances")
    depth = g.integer(1, v.rank)
    places = int(np.prod(v.shape[:depth]))
    count = g.integer(1, min(places, 5))
    flat = g.rng.permutation(places)[:count]
    index = np.stack(np.unravel_index(flat, v.shape[:depth]), -1).astype(np.int64)
    updates = g.constant(g.numbers([count, *v.shape[depth:]], v.dtype))
    return g.op("ScatterND", v, g.constant(index), updates)


def cut(g):
    v = g.pick(lambda v: v.rank > 0)
    axes = [a for a in range(g.first_axis, v.rank) if g.chance(0.5)] or [g.axis(v, False)]
    starts, ends, steps = [], [], []
    for a in axes:
        n, step = v.shape[a], g.choice([1, 1, 1, 2, 3, -1, -2])
        low = g.integer(0, n - 1)
        high = g.integer(low + 1, n)
        if step < 0:
            low, high = high - 1, (low - 1 if low > 0 else -n - 1)
        elif g.chance(0.2):
            high = np.iinfo(np.int64).max
        starts.append(low - n if g.chance(0.3) else low)
        ends.append(high)
        steps.append(step)
    return g.op("Slice", v, g.ints(*starts), g.ints(*ends), g.ints(*axes), g.ints(*steps))


def join(g):
    v = g.pick(lambda v: v.rank > 0)
    axis = g.axis(v, negative=False)
    if g.batched and axis == 0:
        raise Reject("instances")

    def fits(w):
        return w.dtype == v.dtype and w.rank == v.rank and all(
            x == y for i, (x, y) in enumerate(zip(v.shape, w.shape)) if i != axis)

    parts = [v] + [g.pick(fits) for _ in range(g.integer(0, 3))]
    if not g.batched and g.chance(0.3):
        parts.append(g.constant(g.numbers(v.shape, v.dtype)))
    return g.op("Concat", *parts, axis=axis - v.rank if g.chance(0.3) else axis)


def roll(g):
    v = g.pick(lambda v: v.rank > 1)
    return conv.roll(g, v, g.integer(g.first_axis, v.rank - 1))


def split(g):
    v = g.pick(lambda v: v.rank > 0)
    axis = g.axis(v)
    n = v.shape[axis]
    if n < 2:
        raise Reject("nothing to split")
    first = g.integer(1, n - 1)
    second = g.integer(0, n - first)
    sizes = [s for s in (first, second, n - first - second) if s]
    return g.split(v, axis, sizes)[0]


def rank(g):
    v = g.pick(lambda v: v.rank > 0)
    ones = [i for i in range(g.first_axis, v.rank) if v.shape[i] == 1]
    if ones and g.chance(0.5):
        return g.with_axes("Squeeze", v, ones[:g.integer(1, len(ones))])
    if v.rank < 5 and g.chance(0.6):
        return g.with_axes("Unsqueeze", v, [g.integer(g.first_axis, v.rank)])
    return g.op("Flatten", v, axis=g.integer(1, v.rank)) if not g.batched else \
        g.op("Flatten", v, axis=1)


def repeat(g):
    v = g.pick(lambda v: v.rank > 0 and v.data[0].size < 2000)
    if g.chance(0.5):
        times = [g.choice([1, 1, 2, 3]) for _ in v.shape]
        if g.batched:
            times[0] = 1
        return g.op("Tile", v, g.ints(*times))
    shape = [n if n != 1 else g.size(5) for n in v.shape]
    shape = [1 if g.chance(0.3) else n for n in shape]
    if g.batched:
        shape[0] = 1
    elif g.chance(0.3):
        shape = [g.choice([1, 2]), *shape]
    return g.op("Expand", v, g.ints(*shape))


def fill(g):
    v = g.pick(lambda v: v.rank > 0 and v.dtype in (np.float32, np.float64, np.int32, np.int64)
               and v.data[0].size < 3000)
    mode = g.choice(["constant", "constant", "edge", "reflect"])
    most = [2 if mode != "reflect" else min(2, n - 1) for n in v.shape]
    if g.batched:
        most[0] = 0
    pads = [g.integer(0, m) for m in most + most]
    extra = [g.constant(np.array(2, v.dtype))] if mode == "constant" and g.chance(0.5) else []
    return g.op("Pad", v, g.ints(*pads), *extra, mode=mode)


def triangle(g):
    v = g.pick(lambda v: v.rank >= (3 if g.batched else 2) and v.dtype != np.bool_)
    extra = [g.constant(np.int64(g.integer(-2, 3)))] if g.chance(0.6) else []
    return g.op("Trilu", v, *extra, upper=g.integer(0, 1))


def one_hot(g):
    depth = g.size(9)
    index = g.input([g.size(5)] if g.batched else [g.choice([1, 3]), g.size(5)], np.int64,
                    low=-depth, high=depth)
    return g.op("OneHot", index, g.constant(np.int64(depth)),
                g.constant(np.array([0.25, 1.5], np.float32)), axis=g.choice([-1, 1]))


EINSUM = ["bij,bjk->bik", "bij,bkj->bik", "bij,bij->bi", "bij->bji", "bij,bij->b", "bij->b",
          "bi,bj->bij", "bij,bjk->bki", "bhij,bhkj->bhik", "bhij,bhjk->bihk", "bij,jk->bik",
          "bij,kj->bki", "bi,ij->bj", "bij,j->bi"]


def einsum(g):
    equation = g.choice(EINSUM)
    terms = equation.split("->")[0].split(",")
    v = g.pick(lambda v: single(v) and v.rank == len(terms[0]))
    sizes = dict(zip(terms[0], v.shape))
    inputs = [v]
    for term in terms[1:]:
        def fits(w, t=term):
            return single(w) and w.rank == len(t) and all(
                sizes.get(c, n) == n for c, n in zip(t, w.shape))
        if "b" in term:
            inputs.append(g.pick(fits))
        else:
            inputs.append(g.weight([sizes.get(c, 5) for c in term], 4))
    return g.op("Einsum", *inputs, equation=equation)


def quantise(g):
    """Quantises and dequantises. Results may differ by whole steps, so no value may be near half a
    step."""
    v = g.pick(single)
    kind = g.choice([np.uint8, np.int8])
    axis = g.axis(v, negative=False)
    wide = g.opset >= 13 and g.chance(0.5)
    shape = [v.shape[axis]] if wide else []
    scale = g.constant(g.numbers(shape, low=0.2, high=0.6))
    zero = g.constant(np.full(shape, 3, kind))
    attributes = {"axis": axis} if wide else {}
    y = g.op("QuantizeLinear", v, scale, zero, **attributes)
    return g.op("DequantizeLinear", y, scale, zero, **attributes)


def integer_product(g):
    """Quantises, multiplies as integers, and scales again: exact between the two ends."""
    v = g.pick(lambda v: single(v) and v.rank >= 2)
    kind = g.choice([np.uint8, np.int8])
    zero = g.constant(np.array(2, kind))
    scale = g.constant(np.float32(0.25))
    q = g.op("QuantizeLinear", v, scale, zero)
    weights = g.constant(g.numbers([v.shape[-1], g.size(17)], np.int8, low=-20, high=20))
    extra = g.choice([[zero], [zero, g.constant(np.array(1, np.int8))], []])
    y = g.op("MatMulInteger", q, weights, *extra)
    return g.op("Mul", g.op("Cast", y, to=FLOAT), scale)


def integer_conv(g):
    v = g.pick(lambda v: single(v) and v.rank == 4)
    zero, scale = g.constant(np.array(2, np.uint8)), g.constant(np.float32(0.25))
    q = g.op("QuantizeLinear", v, scale, zero)
    k = [min(n, g.choice([1, 2, 3])) for n in v.shape[2:]]
    group = g.choice([1, v.shape[1]])
    # with their zero point the second ones need nine bits
    low, high, w_zero, small = g.choice([(0, 9, 0, 0.25), (0, 255, 101, 0.01)])
    weights = g.numbers([group * g.size(4), v.shape[1] // group, *k], np.uint8, low=low, high=high)
    extra = [g.constant(np.array(w_zero, np.uint8))] if w_zero else []
    y = g.op("ConvInteger", q, g.constant(weights), zero, *extra, group=group,
             pads=[g.integer(0, n - 1) for n in k + k])
    return g.op("Mul", g.op("Cast", y, to=FLOAT), g.constant(np.float32(small)))


def there_and_back(g, v, kind, low=0.02, high=0.1):
    scale = g.constant(np.float32(g.rng.uniform(low, high)))
    zero = g.constant(np.array(0 if kind == np.int8 else 128, kind))
    return g.op("DequantizeLinear", g.op("QuantizeLinear", v, scale, zero), scale, zero)


def quantised_weights(g, shape, axis):
    """Weights of eight bits, with a scale for each output channel or one for all."""
    weights = g.constant(g.numbers(shape, np.int8, low=-127, high=128))
    wide = g.opset >= 13 and g.chance(0.6)
    scale = g.constant(g.numbers([shape[axis]] if wide else [], low=0.002, high=0.008))
    zero = g.constant(np.zeros(scale.shape, np.int8))
    attributes = {"axis": axis} if wide else {}
    return g.op("DequantizeLinear", weights, scale, *([zero] if g.chance(0.7) else []),
                **attributes)


def quantised(g):
    """A product or convolution of a model that was trained for eight bits."""
    conv_like = g.chance(0.5)
    v = g.pick(lambda v: single(v) and (v.rank == 4 if conv_like else v.rank >= 2))
    x = there_and_back(g, v, g.choice([np.uint8, np.int8]))
    out = g.size(17)
    if conv_like:
        k = [min(n, g.choice([1, 3])) for n in v.shape[2:]]
        group = v.shape[1] if g.chance(0.2) else 1
        w = quantised_weights(g, [out * group, v.shape[1] // group, *k], 0)
        bias = [g.weight([out * group], 1)] if g.chance(0.5) else []
        y = g.op("Conv", x, w, *bias, group=group, pads=[n // 2 for n in k + k])
    else:
        y = g.op("MatMul", x, quantised_weights(g, [v.shape[-1], out], 1))
        y = g.op("Add", y, g.weight([out], 1)) if g.chance(0.5) else y
    if g.chance(0.5):
        y = g.op("Relu", y)
    return there_and_back(g, y, g.choice([np.uint8, np.int8])) if g.chance(0.6) else y


def recurrent(g):
    """The input has its instances in the second dimension, so this block is for unbatched graphs
    only."""
    if g.batched:
        raise Reject("instances elsewhere")
    v = g.pick(lambda v: single(v) and v.rank == 3 and v.shape[0] < 9 and v.shape[1] < 9)
    op, gates = g.choice([("LSTM", 4), ("GRU", 3), ("RNN", 1)])
    direction = g.choice(["forward", "reverse", "bidirectional"])
    ways = 2 if direction == "bidirectional" else 1
    steps, n, wide = v.shape
    hidden = g.choice([1, 2, 3, 5, 8, 16])
    inputs = [v, g.weight([ways, gates * hidden, wide], wide),
              g.weight([ways, gates * hidden, hidden], hidden)]
    attributes = {"hidden_size": hidden, "direction": direction}
    if g.chance(0.7):
        inputs.append(g.weight([ways, 2 * gates * hidden], 4))
    if len(inputs) == 4 and g.chance(0.4):
        lengths = g.rng.integers(1, steps + 1, size=n).astype(np.int32)
        inputs.append(g.constant(lengths) if g.chance(0.5) else None)
        inputs.append(g.weight([ways, n, hidden], 2))
    if op == "GRU" and g.chance(0.5):
        attributes["linear_before_reset"] = 1
    y = g.ops(op, inputs, 3 if op == "LSTM" else 2, **attributes)[0]
    return g.op("Squeeze", y, g.ints(1)) if ways == 1 and g.opset >= 13 else y


def gemm(g):
    v = g.pick(lambda v: real(v) and v.rank == 2)
    out = g.size()
    c = g.weight(g.choice([[out], [1, out], [1], []]), 1, v.dtype)
    return g.op("Gemm", v, g.weight([v.shape[1], out], v.shape[1], v.dtype), c)


def matmul(g):
    v = g.pick(lambda v: real(v) and v.rank >= 2)
    k = v.shape[-1]
    if g.chance(0.2):
        return g.op("MatMul", v, g.weight([k], k, v.dtype)) if v.rank > 2 else \
            g.op("MatMul", v, g.weight([k, 1], k, v.dtype))
    return g.op("MatMul", v, g.weight([k, g.size(17)], k, v.dtype))


def softmax(g):
    v = g.pick(real)
    return g.op(g.choice(["Softmax", "LogSoftmax"]), v,
                axis=g.axis(v) if g.opset >= 13 else g.axis(v, negative=False))


def shuffle(g):
    v = g.pick(lambda v: v.rank > 1)
    first = g.first_axis
    if g.chance(0.5):
        mixed = first + g.rng.permutation(v.rank - first)
        return g.transpose(v, [*range(first), *mixed.tolist()])
    return g.reshape(v, [*v.shape[:first], *transformer.refactor(g, v.shape[first:] or [1])])


def constants(g):
    """A subgraph of constants alone, and one of shapes."""
    v = g.pick(single)
    shape = mask_shape(g, v)
    a, b = (g.constant(g.numbers(shape, low=0.5, high=1.5)) for _ in range(2))
    y = g.op(g.choice(["Add", "Mul", "Div"]), a, b)
    if g.chance(0.5):
        y = g.op("Sqrt", y)
    if g.chance(0.3):
        y = g.op("Cast", g.op("Cast", y, to=DOUBLE), to=FLOAT)
    return g.op("Mul", v, y)


def shape_of(g):
    """A reshape to a shape that is computed, as exporters write it."""
    v, w = g.pick(lambda v: v.rank > 1), None
    dims = g.op("Shape", v)
    if not g.batched:
        parts = [g.op("Gather", dims, g.ints(i), axis=0) for i in range(v.rank)]
        w = g.op("Concat", *parts[:-2], g.op("Mul", parts[-2], parts[-1]), axis=0)
    else:
        w = g.op("Concat", g.op("Slice", dims, g.ints(0), g.ints(1)), g.ints(-1), axis=0)
    return g.op("Reshape", v, w)


def identity(g):
    v = g.pick()
    return g.op("Identity", v)


def reverse_sequence(g):
    v = g.pick(lambda v: v.rank >= 2 and v.dtype != np.bool_)
    if g.batched:
        raise Reject("lengths without instances")
    lengths = g.constant(np.array([g.integer(1, v.shape[0]) for _ in range(v.shape[1])], np.int64))
    return g.op("ReverseSequence", v, lengths, batch_axis=1, time_axis=0)


BLOCKS = [(8, arithmetic), (2, several), (1, with_expand), (4, integers), (2, integer_unary),
          (3, compare), (2, logic), (3, choose), (4, cast), (1, half_again), (5, unary), (1, power),
          (5, reduce), (2, norm_spelt), (3, arg), (2, cumsum), (3, take), (2, gather_elements),
          (2, gather_nd), (2, scatter), (2, scatter_nd), (4, cut), (3, join), (2, split), (3, rank),
          (3, repeat), (2, fill), (1, triangle), (1, one_hot), (2, einsum), (2, quantise),
          (2, quantised), (2, integer_product), (1, integer_conv), (2, recurrent),
          (2, gemm), (2, matmul), (2, softmax), (4, shuffle), (3, constants), (1, shape_of),
          (1, identity), (1, reverse_sequence), (2, roll), (1, conv.conv), (1, conv.conv_block),
          (1, conv.pool), (1, conv.resize), (1, conv.head), (1, conv.channels_last),
          (2, conv.patches), (1, transformer.product),
          (1, transformer.attention), (1, transformer.layer_norm)]


def start(g):
    for _ in range(g.choice([1, 2, 2, 3])):
        rank_ = g.choice([1, 2, 2, 3, 3, 4])
        shape = [g.choice([1, 2, 3, 4, 5, 7, 8, 17]) for _ in range(rank_)]
        kind = g.choice([np.float32] * 6 + [np.int64, np.int32, np.float64, np.uint8, np.bool_])
        g.input(shape[:3] if g.batched else shape, kind)
        if g.chance(0.3):
            g.input([n if g.chance(0.7) else 1 for n in (shape[:3] if g.batched else shape)], kind)
