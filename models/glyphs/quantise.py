# SPDX-License-Identifier: Apache-2.0
"""A trained network becomes quantisation-aware: it rounds to 8 bits while it goes on learning.

Weights are symmetric INT8 with a scale for each channel of the output. What convolutions and
products read is UINT8 if it has no negative values, otherwise symmetric INT8; its range is that of
a few batches. Gradients pass rounding as if it were not there.
"""
import torch
from torch import nn

from networks import Pixels

BATCHES = 20  # that ranges are taken from


class Rounded(nn.Module):
    """Values as 8 bits hold them, once `scale` is known."""

    def __init__(self, device):
        super().__init__()
        self.low, self.high = torch.zeros((), device=device), torch.zeros((), device=device)
        self.watches, self.signed = True, False
        self.register_buffer("scale", torch.ones(1, device=device))
        self.register_buffer("zero", torch.zeros(1, dtype=torch.int32, device=device))

    def forward(self, x):
        if self.watches:
            self.low = torch.minimum(self.low, x.min())
            self.high = torch.maximum(self.high, x.max())
            return x
        least, most = (-128, 127) if self.signed else (0, 255)
        return torch.fake_quantize_per_tensor_affine(x, self.scale, self.zero, least, most)

    def settle(self):
        self.watches, self.signed = False, bool(self.low < 0)
        span = torch.maximum(self.high, -self.low) / 127 if self.signed else self.high / 255
        self.scale[0] = span.clamp(min=1e-8)


class Quantised(nn.Module):
    """A convolution or product of rounded values with rounded weights."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.data = layer, Rounded(layer.weight.device)
        zeros = torch.zeros(len(layer.weight), dtype=torch.int32, device=layer.weight.device)
        self.register_buffer("zeros", zeros)
        self.register_buffer("scale", None)

    def scales(self):
        if self.scale is not None:
            return self.scale
        return (self.layer.weight.detach().flatten(1).abs().amax(1) / 127).clamp(min=1e-8)

    def weight(self):
        # no weight is -128, since the largest magnitude is 127 steps
        return torch.fake_quantize_per_channel_affine(self.layer.weight, self.scales(), self.zeros,
                                                      0, -128, 127)

    @torch.no_grad()
    def freeze(self):
        self.scale = self.scales()
        self.layer.weight.copy_(self.weight())

    def forward(self, x):
        x, w = self.data(x), self.layer.weight if self.data.watches else self.weight()
        if isinstance(self.layer, nn.Linear):
            return nn.functional.linear(x, w, self.layer.bias)
        return self.layer._conv_forward(x, w, self.layer.bias)


def replace(module):
    for name, child in module.named_children():
        if isinstance(child, Pixels):
            setattr(module, name, nn.Identity())
        elif isinstance(child, (nn.Conv2d, nn.Linear)):
            setattr(module, name, Quantised(child))
        else:
            replace(child)


def rounded(network):
    return [m for m in network.modules() if isinstance(m, Rounded)]


@torch.no_grad()
def make_aware(network, batches):
    """`network` is joined; `batches` gives images. In place."""
    first = next(m for m in network.modules() if isinstance(m, nn.Conv2d))
    first.weight *= 1 / 255  # the first convolution reads bytes, which need no rounding
    replace(network)
    for i in range(BATCHES):
        network(batches(i))
    for data in rounded(network):
        data.settle()
    return network


def freeze(network):
    """Scales of weights become constants, and weights are what 8 bits hold."""
    for module in network.modules():
        if isinstance(module, Quantised):
            module.freeze()
    return network
