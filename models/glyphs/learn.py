# SPDX-License-Identifier: Apache-2.0
"""One network learns from drawn images: AdamW, warm-up and cosine, averaged weights.

On a GPU everything stays there: many batches of bytes are drawn at once, and one step (forward,
backward, update, average) is captured as a graph and replayed, because networks as small as these
would wait for launches otherwise.
"""
import copy
import math
import time

import torch
from torch import nn

WARM = 0.06           # of all steps, until the rate is reached
DECAY = 0.02
SMOOTH = 0.05         # of the wanted answer goes to all classes
LARGEST = 1.0         # norm of all gradients
DRAWN = {"cuda": 16384, "cpu": 1024}  # images at once
EAGER = 4             # steps before the graph is captured


def rate_at(progress):
    """The part of the full rate, when `progress` (0 to 1) of the work is done."""
    if progress < WARM:
        return 0.01 + 0.99 * progress / WARM
    return 0.5 * (1 + math.cos(math.pi * min(1, (progress - WARM) / (1 - WARM))))


def images_of(batch):
    return batch.float().contiguous(memory_format=torch.channels_last)


def floats(network):
    """All that is averaged: weights and the statistics of normalisation."""
    return [t for t in network.state_dict(keep_vars=True).values() if t.is_floating_point()]


class Learner:
    """`plan` has rate, steps, batch, short (BF16), seconds (None: no limit), graph."""

    def __init__(self, network, drawer, plan, seed):
        self.network, self.drawer, self.plan, self.seed = network, drawer, plan, seed
        self.device = drawer.device
        self.average = copy.deepcopy(network).eval().requires_grad_(False)
        self.pairs = [t.detach() for t in floats(self.average)], \
                     [t.detach() for t in floats(network)]
        self.share = 1 / max(1.0, min(1000, plan.steps / 50))
        self.rate = torch.zeros((), device=self.device)
        weights = [p for p in network.parameters() if p.requires_grad]
        groups = [{"params": [p for p in weights if p.ndim > 1], "weight_decay": DECAY},
                  {"params": [p for p in weights if p.ndim <= 1], "weight_decay": 0}]
        cuda = self.device.type == "cuda"
        self.adam = torch.optim.AdamW(groups, lr=self.rate, fused=True, capturable=cuda)
        self.wrong = nn.CrossEntropyLoss(label_smoothing=SMOOTH)
        self.images = torch.zeros(plan.batch, 1, 64, 64, dtype=torch.uint8, device=self.device)
        self.labels = torch.zeros(plan.batch, dtype=torch.int64, device=self.device)
        self.loss, self.right = (torch.zeros((), device=self.device) for _ in range(2))
        self.graph, self.queue, self.drawn = None, [], 0
        self.begun, self.done = time.monotonic(), 0

    def fetch(self):
        """The next batch, into the tensors that the graph reads."""
        if not self.queue:
            size = self.plan.batch
            count = max(1, DRAWN[self.device.type] // size)
            images, labels = self.drawer.draw(count * size, (self.seed << 32) + self.drawn)
            self.queue = list(zip(images.split(size), labels.split(size)))
            self.drawn += 1
        images, labels = self.queue.pop()
        self.images.copy_(images)
        self.labels.copy_(labels)

    def compute(self):
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.plan.short):
            scores = self.network(images_of(self.images))
        loss = self.wrong(scores.float(), self.labels)
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), LARGEST)
        self.adam.step()
        torch._foreach_lerp_(*self.pairs, self.share)
        self.loss += loss.detach()
        self.right += (scores.detach().argmax(1) == self.labels).sum()
        self.adam.zero_grad(set_to_none=True)

    def capture(self):
        """Later steps are replayed; capturing itself computes nothing."""
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.compute()

    def on_a_side(self):
        """A step on another stream, as capturing wants the first ones to be."""
        stream, here = torch.cuda.Stream(), torch.cuda.current_stream()
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            self.compute()
        here.wait_stream(stream)

    def progress(self):
        seconds, limit = time.monotonic() - self.begun, self.plan.seconds
        return max(self.done / self.plan.steps, seconds / limit if limit else 0)

    def step(self):
        graphs = self.device.type == "cuda" and self.plan.graph
        self.fetch()
        self.rate.fill_(self.plan.rate * rate_at(self.progress()))
        if graphs and self.graph is None and self.done == EAGER:
            self.capture()
        if self.graph:
            self.graph.replay()
        elif graphs:
            self.on_a_side()
        else:
            self.compute()
        self.done += 1

    def learn(self, each, report):
        """Calls `report(epoch, loss, percent right)` after `each` steps; returns the average."""
        last = 0
        while self.progress() < 1:
            self.step()
            if self.done % 64 == 0 and self.device.type == "cuda":
                torch.cuda.synchronize()  # so that progress tells true
            if self.done % each and self.progress() < 1:
                continue
            n, last = self.done - last, self.done
            report(self.done / each, self.loss.item() / n,
                   100 * self.right.item() / n / self.plan.batch)
            self.loss.zero_(), self.right.zero_()
        return self.average
