#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains networks that read 62 characters, and writes them as ONNX with their accuracy in torch.

    python3 models/glyphs/train.py --pictures glyphs.npz --output FOLDER [--images 200000]
        [--epochs 24] [--minutes 3] [--device cuda] [NETWORK...]

Each epoch draws `images` new images (draw.py), so that none is seen twice. After each, it says how
many of 4,000 further images of the same families the averaged weights know, and keeps these
(NAME.checkpoint). With `--minutes` a network has at most that long: its rate falls to zero in that
time if the epochs take longer. Weights are rounded to FP16 at the end and then tested in FP32, on
10,000 images of families that were not trained on; the test is looked at once, after everything.
The networks are then trained on for a while, quantisation-aware (`--no-aware` leaves that), and
tested as torch simulates it. Everything is seeded. Needs torch and onnx.
"""
import argparse
import copy
import json
import pathlib
import time
import types

import torch

import draw
import export
import learn
import networks
import quantise

SEED = 20261123
RATE = {"residual": 4e-3, "mobilenet": 4e-3, "transformer": 1e-3}
AWARE_RATE = 2e-4
AWARE_PART = 1 / 8    # of the epochs and minutes of the first training
WATCHED = 4000        # images that each epoch is judged by


class Trainer:
    def __init__(self, args):
        self.args, self.device = args, torch.device(args.device)
        self.drawer = draw.Drawer(args.pictures, False, self.device)
        self.begun = time.monotonic()
        self.watched = draw.drawn(self.drawer, WATCHED, SEED - 1 << 32)
        self.tested = [t.to(self.device) for t in draw.test_set(args.pictures)]

    def say(self, text):
        print(f"{time.monotonic() - self.begun:7.1f} s  {text}", flush=True)

    def run(self, network, name, rate, part, seed):
        """`part` of all epochs; `rate` and BF16 are for networks that do not round."""
        minutes, first = self.args.minutes, part == 1
        each = max(1, self.args.images // self.args.batch)
        plan = types.SimpleNamespace(
            rate=rate, steps=max(1, round(each * self.args.epochs * part)), batch=self.args.batch,
            short=first, seconds=minutes * 60 * part if minutes else None,
            graph=first and not self.args.no_graph)  # rounding asks for values
        learner = learn.Learner(network, self.drawer, plan, seed)

        def report(epoch, loss, right):
            knows = self.known(learner.average, *self.watched)
            self.say(f"{name}: epoch {epoch:.1f} of {plan.steps / each:.1f}, loss {loss:.4f}, "
                     f"right {right:.2f} %, average knows {knows:.2f} %")
            torch.save(learner.average.state_dict(), self.args.output / f"{name}.checkpoint")

        average = learner.learn(each, report)
        self.say(f"{name}: {learner.done} steps in {time.monotonic() - learner.begun:.0f} s")
        return average, learner.done * self.args.batch

    @torch.no_grad()
    def known(self, network, images, labels):
        """Percent of images, in FP32."""
        right = 0
        for i in range(0, len(labels), 1000):
            scores = network(learn.images_of(images[i:i + 1000]))
            right += (scores.argmax(1) == labels[i:i + 1000]).sum().item()
        return 100 * right / len(labels)

    def save(self, network, name, images, results):
        torch.save(network.state_dict(), self.args.output / f"{name}.pt")
        results[name] = {"top1": self.known(network, *self.tested), "images": images}
        self.say(f"{name}: {results[name]['top1']:.2f} % of the test images")
        path = self.args.output / f"glyphs_{name}.onnx"
        export.save(copy.deepcopy(network).cpu().eval(), path)
        results[name]["bytes"] = path.stat().st_size

    def train(self, name, results):
        seed = SEED + list(networks.NETWORKS).index(name)
        torch.manual_seed(seed)
        network = networks.NETWORKS[name]().to(self.device, memory_format=torch.channels_last)
        average, images = self.run(network.train(), name, RATE[name], 1, seed)
        joined = networks.to_halves(networks.join(average))
        self.save(joined, name, images, results)
        if self.args.no_aware:
            return
        batch = self.args.batch
        aware = quantise.make_aware(joined, lambda i: learn.images_of(
            self.drawer.draw(batch, (seed + 100 << 32) + i)[0])).requires_grad_(True)
        average, images = self.run(aware, f"{name}_aware", AWARE_RATE, AWARE_PART, seed + 200)
        self.save(quantise.freeze(average), f"{name}_aware", images, results)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--images", type=int, default=200000, help="drawn for each epoch")
    parser.add_argument("--epochs", type=float, default=24)
    parser.add_argument("--minutes", type=float, help="for each network at most")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--no-graph", action="store_true", help="on a GPU: launch every kernel")
    parser.add_argument("--no-aware", action="store_true", help="no training with rounding")
    parser.add_argument("networks", nargs="*", default=list(networks.NETWORKS))
    args = parser.parse_args()
    if unknown := set(args.networks) - set(networks.NETWORKS):
        parser.error(f"no such network: {', '.join(unknown)}; there are "
                     f"{', '.join(networks.NETWORKS)}")
    return args


def main():
    args = arguments()
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False  # what is not BF16 is FP32
    if args.threads:
        torch.set_num_threads(args.threads)
    args.output.mkdir(parents=True, exist_ok=True)
    trainer, results = Trainer(args), {}
    trainer.say(f"{trainer.drawer.faces} faces of {trainer.drawer.families} families, "
                f"{draw.TEST_IMAGES} test images, on {args.device}")
    for name in args.networks:
        trainer.train(name, results)
        (args.output / "trained.json").write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
