#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains networks that read 62 characters, and writes them as ONNX with their accuracy in torch.

    python3 models/glyphs/train.py --pictures glyphs.npz --output FOLDER [--images 200000]
        [--epochs 16] [--device cuda] [NETWORK...]

Each epoch draws `images` new images (draw.py), so that none is seen twice. Weights are rounded to
FP16 at the end and then tested in FP32, on 10,000 images of families that were not trained on; the
test is looked at once, after everything. The residual network is trained on, quantisation-aware,
and tested as torch simulates it. Everything is seeded. Needs torch and onnx.
"""
import argparse
import copy
import json
import math
import os
import pathlib
import time

import torch
from torch import nn

import draw
import export
import networks
import quantise

SEED = 20261123
AWARE = "residual"    # the one that is also trained with rounding
RATE = {"residual": 4e-3, "mobilenet": 4e-3, "transformer": 1e-3}
AWARE_RATE = 2e-4
WARM = 0.1            # of all steps, until the rate is reached
DECAY = 0.02
SMOOTH = 0.05         # of the wanted answer goes to all classes


def schedule(step, steps):
    if step < WARM * steps:
        return (step + 1) / (WARM * steps + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - WARM * steps) / ((1 - WARM) * steps)))


def images_of(batch):
    return batch.float().contiguous(memory_format=torch.channels_last)


class Trainer:
    def __init__(self, args):
        self.args, self.device = args, torch.device(args.device)
        self.drawer = draw.Drawer(args.pictures, False, self.device)
        self.begun = time.monotonic()

    def say(self, text):
        print(f"{time.monotonic() - self.begun:7.1f} s  {text}", flush=True)

    def batch(self, seed, index):
        images, labels = self.drawer.draw(self.args.batch, (seed << 32) + index)
        return images_of(images), labels

    def run(self, network, name, rate, epochs, seed, short_types):
        """`epochs` of images; returns nothing, the network has learnt."""
        groups = [{"params": [p for p in network.parameters() if p.ndim > 1]},
                  {"params": [p for p in network.parameters() if p.ndim <= 1], "weight_decay": 0}]
        adam = torch.optim.AdamW(groups, lr=rate, weight_decay=DECAY)
        wrong = nn.CrossEntropyLoss(label_smoothing=SMOOTH)
        each = max(1, self.args.images // self.args.batch)
        steps = max(1, round(each * epochs))
        report = max(1, min(each, 200))
        loss_sum, right = (torch.zeros((), device=self.device) for _ in range(2))
        for step in range(steps):
            images, labels = self.batch(seed, step)
            for group in adam.param_groups:
                group["lr"] = rate * schedule(step, steps)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=short_types):
                scores = network(images)
            loss = wrong(scores.float(), labels)
            adam.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            adam.step()
            loss_sum += loss.detach()
            right += (scores.detach().argmax(1) == labels).sum()
            if (step + 1) % report == 0 or step + 1 == steps:
                n = (step % report) + 1
                self.say(f"{name}: step {step + 1} of {steps}, loss {loss_sum.item() / n:.4f}, "
                         f"right {100 * right.item() / n / self.args.batch:.2f} %")
                loss_sum.zero_(), right.zero_()

    @torch.no_grad()
    def test(self, network):
        """Percent of the test images, in FP32."""
        right = 0
        for i in range(0, len(self.labels), 1000):
            scores = network(images_of(self.images[i:i + 1000]))
            right += (scores.argmax(1) == self.labels[i:i + 1000]).sum().item()
        return 100 * right / len(self.labels)

    def save(self, network, name, results):
        network = copy.deepcopy(network).cpu().eval()
        path = self.args.output / f"glyphs_{name}.onnx"
        export.save(network, path)
        results[name] = {"top1": self.test(network.to(self.device)),
                         "bytes": path.stat().st_size, "images": self.args.images,
                         "epochs": self.args.epochs}
        self.say(f"{name}: {results[name]['top1']:.2f} % of the test images, "
                 f"{path.stat().st_size / 1e6:.2f} MB")

    def train(self, name, results):
        seed = SEED + list(networks.NETWORKS).index(name)
        torch.manual_seed(seed)
        network = networks.NETWORKS[name]().to(self.device, memory_format=torch.channels_last)
        network.train()
        self.run(network, name, RATE[name], self.args.epochs, seed, True)
        joined = networks.to_halves(networks.join(network))
        torch.save(joined.state_dict(), self.args.output / f"{name}.pt")
        self.save(joined, name, results)
        if name != AWARE:
            return
        aware = quantise.make_aware(joined, lambda i: self.batch(seed + 100, i)[0])
        self.run(aware, f"{name}_aware", AWARE_RATE, max(0.25, self.args.epochs / 8), seed + 200,
                 False)
        self.save(quantise.freeze(aware), f"{name}_aware", results)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--images", type=int, default=200000, help="drawn for each epoch")
    parser.add_argument("--epochs", type=float, default=16)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("networks", nargs="*", default=list(networks.NETWORKS))
    args = parser.parse_args()
    if unknown := set(args.networks) - set(networks.NETWORKS):
        parser.error(f"no such network: {', '.join(unknown)}; there are "
                     f"{', '.join(networks.NETWORKS)}")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    if args.threads:
        torch.set_num_threads(args.threads)
    args.output.mkdir(parents=True, exist_ok=True)
    trainer, results = Trainer(args), {}
    trainer.say(f"{trainer.drawer.faces} faces of {trainer.drawer.families} families, on "
                f"{args.device}")
    trainer.images, trainer.labels = (t.to(trainer.device) for t in draw.test_set(args.pictures))
    trainer.say(f"{len(trainer.labels)} test images")
    for name in args.networks:
        trainer.train(name, results)
        (args.output / "trained.json").write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
