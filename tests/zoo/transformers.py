# SPDX-License-Identifier: Apache-2.0
"""Transformers, spelled as PyTorch's exporter spells them: linear layers as MatMul and Add with a
transposed weight, reshapes whose batch is read from the tensor's shape at run time, GELU by Erf,
layer norm in its nine primitive steps (opset 13) or as LayerNormalization (opset 17)."""
import numpy as np

from graph import FLOAT, INT64, Graph


class _Encoder:
    """The parts both models are made of."""

    def __init__(self, g, hidden, heads, eps):
        self.g, self.hidden, self.heads, self.eps = g, hidden, heads, eps
        self.head_dim = hidden // heads

    def linear(self, scope, x, n_in, n_out):
        g = self.g
        y = g.node("MatMul", x, g.bell((n_in, n_out), float(np.sqrt(1.0 / n_in))), scope=scope)
        return g.node("Add", g.flat((n_out,), -0.1, 0.1, f"{scope}.bias"), y, scope=scope)

    def layer_norm(self, scope, x):
        g, n = self.g, self.hidden
        gain = g.flat((n,), 0.8, 1.2, f"{scope}.weight")
        bias = g.flat((n,), -0.1, 0.1, f"{scope}.bias")
        if g.opset >= 17:
            return g.node("LayerNormalization", x, gain, bias, scope=scope, axis=-1,
                          epsilon=self.eps)
        d = g.node("Sub", x, g.node("ReduceMean", x, scope=scope, axes=[-1]), scope=scope)
        v = g.node("ReduceMean", g.node("Pow", d, g.scalar(2.0), scope=scope), scope=scope,
                   axes=[-1])
        s = g.node("Sqrt", g.node("Add", v, g.scalar(self.eps), scope=scope), scope=scope)
        y = g.node("Mul", g.node("Div", d, s, scope=scope), gain, scope=scope)
        return g.node("Add", y, bias, scope=scope)

    def gelu(self, scope, x):
        g = self.g
        e = g.node("Erf", g.node("Div", x, g.scalar(np.float32(np.sqrt(2.0))), scope=scope),
                   scope=scope)
        y = g.node("Mul", x, g.node("Add", e, g.scalar(1.0), scope=scope), scope=scope)
        return g.node("Mul", y, g.scalar(0.5), scope=scope)

    def dim(self, x, index):
        """One dimension of x, read at run time, as a vector of one element."""
        g = self.g
        d = g.node("Gather", g.node("Shape", x), g.scalar(index, np.int64), axis=0)
        return g.node("Unsqueeze", d, g.ints(0))

    def reshape(self, scope, x, *dims):
        """dims: numbers, or values of dim()."""
        g = self.g
        parts = [d if isinstance(d, str) else g.ints(d) for d in dims]
        return g.node("Reshape", x, g.node("Concat", *parts, axis=0), scope=scope)

    def feed_forward(self, scope, x, names):
        y = self.linear(f"{scope}.{names[0]}", x, self.hidden, 4 * self.hidden)
        return self.linear(f"{scope}.{names[1]}", self.gelu(scope, y), 4 * self.hidden, self.hidden)


def _bert_attention(e, scope, x, mask):
    g, s = e.g, f"{scope}.attention.self"

    def heads(name, perm):
        y = e.linear(f"{s}.{name}", x, e.hidden, e.hidden)
        y = e.reshape(s, y, e.dim(y, 0), e.dim(y, 1), e.heads, e.head_dim)
        return g.node("Transpose", y, scope=s, perm=perm)

    q, k, v = heads("query", [0, 2, 1, 3]), heads("key", [0, 2, 3, 1]), heads("value", [0, 2, 1, 3])
    scores = g.node("Div", g.node("MatMul", q, k, scope=s),
                    g.scalar(np.float32(np.sqrt(e.head_dim))), scope=s)
    p = g.node("Softmax", g.node("Add", scores, mask, scope=s), scope=s, axis=-1)
    y = g.node("Transpose", g.node("MatMul", p, v, scope=s), scope=s, perm=[0, 2, 1, 3])
    y = e.reshape(s, y, e.dim(y, 0), e.dim(y, 1), e.hidden)
    return e.linear(f"{scope}.attention.output.dense", y, e.hidden, e.hidden)


def bert(name="bert_base", opset=13, seed=60, layers=12, hidden=768, heads=12, vocabulary=30522,
         seq=128, positions=512):
    """seq None: a symbolic sequence length too."""
    g = Graph(name, opset, seed * 1000)
    e = _Encoder(g, hidden, heads, 1e-12)
    s = seq or "sequence"
    ids = g.input("input_ids", ["batch", s], INT64)
    mask = g.input("attention_mask", ["batch", s], INT64)
    types = g.input("token_type_ids", ["batch", s], INT64)
    m = g.node("Unsqueeze", g.node("Unsqueeze", mask, g.ints(1)), g.ints(2))
    m = g.node("Sub", g.scalar(1.0), g.node("Cast", m, to=FLOAT))
    m = g.node("Mul", m, g.scalar(np.float32(-10000.0)))
    where = g.node("Slice", g.weight(np.arange(positions, dtype=np.int64)[None], "position_ids"),
                   g.ints(0), e.dim(ids, 1), g.ints(1), g.ints(1))
    x = g.node("Add",
               g.node("Gather", g.bell((vocabulary, hidden), 0.05, name="word_embeddings"), ids),
               g.node("Gather", g.bell((2, hidden), 0.05, name="token_type_embeddings"), types))
    x = g.node("Add", x, g.node("Gather", g.bell((positions, hidden), 0.05,
                                                 name="position_embeddings"), where))
    x = e.layer_norm("embeddings.LayerNorm", x)
    for i in range(layers):
        scope = f"encoder.layer.{i}"
        y = _bert_attention(e, scope, x, m)
        x = e.layer_norm(f"{scope}.attention.output.LayerNorm", g.node("Add", y, x, scope=scope))
        y = e.feed_forward(scope, x, ("intermediate.dense", "output.dense"))
        x = e.layer_norm(f"{scope}.output.LayerNorm", g.node("Add", y, x, scope=scope))
    first = g.node("Gather", x, g.scalar(0, np.int64), axis=1)
    y = g.node("Gemm", first, g.bell((hidden, hidden), float(np.sqrt(1.0 / hidden))),
               g.flat((hidden,), -0.1, 0.1), alpha=1.0, beta=1.0, transB=1)
    g.output(x, "last_hidden_state", ["batch", s, hidden])
    g.output(g.node("Tanh", y), "pooler_output", ["batch", hidden])
    return g


def bert_tiny():
    """Two small layers with the opset 17 spelling and a symbolic length, for quick tests."""
    return bert("bert_tiny", 17, 61, layers=2, hidden=96, heads=4, vocabulary=500, seq=None,
                positions=64)


def _root_of_scale(g, scope, q):
    """sqrt(1 / sqrt(size of a head)) as PyTorch 2 exports scaled_dot_product_attention."""
    last = g.node("Slice", g.node("Shape", q, scope=scope), g.ints(-1), g.ints(2 ** 63 - 1),
                  scope=scope)
    root = g.node("Sqrt", g.node("Cast", last, scope=scope, to=FLOAT), scope=scope)
    return g.node("Sqrt", g.node("Div", g.scalar(1.0), root, scope=scope), scope=scope)


def vit(name="vit_b_16", opset=17, seed=62, layers=12, hidden=768, heads=12, patch=16, size=224,
        classes=1000, sdpa=False):
    """sdpa: the spelling of PyTorch 2, whose queries and keys both take the root of the scale."""
    g = Graph(name, opset, seed * 1000)
    e = _Encoder(g, hidden, heads, 1e-6)
    x = g.input("input", ["batch", 3, size, size])
    n = (size // patch) ** 2
    batch = e.dim(x, 0)
    fan_in = 3 * patch * patch
    x = g.node("Conv", x, g.bell((hidden, 3, patch, patch), float(np.sqrt(1.0 / fan_in))),
               g.flat((hidden,), -0.1, 0.1), kernel_shape=[patch, patch], strides=[patch, patch],
               pads=[0, 0, 0, 0], dilations=[1, 1], group=1)
    x = g.node("Transpose", e.reshape("patch", x, batch, hidden, n), perm=[0, 2, 1])
    token = g.node("Expand", g.bell((1, 1, hidden), 1.0, name="class_token"),
                   g.node("Concat", batch, g.ints(1), g.ints(1), axis=0))
    x = g.node("Concat", token, x, axis=1)
    x = g.node("Add", x, g.bell((1, n + 1, hidden), 0.2, name="pos_embedding"))
    for i in range(layers):
        scope = f"blocks.{i}"
        y = e.linear(f"{scope}.attn.qkv", e.layer_norm(f"{scope}.norm1", x), hidden, 3 * hidden)
        y = e.reshape(scope, y, batch, n + 1, 3, heads, e.head_dim)
        y = g.node("Transpose", y, scope=scope, perm=[2, 0, 3, 1, 4])
        q, k, v = (g.node("Gather", y, g.scalar(j, np.int64), scope=scope, axis=0)
                   for j in range(3))
        kt = g.node("Transpose", k, scope=scope, perm=[0, 1, 3, 2])
        if sdpa:
            kt = g.node("Mul", kt, _root_of_scale(g, scope, q), scope=scope)
            q = g.node("Mul", q, _root_of_scale(g, scope, q), scope=scope)
        else:
            q = g.node("Mul", q, g.scalar(np.float32(e.head_dim ** -0.5)), scope=scope)
        scores = g.node("MatMul", q, kt, scope=scope)
        p = g.node("Softmax", scores, scope=scope, axis=-1)
        y = g.node("Transpose", g.node("MatMul", p, v, scope=scope), scope=scope,
                   perm=[0, 2, 1, 3])
        y = e.reshape(scope, y, batch, n + 1, hidden)
        x = g.node("Add", x, e.linear(f"{scope}.attn.proj", y, hidden, hidden), scope=scope)
        y = e.feed_forward(scope, e.layer_norm(f"{scope}.norm2", x), ("mlp.fc1", "mlp.fc2"))
        x = g.node("Add", x, y, scope=scope)
    first = g.node("Gather", e.layer_norm("norm", x), g.scalar(0, np.int64), axis=1)
    y = g.node("Gemm", first, g.bell((classes, hidden), float(np.sqrt(1.0 / hidden))),
               g.flat((classes,), -0.1, 0.1), alpha=1.0, beta=1.0, transB=1)
    g.output(y, "output", ["batch", classes])
    return g
