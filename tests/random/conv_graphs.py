# SPDX-License-Identifier: Apache-2.0
"""Convolutional graphs.

Not generated, because onnxruntime differs from ONNX or ONNX leaves it open:
  - auto_pad SAME together with dilations (ORT refuses), and SAME of ConvTranspose (opset 11 said
    another thing than what runtimes do)
  - Resize by align_corners to a size that is not whole (ORT rounds it down first), and to nearest
    but by whole factors
  - ceil_mode with windows that begin in the padding on the right (versions of ONNX differ), and
    AveragePool with count_include_pad and ceil_mode (ORT's divisor changed with its versions)
"""
import numpy as np
from values import Reject


def image(v):
    return v.is_float and v.dtype == np.float32 and 3 <= v.rank <= 5


def channels(v):
    return v.shape[1]


def spatial(v):
    return v.shape[2:]


def divisor(g, n):
    return g.choice([d for d in range(1, n + 1) if n % d == 0])


def window(g, v, dilate=True, most=4):
    """Attributes of a sliding window that fits."""
    kernel, strides, dilations, begin, end = [], [], [], [], []
    for n in spatial(v):
        k = min(g.choice([1, 1, 2, 3, 3, 3, 5]), most)
        d = g.choice([1, 1, 1, 2, 3]) if dilate else 1
        pad = [g.integer(0, (k - 1) * d) if g.chance(0.6) else 0 for _ in range(2)]
        if (k - 1) * d + 1 > n + sum(pad):
            k, d, pad = 1, 1, [0, 0]
        kernel.append(k)
        strides.append(g.choice([1, 1, 1, 2, 3]))
        dilations.append(d)
        begin.append(pad[0])
        end.append(pad[1])
    return {"kernel_shape": kernel, "strides": strides, "dilations": dilations,
            "pads": begin + end}


def sometimes_default(g, w):
    """Leaves out attributes that have their default value."""
    out = dict(w)
    for key, default in (("strides", 1), ("dilations", 1), ("pads", 0)):
        if all(x == default for x in w[key]) and g.chance(0.5):
            del out[key]
    return out


def conv(g):
    v = g.pick(image)
    c, w = channels(v), window(g, v)
    group = g.choice([1, 1, 1, c, divisor(g, c)])
    out = group * g.choice([1, 1, 2, 3, 5, 8, 16]) if group > 1 else g.size()
    if out > 40:
        raise Reject("too wide")
    if g.chance(0.2) and all(d == 1 for d in w["dilations"]):
        del w["pads"], w["dilations"]
        w["auto_pad"] = g.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
    else:
        w = sometimes_default(g, w)
    inputs = [v, g.weight([out, c // group, *w["kernel_shape"]])]
    if g.chance(0.6):
        inputs.append(g.weight([out], 1))
    if g.chance(0.2):
        del w["kernel_shape"]
    return g.op("Conv", *inputs, group=group, **w)


def conv_transpose(g):
    v = g.pick(image)
    c, w = channels(v), window(g, v, most=3)
    group = g.choice([1, 1, c, divisor(g, c)])
    out = g.choice([1, 2, 3, 5]) if group > 1 else g.size(17)
    limit = [max(s, d) - 1 for s, d in zip(w["strides"], w["dilations"])]
    output_padding = [g.integer(0, min(m, s - 1)) for m, s in zip(limit, w["strides"])]
    for i, n in enumerate(spatial(v)):
        size = (n - 1) * w["strides"][i] + (w["kernel_shape"][i] - 1) * w["dilations"][i] + 1
        if size - w["pads"][i] - w["pads"][i + v.rank - 2] < 1:
            raise Reject("nothing left")
    if any(output_padding) and g.chance(0.5):
        w["output_padding"] = output_padding
    inputs = [v, g.weight([c, out, *w["kernel_shape"]], c // group * 2)]
    if g.chance(0.5):
        inputs.append(g.weight([out * group], 1))
    return g.op("ConvTranspose", *inputs, group=group, **w)


def pool(g):
    v = g.pick(image)
    op = g.choice(["MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool"])
    dilate = op == "MaxPool" or g.opset >= (19 if op == "AveragePool" else 18)
    w = window(g, v, dilate)
    for i in range(v.rank - 2):
        for at in (i, i + v.rank - 2):
            w["pads"][at] = min(w["pads"][at], w["kernel_shape"][i] - 1)
        reach = (w["kernel_shape"][i] - 1) * w["dilations"][i] + 1
        if reach > v.shape[2 + i] + w["pads"][i] + w["pads"][i + v.rank - 2]:
            raise Reject("window too large")
    if not dilate:
        del w["dilations"]
    elif all(d == 1 for d in w["dilations"]) and g.chance(0.6):
        del w["dilations"]
    if op == "AveragePool" and g.chance(0.4):
        w["count_include_pad"] = 1
    if op == "LpPool":
        w["p"] = g.choice([1, 2, 3])
    elif g.chance(0.25) and not w.get("count_include_pad") and not any(w["pads"]):
        w["ceil_mode"] = 1
    if op == "MaxPool" and g.chance(0.1):
        return g.ops(op, [v], 2, **w)[0]
    return g.op(op, v, **w)


def batch_norm(g):
    v = g.pick(image)
    c = channels(v)
    attributes = {"epsilon": g.choice([1e-5, 1e-3])} if g.chance(0.7) else {}
    return g.op("BatchNormalization", v, g.positive([c]), g.weight([c], 1), g.weight([c], 4),
                g.positive([c]), **attributes)


def group_norm_parts(g, v):
    """Group normalisation as exporters write it below opset 18."""
    c, groups = channels(v), divisor(g, channels(v))
    wide = c // groups * int(np.prod(spatial(v)))
    y = g.reshape(v, [v.shape[0], groups, wide])
    y = g.op("InstanceNormalization", y, g.positive([groups]), g.weight([groups], 1), epsilon=1e-2)
    y = g.reshape(y, v.shape)
    ones = [1] * len(spatial(v))
    return g.op("Add", g.op("Mul", y, g.positive([c, *ones])), g.weight([c, *ones], 1))


def other_norm(g):
    v = g.pick(lambda v: image(v) and np.prod(spatial(v)) > 3)
    c = channels(v)
    kind = g.choice(["instance", "lrn", "group", "group parts", "lp", "mvn"])
    if kind == "instance":
        return g.op("InstanceNormalization", v, g.positive([c]), g.weight([c], 1), epsilon=1e-2)
    if kind == "lrn":
        return g.op("LRN", v, size=g.choice([1, 3, 5]), alpha=0.01, bias=1.5)
    if kind == "group" and g.opset >= 21:
        return g.op("GroupNormalization", v, g.positive([c]), g.weight([c], 1),
                    num_groups=divisor(g, c), epsilon=1e-2)
    if kind in ("group", "group parts"):
        return group_norm_parts(g, v)
    if kind == "mvn" and v.rank == 4 and not g.batched:
        return g.op("MeanVarianceNormalization", v)
    return g.op("LpNormalization", v, axis=1, p=g.choice([1, 2]))


ACTIVATIONS = {
    "Relu": {}, "Sigmoid": {}, "Tanh": {}, "Softplus": {}, "Softsign": {}, "HardSwish": {},
    "Mish": {}, "LeakyRelu": {"alpha": 0.2}, "Elu": {"alpha": 0.7}, "Celu": {"alpha": 1.5},
    "Selu": {}, "HardSigmoid": {"alpha": 0.3, "beta": 0.4}, "ThresholdedRelu": {"alpha": 0.3},
    "Gelu": {}, "Erf": {}, "Abs": {}, "Neg": {}, "Identity": {}, "Swish": {"alpha": 1.2},
}


def activate(g, v):
    """One of all activations, some of them spelt out."""
    name = g.choice(list(ACTIVATIONS) + ["Relu"] * 6 + ["clip", "clip", "prelu", "silu", "silu",
                                                       "hard_swish", "mish", "gelu", "gelu_tanh"])
    if name in ACTIVATIONS:
        attributes = ACTIVATIONS[name] if g.chance(0.7) else {}
        if name == "Gelu" and g.chance(0.5):
            attributes = {"approximate": "tanh"}
        return g.op(name, v, **attributes)
    if name == "clip":
        low, high = g.choice([(0.0, 6.0), (-1.0, 1.0), (0.0, None), (None, 0.5), (-0.5, 20.0)])
        return g.op("Clip", v, *(x if x is None else g.constant(np.float32(x))
                                 for x in (low, high)))
    if name == "prelu":
        shape = [channels(v) if g.chance(0.7) else 1] + [1] * (v.rank - 2) if v.rank > 2 else [1]
        return g.op("PRelu", v, g.constant(g.numbers(shape, low=0.1, high=0.9)))
    return spelt(g, v, name)


def scalar(g, x):
    return g.constant(np.float32(x) if g.chance(0.6) else np.full([1], x, np.float32))


def either(g, op, a, b):
    return g.op(op, a, b) if g.chance(0.5) else g.op(op, b, a)


def spelt(g, v, name):
    if name == "silu":
        return either(g, "Mul", v, g.op("Sigmoid", v))
    if name == "mish":
        return either(g, "Mul", v, g.op("Tanh", g.op("Softplus", v)))
    if name == "hard_swish":
        three = g.op("Add", v, scalar(g, 3))
        clipped = g.op("Clip", three, g.constant(np.float32(0)), g.constant(np.float32(6)))
        return either(g, "Mul", v, g.op("Div", clipped, scalar(g, 6)))
    if name == "gelu":
        half = g.op("Add", g.op("Erf", g.op("Div", v, scalar(g, np.sqrt(2)))), scalar(g, 1))
        return g.op("Mul", either(g, "Mul", v, half), scalar(g, 0.5))
    cube = g.op("Pow", v, scalar(g, 3)) if g.chance(0.5) else g.op("Mul", g.op("Mul", v, v), v)
    inner = g.op("Mul", g.op("Add", v, g.op("Mul", cube, scalar(g, 0.044715))),
                 scalar(g, np.sqrt(2 / np.pi)))
    factor = g.op("Add", g.op("Tanh", inner), scalar(g, 1))
    return g.op("Mul", g.op("Mul", v, scalar(g, 0.5)), factor)


def activation(g):
    return activate(g, g.pick(image))


def conv_block(g):
    """Convolution, normalisation, activation, and perhaps the input again, as networks have it."""
    v = g.pick(image)
    c, k = channels(v), g.choice([1, 3])
    out = c if g.chance(0.6) else g.size()
    w = {"kernel_shape": [k] * (v.rank - 2), "pads": [k // 2] * 2 * (v.rank - 2)}
    y = g.op("Conv", v, g.weight([out, c, *w["kernel_shape"]]), **w)
    if g.chance(0.5):
        y = g.op("BatchNormalization", y, g.positive([out]), g.weight([out], 1),
                 g.weight([out], 4), g.positive([out]))
    if g.chance(0.3):
        y = activate(g, y)
    if out == c and g.chance(0.7):
        y = either(g, g.choice(["Add", "Add", "Add", "Mul", "Sub", "Max"]), y, v)
    return activate(g, y) if g.chance(0.7) else y


def residual(g):
    a = g.pick(image)
    b = g.pick(lambda v: image(v) and v.shape == a.shape)
    return g.op(g.choice(["Add", "Add", "Add", "Sub", "Mul", "Max", "Min"]), a, b)


def scale(g):
    """Scales or shifts by a number, by channel or by place: a sum, a product or both."""
    v = g.pick(image)
    shape = [1] + [n if g.chance(0.5) else 1 for n in v.shape[1:]]
    shape = g.choice([[1] * v.rank, [1, channels(v)] + [1] * (v.rank - 2), shape,
                      [channels(v)] + [1] * (v.rank - 2), []])
    y = v
    for op in g.choice([["Mul"], ["Add"], ["Mul", "Add"], ["Sub"], ["Div"], ["Sub", "Mul"],
                        ["Sub", "Div"], ["Add", "Mul"]]):
        c = g.positive(shape) if op in ("Mul", "Div") else g.weight(shape, 1)
        y = g.op(op, y, c) if op == "Div" or g.chance(0.7) else g.op(op, c, y)
    return y


def branches(g):
    v = g.pick(image)
    parts = [v] if g.chance(0.3) else []
    for _ in range(g.integer(1, 3)):
        out = g.size(17)
        k = g.choice([1, 3])
        y = g.op("Conv", v, g.weight([out, channels(v)] + [k] * (v.rank - 2)),
                 pads=[k // 2] * 2 * (v.rank - 2), kernel_shape=[k] * (v.rank - 2))
        parts.append(activate(g, y) if g.chance(0.6) else y)
    if g.chance(0.15):
        parts += [parts[0], g.op("Relu", v), g.op("Relu", v)]
    return g.op("Concat", *parts, axis=g.choice([1, 1 - v.rank]))


def concat(g):
    v = g.pick(image)
    w = g.pick(lambda w: image(w) and w.rank == v.rank and spatial(w) == spatial(v))
    return g.op("Concat", v, w, axis=1)


def squeeze_excite(g):
    v = g.pick(image)
    c, axes = channels(v), range(2, v.rank)
    if g.chance(0.6):
        y = g.op("GlobalAveragePool", v)
    else:
        y = g.with_axes("ReduceMean", v, axes, keepdims=1)
    mid = max(1, c // 2)
    ones = [1] * (v.rank - 2)
    y = g.op("Relu", g.op("Conv", y, g.weight([mid, c, *ones]), g.weight([mid], 1)))
    y = g.op("Conv", y, g.weight([c, mid, *ones]), g.weight([c], 1))
    y = g.op(g.choice(["Sigmoid", "HardSigmoid"]), y)
    return either(g, "Mul", v, y)


def shuffle(g):
    v = g.pick(lambda v: image(v) and v.rank == 4 and channels(v) > 1)
    n, c, h, w = v.shape
    group = divisor(g, c)
    kind = g.choice(["channels", "channels", "depth", "space", "flip"])
    if kind == "channels":
        y = g.reshape(v, [n, group, c // group, h, w])
        return g.reshape(g.transpose(y, [0, 2, 1, 3, 4]), [n, c, h, w])
    if kind == "depth" and c % 4 == 0:
        return g.op("DepthToSpace", v, blocksize=2, mode=g.choice(["DCR", "CRD"]))
    if kind == "space" and h % 2 == 0 and w % 2 == 0:
        return g.op("SpaceToDepth", v, blocksize=2)
    return g.transpose(v, [0, *g.rng.permutation([1, 2, 3]).tolist()])


def split(g):
    v = g.pick(lambda v: image(v) and channels(v) > 1)
    first = g.integer(1, channels(v) - 1)
    parts = g.split(v, 1, [first, channels(v) - first])
    if g.chance(0.5):
        return g.op("Concat", *reversed(parts), axis=1)
    return parts[0]


def roll(g, v, axis):
    """Slices of v put together again in another order, as of Swin's shifted windows."""
    n = v.shape[axis]
    if n < 2:
        raise Reject("nothing to roll")
    at = g.integer(1, n - 1)
    head_, tail = (g.op("Slice", v, g.ints(start), g.ints(end), g.ints(axis))
                   for start, end in ((0, at), (at, n)))
    return g.op("Concat", tail, head_, axis=axis)


def channels_last(g):
    """The block of ConvNeXt: products of rows of channels, and a sum behind the transpose back."""
    v = g.pick(lambda v: image(v) and v.rank == 4)
    n, c, h, w = v.shape
    mid, flat = g.size(17), g.chance(0.4)
    y = g.transpose(v, [0, 2, 3, 1])
    if g.chance(0.3):
        y = roll(g, y, 1)
    if flat:
        y = g.reshape(y, [n, h * w, c])
    y = g.op("Add", g.op("MatMul", y, g.weight([c, mid], c)), g.weight([mid], 1))
    if flat:
        y = g.reshape(y, [n, h, w, mid])
    y = activate(g, y) if g.chance(0.5) else spelt(g, y, "gelu")
    y = g.op("MatMul", y, g.weight([mid, c], mid))
    if g.chance(0.5):
        y = g.op("Mul", y, g.positive([c]))
    y = g.transpose(y, [0, 3, 1, 2])
    return either(g, "Add", y, v)


def patches(g):
    """The patches of an image as tokens; or a product between two transposes or reshapes."""
    v = g.pick(lambda v: image(v) and v.rank == 4)
    n, c, h, w = v.shape
    out, kind = g.size(17), g.choice(["tokens", "transposes", "reshapes"])
    if kind == "transposes":
        y = g.op("MatMul", g.transpose(v, [0, 2, 1, 3]), g.weight([w, out], w))
        return g.transpose(y, [0, 2, 1, 3])
    if kind == "reshapes":
        y = g.op("MatMul", g.reshape(v, [n, c * h, w]), g.weight([w, out], w))
        return g.reshape(y, [n, c, h, out])
    k = g.integer(1, min(h, w, 4))
    y = g.op("Conv", v, g.weight([out, c, k, k]), kernel_shape=[k, k], strides=[k, k])
    y = g.transpose(g.reshape(y, [n, out, (h // k) * (w // k)]), [0, 2, 1])
    return g.op(g.choice(["Relu", "Sigmoid", "Tanh"]), y)


def upsample(g):
    """A transposed convolution whose windows lie side by side, and sometimes what is none."""
    v = g.pick(lambda v: image(v) and v.rank <= 4)
    k = [g.integer(1, 3) for _ in v.shape[2:]]
    c, m = v.shape[1], g.size(9)
    inputs = [g.weight([c, m, *k], c)] + ([g.weight([m], 1)] if g.chance(0.5) else [])
    steps = [n + g.chance(0.1) for n in k]
    y = g.op("ConvTranspose", v, *inputs, kernel_shape=k, strides=steps)
    return activate(g, y) if g.chance(0.5) else y


def crop(g):
    v = g.pick(image)
    axes = [a for a in range(1, v.rank) if g.chance(0.5)] or [v.rank - 1]
    starts = [g.integer(0, v.shape[a] - 1) for a in axes]
    ends = [g.integer(s + 1, v.shape[a]) for s, a in zip(starts, axes)]
    steps = [g.choice([1, 1, 2]) for _ in axes]
    return g.op("Slice", v, g.ints(*starts), g.ints(*ends), g.ints(*axes), g.ints(*steps))


def pad(g):
    v = g.pick(image)
    mode = g.choice(["constant", "constant", "reflect", "edge"] +
                    (["wrap"] if g.opset >= 19 else []))
    most = [0, 0] + [min(2, n - 1) if mode in ("reflect", "wrap") else 2 for n in spatial(v)]
    low = -1 if mode == "constant" and min(spatial(v)) > 3 else 0
    pads = [g.integer(low if m else 0, m) for m in most + most]
    inputs = [v, g.ints(*pads)]
    if mode == "constant" and g.chance(0.5):
        inputs.append(g.constant(np.float32(g.choice([0, 0, 0.5, -1]))))
    y = g.op("Pad", *inputs, mode=mode)
    if g.chance(0.6):
        k = [min(g.choice([1, 2, 3]), n) for n in spatial(y)]
        return g.op("Conv", y, g.weight([g.size(17), channels(y), *k]), kernel_shape=k)
    return y


def resize(g):
    v = g.pick(lambda v: image(v) and np.prod(v.shape[1:]) < 3000)
    mode = g.choice(["nearest", "nearest", "linear", "cubic"] if v.rank == 4 else
                    ["nearest", "linear"])
    coordinates = g.choice(["asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel"])
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        # powers of two and whole factors only: with others, rounding chooses between neighbours
        factors = [g.choice([1, 2, 2, 4]) for _ in spatial(v)]
        attributes["coordinate_transformation_mode"] = "asymmetric"
        attributes["nearest_mode"] = "floor"
    else:
        factors = [g.choice([1, 1.5, 2, 2.5]) for _ in spatial(v)]
    if any(n * f < 2 for n, f in zip(spatial(v), factors)):
        raise Reject("too small to resize")
    if coordinates == "align_corners" and any(n * f % 1 for n, f in zip(spatial(v), factors)):
        raise Reject("corners of a size that is not whole")
    factors = [1.0, 1.0, *factors]
    if g.chance(0.5) or g.batched:
        return g.op("Resize", v, None, g.constant(np.array(factors, np.float32)), **attributes)
    sizes = [int(n * f) for n, f in zip(v.shape, factors)]
    return g.op("Resize", v, None, None, g.ints(*sizes), **attributes)


def head(g):
    v = g.pick(image)
    c = channels(v)
    kind = g.choice(["average", "max", "mean", "flatten"])
    if kind == "flatten":
        if np.prod(v.shape[1:]) > 600:
            raise Reject("too wide")
        y = g.op("Flatten", v, axis=1) if g.chance(0.6) else \
            g.reshape(v, [v.shape[0], int(np.prod(v.shape[1:]))])
    elif kind == "mean":
        y = g.with_axes("ReduceMean", v, range(2, v.rank), keepdims=0)
    else:
        y = g.op("GlobalAveragePool" if kind == "average" else "GlobalMaxPool", v)
        if g.chance(0.5):
            y = g.op("Flatten", y, axis=1)
        else:
            y = g.reshape(y, [v.shape[0], c])
    for _ in range(g.integer(1, 3)):
        out, wide = g.size(), y.shape[1]
        if g.chance(0.6):
            trans = g.integer(0, 1)
            shape = [out, wide] if trans else [wide, out]
            extra = [g.weight(g.choice([[out], [1, out], [1], []]), 1)] if g.chance(0.8) else []
            scales = {"alpha": 0.5, "beta": 1.5} if g.chance(0.2) else {}
            y = g.op("Gemm", y, g.weight(shape, wide), *extra, transB=trans, **scales)
        else:
            y = g.op("MatMul", y, g.weight([wide, out], wide))
            if g.chance(0.7):
                y = either(g, "Add", y, g.weight([out], 1))
        if g.chance(0.6):
            y = activate(g, y)
    return g.op("Softmax", y, axis=1) if g.chance(0.3) else y


BLOCKS = [(6, conv), (6, conv_block), (2, conv_transpose), (3, pool), (2, batch_norm),
          (1, other_norm), (4, activation), (4, residual), (3, scale), (2, branches), (2, concat),
          (2, squeeze_excite), (2, shuffle), (1, split), (1, crop), (2, pad), (1, resize),
          (2, head), (2, channels_last), (2, patches), (2, upsample)]


def start(g):
    dims = g.choice([1, 2, 2, 2, 2, 3])
    shape = [g.choice([1, 2, 3, 3, 4, 8, 16, 17, 32])]
    shape += [g.choice([1, 3, 5, 7, 8, 9] if dims == 3 else [1, 3, 7, 8, 13, 17])
              for _ in range(dims)]
    lead = [] if g.batched else [g.choice([1, 1, 1, 2, 3])]
    g.input([*lead, *shape])
    if g.chance(0.3):
        g.input([*lead, *shape])
    if g.chance(0.15):
        g.input([*lead, g.size(17), *shape[1:]])
