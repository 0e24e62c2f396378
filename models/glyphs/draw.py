#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws distorted characters by a seed, on any device of torch.

    python3 models/glyphs/draw.py --pictures glyphs.npz --output FOLDER

writes what the evaluation needs: test/image.npy (10,000 images of bytes [N,1,64,64], of families
that nobody trains on), test_labels.npy, and calibration/image.npy (1,000, of the others). It draws
on the CPU, where a seed gives the same images again.
"""
import argparse
import pathlib

import numpy as np
import torch
import torch.nn.functional as F

SIZE = 64
CLASSES = 62
TEST_IMAGES, TEST_SEED = 10000, 977
CALIBRATION_IMAGES, CALIBRATION_SEED = 1000, 978


class Drawer:
    """Draws each class as often as each other, then each family, then each of its faces."""

    def __init__(self, path, test, device):
        data = np.load(path)
        pick = data["test"][data["family"]] == test
        self.device = device
        self.pictures = torch.from_numpy(data["pictures"][pick]).to(device)
        family = data["family"][pick]
        weight = data["valid"][pick] / np.bincount(family)[family][:, None]
        self.weight = torch.from_numpy(weight.T.astype(np.float32)).to(device)
        self.faces, self.families = len(family), len(set(family))

    def draw(self, count, seed):
        """`count` images (uint8 [N,1,64,64]) and labels (int64 [N])."""
        random = torch.Generator(self.device).manual_seed(seed)
        labels = torch.randint(CLASSES, (count,), generator=random, device=self.device)
        faces = torch.multinomial(self.weight, count, True, generator=random)
        faces = faces[labels, torch.arange(count, device=self.device)]
        ink = self.pictures[faces, labels][:, None].float() / 255
        return distorted(ink, random), labels


def uniform(random, count, low, high):
    return torch.rand(count, 1, 1, 1, generator=random, device=random.device) * (high - low) + low


def noise(random, count, size):
    """Smooth noise: normal numbers on a coarse grid."""
    coarse = torch.randn(count, 1, size, size, generator=random, device=random.device)
    return F.interpolate(coarse, SIZE, mode="bilinear", align_corners=True)


def places(random, count):
    """Where each pixel comes from: turned, sheared, scaled, moved and bent."""
    turn, shear = uniform(random, count, -0.17, 0.17), uniform(random, count, -0.2, 0.2)
    wide = uniform(random, count, -0.12, 0.12).exp()
    high = uniform(random, count, -0.08, 0.08).exp()
    cos, sin = turn.cos(), turn.sin()
    row = torch.cat([cos / wide, (shear * cos - sin) / wide,
                     uniform(random, count, -0.11, 0.11)], 3)
    column = torch.cat([sin / high, (cos + shear * sin) / high,
                        uniform(random, count, -0.06, 0.06)], 3)
    grid = F.affine_grid(torch.cat([row, column], 2)[:, 0], (count, 1, SIZE, SIZE),
                         align_corners=False)
    bend = torch.cat([noise(random, count, 6), noise(random, count, 6)], 1)
    return grid + 0.02 * bend.permute(0, 2, 3, 1)


def blurred(ink, random):
    taps = torch.tensor([1.0, 4, 6, 4, 1], device=ink.device) / 16
    soft = F.conv2d(ink, taps.view(1, 1, 1, 5), padding=(0, 2))
    soft = F.conv2d(soft, taps.view(1, 1, 5, 1), padding=(2, 0))
    return torch.lerp(ink, soft, uniform(random, len(ink), 0, 1))


def distorted(ink, random):
    """Ink (0 to 1) in some grey on an uneven ground of another, blurred, with noise."""
    count = len(ink)
    ink = F.grid_sample(ink, places(random, count), align_corners=False)
    ink = blurred(ink, random)
    contrast = uniform(random, count, 0.35, 1)
    ground = uniform(random, count, 0, 1) * (1 - contrast)
    inverse = uniform(random, count, 0, 1) < 0.5
    image = ground + contrast * torch.where(inverse, 1 - ink, ink)
    image = image + uniform(random, count, 0, 0.1) * noise(random, count, 5)
    grain = torch.randn(ink.shape, generator=random, device=ink.device)
    image = image + uniform(random, count, 0, 0.06) * grain
    return (image * 255).round().clamp(0, 255).to(torch.uint8)


def drawn(drawer, count, seed):
    """Many images, in steps that fit into memory."""
    parts = [drawer.draw(min(1000, count - i), seed + i) for i in range(0, count, 1000)]
    return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])


def test_set(path):
    return drawn(Drawer(path, True, torch.device("cpu")), TEST_IMAGES, TEST_SEED << 32)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    args = parser.parse_args()
    for name in ("test", "calibration"):
        (args.output / name).mkdir(parents=True, exist_ok=True)
    images, labels = test_set(args.pictures)
    np.save(args.output / "test" / "image.npy", images.numpy())
    np.save(args.output / "test_labels.npy", labels.numpy().astype(np.uint8))
    images, _ = drawn(Drawer(args.pictures, False, torch.device("cpu")), CALIBRATION_IMAGES,
                      CALIBRATION_SEED << 32)
    np.save(args.output / "calibration" / "image.npy", images.numpy())


if __name__ == "__main__":
    main()
