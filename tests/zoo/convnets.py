# SPDX-License-Identifier: Apache-2.0
"""Convolutional networks. Weights are scaled by He's rule and batch norms carry the statistics that
follow from it, so that activations keep their size through the whole depth."""
import numpy as np

from graph import Graph


def _conv(g, scope, x, c_in, c_out, k, stride=1, pad=0, group=1, bias=False):
    kh, kw = (k, k) if isinstance(k, int) else k
    ph, pw = (pad, pad) if isinstance(pad, int) else pad
    fan_in = c_in // group * kh * kw
    w = g.bell((c_out, c_in // group, kh, kw), float(np.sqrt(2.0 / fan_in)),
               name=f"{scope}.weight")
    inputs = [x, w] + ([g.flat((c_out,), -0.1, 0.1, f"{scope}.bias")] if bias else [])
    return g.node("Conv", *inputs, scope=scope, kernel_shape=[kh, kw], strides=[stride, stride],
                  pads=[ph, pw, ph, pw], dilations=[1, 1], group=group)


def _batch_norm(g, scope, x, c, gain=1.0, eps=1e-5):
    return g.node("BatchNormalization", x,
                  g.flat((c,), 0.8 * gain, 1.2 * gain, f"{scope}.weight"),
                  g.flat((c,), -0.1, 0.1, f"{scope}.bias"),
                  g.flat((c,), -0.1, 0.1, f"{scope}.running_mean"),
                  g.flat((c,), 0.75, 1.25, f"{scope}.running_var"),
                  scope=scope, epsilon=eps, momentum=0.9)


def _linear(g, scope, x, n_in, n_out):
    weight = g.bell((n_out, n_in), float(np.sqrt(1.0 / n_in)), name=f"{scope}.weight")
    return g.node("Gemm", x, weight,
                  g.flat((n_out,), -0.1, 0.1, f"{scope}.bias"), scope=scope,
                  alpha=1.0, beta=1.0, transB=1)


def resnet50(seed=50, size=224, widths=(64, 128, 256, 512), depths=(3, 4, 6, 3), classes=1000,
             name="resnet50"):
    """ResNet-50 v1.5: the stride is in the 3x3 convolution."""
    g = Graph(name, 13, seed * 1000)
    x = g.input("input", ["batch", 3, size, size])
    c = widths[0]
    x = _conv(g, "conv1", x, 3, c, 7, 2, 3)
    x = g.node("Relu", _batch_norm(g, "bn1", x, c), scope="relu")
    x = g.node("MaxPool", x, scope="maxpool", kernel_shape=[3, 3], strides=[2, 2],
               pads=[1, 1, 1, 1], dilations=[1, 1], ceil_mode=0)
    for stage, (width, depth) in enumerate(zip(widths, depths)):
        for block in range(depth):
            s = f"layer{stage + 1}.{block}"
            stride = 2 if stage and not block else 1
            y = g.node("Relu", _batch_norm(g, f"{s}.bn1", _conv(g, f"{s}.conv1", x, c, width, 1),
                                           width), scope=s)
            y = _conv(g, f"{s}.conv2", y, width, width, 3, stride, 1)
            y = g.node("Relu", _batch_norm(g, f"{s}.bn2", y, width), scope=s)
            y = _conv(g, f"{s}.conv3", y, width, 4 * width, 1)
            y = _batch_norm(g, f"{s}.bn3", y, 4 * width, 0.5)
            if not block:
                x = _conv(g, f"{s}.downsample.0", x, c, 4 * width, 1, stride)
                x = _batch_norm(g, f"{s}.downsample.1", x, 4 * width)
            x = g.node("Relu", g.node("Add", y, x, scope=s), scope=s)
            c = 4 * width
    x = g.node("Flatten", g.node("GlobalAveragePool", x, scope="avgpool"), axis=1)
    g.output(_linear(g, "fc", x, c, classes), "output", ["batch", classes])
    return g


def resnet_tiny():
    """The same graph with few channels, for quick tests."""
    return resnet50(seed=51, size=64, widths=(16, 24, 32, 48), depths=(1, 2, 1, 1), classes=10,
                    name="resnet_tiny")


def mobilenet_v2(seed=52, size=224):
    g = Graph("mobilenet_v2", 13, seed * 1000)
    six, zero = g.scalar(6.0), g.scalar(0.0)

    def conv_bn(scope, x, c_in, c_out, k, stride=1, group=1, relu=True):
        x = _conv(g, f"{scope}.0", x, c_in, c_out, k, stride, k // 2, group)
        x = _batch_norm(g, f"{scope}.1", x, c_out, 1.0 if relu else 0.7)
        return g.node("Clip", x, zero, six, scope=scope) if relu else x

    x = conv_bn("features.0", g.input("input", ["batch", 3, size, size]), 3, 32, 3, 2)
    c, n = 32, 0
    for expand, c_out, repeat, first_stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2),
                                                (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
                                                (6, 320, 1, 1)):
        for i in range(repeat):
            n += 1
            s, stride, hidden = f"features.{n}.conv", first_stride if not i else 1, c * expand
            y = conv_bn(f"{s}.0", x, c, hidden, 1) if expand > 1 else x
            y = conv_bn(f"{s}.1", y, hidden, hidden, 3, stride, hidden)
            y = conv_bn(f"{s}.2", y, hidden, c_out, 1, relu=False)
            x = g.node("Add", x, y, scope=s) if stride == 1 and c == c_out else y
            c = c_out
    x = conv_bn("features.18", x, c, 1280, 1)
    x = g.node("Flatten", g.node("GlobalAveragePool", x), axis=1)
    g.output(_linear(g, "classifier.1", x, 1280, 1000), "output", ["batch", 1000])
    return g


def inception_v3(seed=53, size=299):
    g = Graph("inception_v3", 13, seed * 1000)

    def conv(scope, x, c_in, c_out, k, stride=1, pad=0):
        x = _conv(g, f"{scope}.conv", x, c_in, c_out, k, stride, pad)
        return g.node("Relu", _batch_norm(g, f"{scope}.bn", x, c_out, eps=1e-3), scope=scope)

    def max_pool(x):
        return g.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 0, 0],
                      dilations=[1, 1], ceil_mode=0)

    def pool_branch(scope, x, c_in, c_out):
        x = g.node("AveragePool", x, scope=scope, kernel_shape=[3, 3], strides=[1, 1],
                   pads=[1, 1, 1, 1], ceil_mode=0, count_include_pad=1)
        return conv(f"{scope}.branch_pool", x, c_in, c_out, 1)

    def chain(scope, x, c, *steps):
        for i, (c_out, k, stride, pad) in enumerate(steps):
            x, c = conv(f"{scope}_{i + 1}", x, c, c_out, k, stride, pad), c_out
        return x

    def join(scope, *branches):
        return g.node("Concat", *branches, scope=scope, axis=1)

    x = chain("Conv2d", g.input("input", ["batch", 3, size, size]), 3, (32, 3, 2, 0),
              (32, 3, 1, 0), (64, 3, 1, 1))
    x = chain("Conv2d_3b", max_pool(x), 64, (80, 1, 1, 0), (192, 3, 1, 0))
    x, c = max_pool(x), 192
    for s, pool in (("Mixed_5b", 32), ("Mixed_5c", 64), ("Mixed_5d", 64)):
        x = join(s, chain(f"{s}.branch1x1", x, c, (64, 1, 1, 0)),
                 chain(f"{s}.branch5x5", x, c, (48, 1, 1, 0), (64, 5, 1, 2)),
                 chain(f"{s}.branch3x3dbl", x, c, (64, 1, 1, 0), (96, 3, 1, 1), (96, 3, 1, 1)),
                 pool_branch(s, x, c, pool))
        c = 224 + pool
    x = join("Mixed_6a", chain("Mixed_6a.branch3x3", x, c, (384, 3, 2, 0)),
             chain("Mixed_6a.branch3x3dbl", x, c, (64, 1, 1, 0), (96, 3, 1, 1), (96, 3, 2, 0)),
             max_pool(x))
    c = 768
    for s, m in (("Mixed_6b", 128), ("Mixed_6c", 160), ("Mixed_6d", 160), ("Mixed_6e", 192)):
        row, column = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))
        x = join(s, chain(f"{s}.branch1x1", x, c, (192, 1, 1, 0)),
                 chain(f"{s}.branch7x7", x, c, (m, 1, 1, 0), (m, *row), (192, *column)),
                 chain(f"{s}.branch7x7dbl", x, c, (m, 1, 1, 0), (m, *column), (m, *row),
                       (m, *column), (192, *row)),
                 pool_branch(s, x, c, 192))
    x = join("Mixed_7a", chain("Mixed_7a.branch3x3", x, c, (192, 1, 1, 0), (320, 3, 2, 0)),
             chain("Mixed_7a.branch7x7x3", x, c, (192, 1, 1, 0), (192, (1, 7), 1, (0, 3)),
                   (192, (7, 1), 1, (3, 0)), (192, 3, 2, 0)), max_pool(x))
    c = 1280
    for s in ("Mixed_7b", "Mixed_7c"):
        a = chain(f"{s}.branch3x3", x, c, (384, 1, 1, 0))
        b = chain(f"{s}.branch3x3dbl", x, c, (448, 1, 1, 0), (384, 3, 1, 1))
        wide = ((1, 3), 1, (0, 1)), ((3, 1), 1, (1, 0))
        forks = [join(f"{s}.{n}", *(chain(f"{s}.{n}.{i}", y, 384, (384, *step))
                                    for i, step in enumerate(wide)))
                 for n, y in (("branch3x3", a), ("branch3x3dbl", b))]
        x = join(s, chain(f"{s}.branch1x1", x, c, (320, 1, 1, 0)), *forks,
                 pool_branch(s, x, c, 192))
        c = 2048
    x = g.node("Flatten", g.node("GlobalAveragePool", x), axis=1)
    g.output(_linear(g, "fc", x, c, 1000), "output", ["batch", 1000])
    return g


def densenet_tiny(seed=55, size=32, growth=8):
    """A patch of 2x2, and a dense block: each layer normalises all that came before it."""
    g = Graph("densenet_tiny", 13, seed * 1000)
    x = g.input("input", ["batch", 4, size, size])
    parts, c = [_conv(g, "patches", x, 4, 16, 2, 2, bias=True)], 16
    for i in range(3):
        s = f"layer{i + 1}"
        x = parts[0] if i == 0 else g.node("Concat", *parts, scope=s, axis=1)
        y = g.node("Relu", _batch_norm(g, f"{s}.norm1", x, c), scope=s)
        y = g.node("Relu", _conv(g, f"{s}.conv1", y, c, 4 * growth, 1, bias=True), scope=s)
        parts.append(_conv(g, f"{s}.conv2", y, 4 * growth, growth, 3, 1, 1))
        c += growth
    x = g.node("Relu", _batch_norm(g, "norm", g.node("Concat", *parts, axis=1), c))
    x = g.node("Flatten", g.node("GlobalAveragePool", x), axis=1)
    g.output(_linear(g, "fc", x, c, 10), "output", ["batch", 10])
    return g


def vgg16(seed=54, size=224):
    g = Graph("vgg16", 13, seed * 1000)
    x, c, n = g.input("input", ["batch", 3, size, size]), 3, 0
    for stage, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(depth):
            x = g.node("Relu", _conv(g, f"features.{n}", x, c, stage, 3, 1, 1, bias=True))
            c, n = stage, n + 1
        x = g.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], pads=[0, 0, 0, 0],
                   dilations=[1, 1], ceil_mode=0)
    x, c = g.node("Flatten", x, axis=1), c * (size // 32) ** 2
    for i in (0, 3):
        x, c = g.node("Relu", _linear(g, f"classifier.{i}", x, c, 4096)), 4096
    g.output(_linear(g, "classifier.6", x, c, 1000), "output", ["batch", 1000])
    return g
