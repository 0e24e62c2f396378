#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the bundled model on the UCI handwritten digits and writes digits.onnx and its test set.

A small residual convolutional network, written out in numpy: three convolutions with batch
normalisation, two fully connected layers. 1,200 of scikit-learn's 1,797 images are trained on,
slightly distorted anew in every epoch; augmentation and number of epochs were chosen by
cross-validation among those 1,200. The other 597 are held out and looked at once, at the end: no
early stopping, no choice among runs. Everything is seeded, so the same machine gives the same file;
another BLAS may differ in the last bits.

The model takes pixels as the data set has them, 0 to 16: the scale is in the first weights.

    python3 models/train_digits.py [--epochs 80] [--output models]
"""
import argparse
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits

SEED = 20240607
TRAIN = 1200
BATCH = 48
PIXEL_MAX = 16.0


class Conv:
    """3x3, padding 1, no bias (a batch normalisation follows); columns are [N*H*W, C*9]."""

    def __init__(self, rng, c_in, c_out):
        self.w = rng.standard_normal((c_in * 9, c_out)) * np.sqrt(2.0 / (c_in * 9))
        self.params = ["w"]

    def forward(self, x, training):
        n, c, h, w = x.shape
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
        self.columns = windows.transpose(0, 2, 3, 1, 4, 5).reshape(n * h * w, c * 9)
        self.shape = x.shape
        return (self.columns @ self.w).reshape(n, h, w, -1).transpose(0, 3, 1, 2)

    def backward(self, grad):
        n, c, h, w = self.shape
        flat = grad.transpose(0, 2, 3, 1).reshape(n * h * w, -1)
        self.grad_w = self.columns.T @ flat
        spread = (flat @ self.w.T).reshape(n, h, w, c, 3, 3)
        out = np.zeros((n, c, h + 2, w + 2))
        for i in range(3):
            for j in range(3):
                out[:, :, i : i + h, j : j + w] += spread[..., i, j].transpose(0, 3, 1, 2)
        return out[:, :, 1:-1, 1:-1]


class BatchNorm:
    EPSILON = 1e-5
    MOMENTUM = 0.9

    def __init__(self, channels):
        self.scale, self.bias = np.ones(channels), np.zeros(channels)
        self.mean, self.var = np.zeros(channels), np.ones(channels)
        self.params = ["scale", "bias"]

    def forward(self, x, training):
        if training:
            mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))
            self.mean = self.MOMENTUM * self.mean + (1 - self.MOMENTUM) * mean
            self.var = self.MOMENTUM * self.var + (1 - self.MOMENTUM) * var
        else:
            mean, var = self.mean, self.var
        self.inverse = (1 / np.sqrt(var + self.EPSILON))[:, None, None]
        self.normal = (x - mean[:, None, None]) * self.inverse
        return self.normal * self.scale[:, None, None] + self.bias[:, None, None]

    def backward(self, grad):
        axes = (0, 2, 3)
        self.grad_scale, self.grad_bias = (grad * self.normal).sum(axes), grad.sum(axes)
        g = grad * self.scale[:, None, None]
        mean = g.mean(axes)[:, None, None]
        along = (g * self.normal).mean(axes)[:, None, None]
        return (g - mean - self.normal * along) * self.inverse


class Relu:
    params = []

    def forward(self, x, training):
        self.alive = x > 0
        return x * self.alive

    def backward(self, grad):
        return grad * self.alive


class MaxPool:
    """2x2, stride 2."""

    params = []

    def forward(self, x, training):
        n, c, h, w = x.shape
        tiles = x.reshape(n, c, h // 2, 2, w // 2, 2)
        out = tiles.max((3, 5))
        self.winner = tiles == out[:, :, :, None, :, None]
        return out

    def backward(self, grad):
        n, c, h, _, w, _ = self.winner.shape
        return (grad[:, :, :, None, :, None] * self.winner).reshape(n, c, 2 * h, 2 * w)


class Linear:
    def __init__(self, rng, n_in, n_out):
        self.w = rng.standard_normal((n_in, n_out)) * np.sqrt(2.0 / n_in)
        self.bias = np.zeros(n_out)
        self.params = ["w", "bias"]

    def forward(self, x, training):
        self.x = x
        return x @ self.w + self.bias

    def backward(self, grad):
        self.grad_w, self.grad_bias = self.x.T @ grad, grad.sum(0)
        return grad @ self.w.T


class Network:
    """image -> conv1 -> conv2 -> pool -> conv3 (+ its own input) -> pool -> ip1 -> ip2 -> logits"""

    def __init__(self, rng):
        self.conv = [Conv(rng, 1, 16), Conv(rng, 16, 32), Conv(rng, 32, 32)]
        self.norm = [BatchNorm(16), BatchNorm(32), BatchNorm(32)]
        self.relu = [Relu() for _ in range(4)]
        self.pool = [MaxPool(), MaxPool()]
        self.ip = [Linear(rng, 128, 64), Linear(rng, 64, 10)]
        self.layers = self.conv + self.norm + self.ip

    def forward(self, x, training=False):
        run = lambda layer, value: layer.forward(value, training)
        for i in range(2):
            x = run(self.relu[i], run(self.norm[i], run(self.conv[i], x)))
        short = run(self.pool[0], x)
        x = run(self.relu[2], run(self.norm[2], run(self.conv[2], short)) + short)
        x = run(self.pool[1], x).reshape(len(x), -1)
        return run(self.ip[1], run(self.relu[3], run(self.ip[0], x)))

    def backward(self, grad):
        grad = self.ip[0].backward(self.relu[3].backward(self.ip[1].backward(grad)))
        grad = self.pool[1].backward(grad.reshape(-1, 32, 2, 2))
        grad = self.relu[2].backward(grad)
        grad = grad + self.conv[2].backward(self.norm[2].backward(grad))
        grad = self.pool[0].backward(grad)
        for i in (1, 0):
            grad = self.conv[i].backward(self.norm[i].backward(self.relu[i].backward(grad)))


class Adam:
    def __init__(self, layers, decay):
        self.slots = [(layer, name) for layer in layers for name in layer.params]
        self.first = [np.zeros_like(getattr(*slot)) for slot in self.slots]
        self.second = [np.zeros_like(getattr(*slot)) for slot in self.slots]
        self.decay, self.steps = decay, 0

    def step(self, rate):
        self.steps += 1
        for i, (layer, name) in enumerate(self.slots):
            value, grad = getattr(layer, name), getattr(layer, "grad_" + name)
            self.first[i] += 0.1 * (grad - self.first[i])
            self.second[i] += 0.001 * (grad**2 - self.second[i])
            m = self.first[i] / (1 - 0.9**self.steps)
            v = self.second[i] / (1 - 0.999**self.steps)
            decay = self.decay * value if name == "w" else 0
            setattr(layer, name, value - rate * (m / (np.sqrt(v) + 1e-8) + decay))


def softmax(logits):
    e = np.exp(logits - logits.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def distorted(images, rng):
    """Each image rotated, sheared, scaled and moved a little, with bilinear interpolation."""
    n, centre = len(images), 3.5
    angle, shear = rng.uniform(-0.2, 0.2, (2, n, 1, 1))
    scale_y, scale_x = np.exp(rng.uniform(-0.1, 0.1, (2, n, 1, 1)))
    move_y, move_x = rng.uniform(-0.7, 0.7, (2, n, 1, 1))
    row, column = np.mgrid[0:8, 0:8] - centre
    y = (np.cos(angle) * row - np.sin(angle) * column) * scale_y + centre + move_y
    x = (np.sin(angle) * row + np.cos(angle) * column + shear * row) * scale_x + centre + move_x

    padded = np.pad(images[:, 0], ((0, 0), (2, 2), (2, 2)))
    y, x = np.clip(y + 2, 0, 10.999), np.clip(x + 2, 0, 10.999)
    top, left, k = y.astype(int), x.astype(int), np.arange(n)[:, None, None]
    down, right = y - top, x - left
    upper = padded[k, top, left] * (1 - right) + padded[k, top, left + 1] * right
    lower = padded[k, top + 1, left] * (1 - right) + padded[k, top + 1, left + 1] * right
    return (upper * (1 - down) + lower * down)[:, None]


def train(images, labels, epochs, rng):
    network = Network(rng)
    adam = Adam(network.layers, decay=1e-2)
    wanted = np.eye(10)[labels]
    for epoch in range(epochs):
        rate = 2e-3 * 0.5 * (1 + np.cos(np.pi * epoch / epochs))
        order, loss = rng.permutation(len(images)), 0.0
        for k in range(0, len(order), BATCH):
            pick = order[k : k + BATCH]
            p = softmax(network.forward(distorted(images[pick], rng), training=True))
            loss -= np.log(p[np.arange(len(pick)), labels[pick]] + 1e-12).sum()
            network.backward((p - wanted[pick]) / len(pick))
            adam.step(rate)
        print(f"epoch {epoch + 1:3d}  loss {loss / len(order):.4f}", flush=True)
    return network


def export(network):
    """The trained network as ONNX, opset 13, with a symbolic batch."""
    nodes, weights = [], []

    def constant(name, value):
        weights.append(numpy_helper.from_array(np.ascontiguousarray(value, np.float32), name))
        return name

    def node(op, name, inputs, **attributes):
        nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def conv_norm(i, x, pixel_scale):
        conv, norm, k = network.conv[i], network.norm[i], i + 1
        w = conv.w.reshape(-1, 3, 3, conv.w.shape[1]).transpose(3, 0, 1, 2) * pixel_scale
        x = node("Conv", f"conv{k}", [x, constant(f"conv{k}.weight", w)], kernel_shape=[3, 3],
                 pads=[1, 1, 1, 1])
        parts = [constant(f"bn{k}.{n}", getattr(norm, n)) for n in ("scale", "bias", "mean", "var")]
        return node("BatchNormalization", f"bn{k}", [x] + parts, epsilon=norm.EPSILON)

    def linear(i, x, name):
        ip = network.ip[i]
        parts = [constant(f"ip{i + 1}.weight", ip.w.T), constant(f"ip{i + 1}.bias", ip.bias)]
        return node("Gemm", name, [x] + parts, transB=1)

    pool = dict(kernel_shape=[2, 2], strides=[2, 2])
    x = node("Relu", "relu1", [conv_norm(0, "image", 1 / PIXEL_MAX)])
    x = node("Relu", "relu2", [conv_norm(1, x, 1)])
    short = node("MaxPool", "pool1", [x], **pool)
    x = node("Add", "sum3", [conv_norm(2, short, 1), short])
    x = node("MaxPool", "pool2", [node("Relu", "relu3", [x])], **pool)
    x = node("Relu", "relu4", [linear(0, node("Flatten", "flat", [x], axis=1), "ip1")])
    node("Softmax", "probabilities", [linear(1, x, "ip2")], axis=1)

    graph = helper.make_graph(
        nodes, "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", 10])],
        weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)],
                              producer_name="inferd train_digits.py")
    model.ir_version = 8
    onnx.checker.check_model(model, full_check=True)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=80)
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    args = parser.parse_args()

    digits = load_digits()
    rng = np.random.default_rng(SEED)
    order = rng.permutation(len(digits.target))
    images = digits.images[order].reshape(-1, 1, 8, 8)
    labels = digits.target[order]

    network = train(images[:TRAIN] / PIXEL_MAX, labels[:TRAIN], args.epochs, rng)
    guesses = network.forward(images[TRAIN:] / PIXEL_MAX).argmax(1)
    print(f"held out: {len(guesses)} images, accuracy {np.mean(guesses == labels[TRAIN:]):.4f}")

    onnx.save(export(network), args.output / "digits.onnx")
    np.save(args.output / "digits_test_images.npy", images[TRAIN:].astype(np.uint8))
    np.save(args.output / "digits_one.npy", images[TRAIN:TRAIN + 1].astype(np.float32))
    np.save(args.output / "digits_test_labels.npy", labels[TRAIN:].astype(np.uint8))


if __name__ == "__main__":
    main()
