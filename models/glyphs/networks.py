# SPDX-License-Identifier: Apache-2.0
"""Three small networks from [N,1,64,64] pixels (0 to 255) to the scores of 62 classes."""
import torch
from torch import nn

CLASSES = 62


class ConvNorm(nn.Sequential):
    """Convolution, batch normalisation, activation; the first two become one when trained."""

    def __init__(self, c_in, c_out, size=3, stride=1, groups=1, activation=nn.ReLU):
        super().__init__(nn.Conv2d(c_in, c_out, size, stride, size // 2, groups=groups, bias=False),
                         nn.BatchNorm2d(c_out), activation() if activation else nn.Identity())

    def join(self):
        if isinstance(self[1], nn.BatchNorm2d):
            self[0] = nn.utils.fusion.fuse_conv_bn_eval(self[0], self[1])
            self[1] = nn.Identity()


class Pixels(nn.Module):
    def forward(self, x):
        return x * (1 / 255)


class Pool(nn.Module):
    def forward(self, x):
        return x.mean((2, 3))


class ResidualBlock(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.first = ConvNorm(c_in, c_out, 3, stride)
        self.second = ConvNorm(c_out, c_out, activation=None)
        self.short = ConvNorm(c_in, c_out, 1, stride, activation=None) \
            if stride != 1 or c_in != c_out else nn.Identity()
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.relu(self.second(self.first(x)) + self.short(x))


def residual():
    blocks, channels = [], 32
    for wide in (32, 64, 128):
        blocks += [ResidualBlock(channels, wide, 2), ResidualBlock(wide, wide, 1)]
        channels = wide
    return nn.Sequential(Pixels(), ConvNorm(1, 32, 3, 2), *blocks, Pool(),
                         nn.Linear(channels, CLASSES))


class InvertedResidual(nn.Module):
    def __init__(self, c_in, c_out, stride, expand):
        super().__init__()
        inner = c_in * expand
        layers = [ConvNorm(c_in, inner, 1, activation=nn.ReLU6)] if expand != 1 else []
        layers += [ConvNorm(inner, inner, 3, stride, inner, nn.ReLU6),
                   ConvNorm(inner, c_out, 1, activation=None)]
        self.layers = nn.Sequential(*layers)
        self.short = stride == 1 and c_in == c_out

    def forward(self, x):
        return x + self.layers(x) if self.short else self.layers(x)


def mobilenet():
    """MobileNet v2 with narrower and fewer stages."""
    blocks, channels = [], 24
    for expand, wide, count, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 3, 1),
                                        (6, 96, 2, 2)):
        for i in range(count):
            blocks.append(InvertedResidual(channels, wide, stride if i == 0 else 1, expand))
            channels = wide
    return nn.Sequential(Pixels(), ConvNorm(1, 24, 3, 2, activation=nn.ReLU6), *blocks,
                         ConvNorm(channels, 512, 1, activation=nn.ReLU6), Pool(),
                         nn.Linear(512, CLASSES))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        width = x.shape[2]
        q, k, v = self.qkv(x).reshape(-1, 64, 3, self.heads, width // self.heads) \
                             .permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q @ k.transpose(-2, -1)) * (width // self.heads) ** -0.5
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, 64, width))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(),
                                 nn.Linear(3 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """Three convolutions make 8x8 tokens, which is easier to train than patches of pixels."""

    def __init__(self, width=128, depth=6, heads=4):
        super().__init__()
        self.stem = nn.Sequential(Pixels(), ConvNorm(1, 32, 3, 2), ConvNorm(32, 64, 3, 2),
                                  ConvNorm(64, width, 3, 2, activation=None))
        self.place = nn.Parameter(0.02 * torch.randn(1, 64, width))
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, x):
        tokens = self.stem(x).flatten(2).transpose(1, 2) + self.place
        return self.head(self.norm(self.layers(tokens)).mean(1))


NETWORKS = {"residual": residual, "mobilenet": mobilenet, "transformer": Transformer}


def join(network):
    """Batch normalisation into the convolutions before it; the network is for inference then."""
    network.eval()
    for module in network.modules():
        if isinstance(module, ConvNorm):
            module.join()
    return network


@torch.no_grad()
def to_halves(network):
    """Weights as FP16 holds them, which is how they are stored."""
    for value in network.parameters():
        value.copy_(value.half().float())
    return network
