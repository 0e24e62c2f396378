# SPDX-License-Identifier: Apache-2.0
"""Peers on one GPU, through PyTorch: ceilings, ResNet-50 and BERT-base in fp16 under CUDA graphs,
inputs resident. Times are medians over event timings of graph replays, in milliseconds."""
import statistics
import time

import torch
import torch.nn.functional as F

DEVICE = "cuda"


def timed(replay, samples=30, warm=5):
    """Median time of one replay, in ms."""
    for _ in range(warm):
        replay()
    torch.cuda.synchronize()
    times = []
    for _ in range(samples):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def graphed(function):
    """Captures the function after three warm-up runs; returns the replay."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        graph.output = function()
    return graph.replay


def ceilings():
    a = torch.randn(8192, 8192, device=DEVICE, dtype=torch.float16)
    b = torch.randn_like(a)
    gemm = timed(graphed(lambda: a @ b))
    x = torch.empty(2**30, device=DEVICE, dtype=torch.uint8).random_()
    y = torch.empty_like(x)
    copy = timed(lambda: y.copy_(x))
    host = torch.empty(2**28, dtype=torch.uint8).pin_memory()
    to_device = timed(lambda: y[:2**28].copy_(host, non_blocking=True))
    return {"gemm_tflops": 2 * 8192**3 / gemm / 1e9, "copy_tb_s": 2 * 2**30 / copy / 1e9,
            "h2d_gb_s": 2**28 / to_device / 1e6}


class ResNet50:
    """torchvision's network, once plain and once with every convolution as one fused cuDNN call."""

    def __init__(self):
        import torchvision
        torch.manual_seed(0)
        torch.backends.cudnn.benchmark = True
        self.plain = torchvision.models.resnet50(weights=None).eval().to(DEVICE)
        for module in self.plain.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.running_mean.uniform_(-.1, .1)
                module.running_var.uniform_(.5, 1.5)
        self.stem = self.fold(self.plain.conv1, self.plain.bn1)
        self.blocks = [self.block(b) for layer in ("layer1", "layer2", "layer3", "layer4")
                       for b in getattr(self.plain, layer)]
        self.weight, self.bias = self.plain.fc.weight.half(), self.plain.fc.bias.half()
        self.plain = self.plain.half().to(memory_format=torch.channels_last)

    @staticmethod
    def fold(conv, norm):
        scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
        weight = (conv.weight * scale[:, None, None, None]).half()
        bias = (norm.bias - norm.running_mean * scale).half()
        return (weight.contiguous(memory_format=torch.channels_last), bias, conv.stride,
                conv.padding, conv.dilation, conv.groups)

    def block(self, b):
        down = self.fold(b.downsample[0], b.downsample[1]) if b.downsample is not None else None
        return (self.fold(b.conv1, b.bn1), self.fold(b.conv2, b.bn2), self.fold(b.conv3, b.bn3),
                down)

    def fused(self, x):
        def relu(x, p):
            return torch.cudnn_convolution_relu(x, *p)

        x = F.max_pool2d(relu(x, self.stem), 3, 2, 1)
        for one, two, three, down in self.blocks:
            z = x if down is None else F.conv2d(x, *down)
            x = torch.cudnn_convolution_add_relu(relu(relu(x, one), two), three[0], z, 1.0,
                                                 *three[1:])
        return F.linear(x.mean((2, 3)), self.weight, self.bias)

    @staticmethod
    def input(batch):
        x = torch.randn(batch, 3, 224, 224, device=DEVICE, dtype=torch.float16)
        return x.contiguous(memory_format=torch.channels_last)

    def times(self, batch):
        x = self.input(batch)
        return {"eager + graph": timed(graphed(lambda: self.plain(x))),
                "fused convolutions + graph": timed(graphed(lambda: self.fused(x)))}

    def compiled(self, batch):
        """Minutes: only where it was asked for."""
        torch._dynamo.reset()
        x, begun = self.input(batch), time.time()
        run = torch.compile(self.plain, mode="max-autotune")
        for _ in range(2):
            run(x)
        torch.cuda.synchronize()
        return {"torch.compile max-autotune": timed(lambda: run(x)),
                "torch.compile took s": time.time() - begun}


class Bert:
    """BERT-base's encoder with its embeddings, written for PyTorch's fastest calls: one linear
    layer for query, key and value, scaled_dot_product_attention, fused layer norm and GELU."""
    LAYERS, HIDDEN, HEADS, SEQ, WORDS = 12, 768, 12, 128, 30522

    def __init__(self):
        torch.manual_seed(0)
        h = self.HIDDEN

        def weight(*shape):
            return (torch.randn(*shape, device=DEVICE) * shape[-1] ** -0.5).half()

        def norm():
            return (torch.ones(h, device=DEVICE).half(), torch.zeros(h, device=DEVICE).half())

        self.words, self.types, self.positions = weight(self.WORDS, h), weight(2, h), weight(512, h)
        self.norm = norm()
        self.layers = [(weight(3 * h, h), weight(3 * h), weight(h, h), weight(h), norm(),
                        weight(4 * h, h), weight(4 * h), weight(h, 4 * h), weight(h), norm())
                       for _ in range(self.LAYERS)]
        self.pool = (weight(h, h), weight(h))

    def run(self, ids, mask):
        b, s, h = ids.shape[0], self.SEQ, self.HIDDEN
        x = self.words[ids] + self.types[0] + self.positions[:s]
        x = F.layer_norm(x, (h,), *self.norm)
        bias = None if mask is None else ((1 - mask[:, None, None, :].half()) * -10000.0)
        for qkv, qkv_b, out, out_b, n1, up, up_b, down, down_b, n2 in self.layers:
            q, k, v = F.linear(x, qkv, qkv_b).view(b, s, 3, self.HEADS, -1).unbind(2)
            y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2),
                                               v.transpose(1, 2), attn_mask=bias)
            y = F.linear(y.transpose(1, 2).reshape(b, s, h), out, out_b)
            x = F.layer_norm(x + y, (h,), *n1)
            y = F.linear(F.gelu(F.linear(x, up, up_b)), down, down_b)
            x = F.layer_norm(x + y, (h,), *n2)
        return x, torch.tanh(F.linear(x[:, 0], *self.pool))

    def times(self, batch):
        ids = torch.randint(0, self.WORDS, (batch, self.SEQ), device=DEVICE)
        mask = torch.ones(batch, self.SEQ, device=DEVICE, dtype=torch.int64)
        with torch.no_grad():
            return {"SDPA with mask + graph": timed(graphed(lambda: self.run(ids, mask))),
                    "SDPA without mask + graph": timed(graphed(lambda: self.run(ids, None)))}
