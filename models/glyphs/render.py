#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Renders letters and digits from the faces of installed fonts into one archive of pictures.

    python3 models/glyphs/render.py --output glyphs.npz [--fonts /usr/share/fonts]

README.md lists Debian's font packages. Each face gives 62 pictures of 64x64 grey pixels: capitals
are 34 pixels high (less in wide faces) and stand on one line, so that size tells "c" from "C". Left
out are faces without all of the characters, those that draw the same as an earlier one, and
pictures that two characters of a face share (I and l of many), which nobody could tell apart.
A tenth of the families, by their names, is for tests. Needs Pillow and numpy.
"""
import argparse
import collections
import hashlib
import pathlib
import re
import string

import numpy as np
from PIL import Image, ImageDraw, ImageFont

CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
SIZE, BASELINE, CAPITAL = 64, 46, 34
FACES_MAX = 16     # of a family: some have a hundred widths and weights
ALIKE = 0.12       # pictures that differ by less of their ink are the same
TEST_ONE_IN = 10
NOT_LETTERS = re.compile(r"symbol|dingbat|d050000l|initial|math|keyboard|caps|arrow|icon", re.I)


def picture(font, character):
    image = Image.new("L", (SIZE, SIZE))
    left, _, right, _ = font.getbbox(character, anchor="ls")
    ImageDraw.Draw(image).text((SIZE / 2 - (left + right) / 2, BASELINE), character, 255, font,
                               anchor="ls")
    return np.asarray(image)


def sized(path):
    """The font at the size at which its capitals are as high as wanted and all of it fits."""
    high = -ImageFont.truetype(path, 256).getbbox("H", anchor="ls")[1]
    size = 256 * CAPITAL / high
    font = ImageFont.truetype(path, size)
    boxes = np.array([font.getbbox(c, anchor="ls") for c in CHARACTERS])
    room = min((SIZE - 6) / (boxes[:, 2] - boxes[:, 0]).max(), (BASELINE - 2) / -boxes[:, 1].min(),
               (SIZE - BASELINE - 2) / max(1, boxes[:, 3].max()))
    return font if room >= 1 else ImageFont.truetype(path, size * room)


def drawn(path):
    """62 pictures, or None if characters are missing or are no letters."""
    font = sized(path)
    pictures = np.stack([picture(font, c) for c in CHARACTERS])
    missing = picture(font, "\U0010fffd")
    if not pictures.any((1, 2)).all() or (pictures == missing).all((1, 2)).any():
        return None
    return pictures


def told_apart(pictures):
    """Which pictures are unlike all others of their face."""
    flat = pictures.reshape(len(pictures), -1).astype(np.float32)
    ink = flat.sum(1)
    apart = np.abs(flat[:, None] - flat[None]).sum(2) / np.minimum(ink[:, None], ink[None])
    np.fill_diagonal(apart, 1)
    return apart.min(1) >= ALIKE


def faces(folder):
    """(family, path), in an order that does not depend on folders."""
    found = []
    for path in folder.rglob("*"):
        if path.suffix.lower() not in (".ttf", ".otf"):
            continue
        try:
            family = ImageFont.truetype(str(path), 16).getname()[0] or path.stem
        except OSError:
            continue
        if not NOT_LETTERS.search(f"{family} {path.name}"):
            found.append((family, path.name, str(path)))
    return [(family, path) for family, _, path in sorted(found)]


def first_words(family):
    """Condensed, Light, Display and the like belong to their family."""
    return " ".join(family.split()[:3 if family.startswith("TeX ") else 2]).lower()


def is_test(family):
    return int(hashlib.sha256(family.encode()).hexdigest(), 16) % TEST_ONE_IN == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fonts", type=pathlib.Path, default=pathlib.Path("/usr/share/fonts"))
    parser.add_argument("--output", type=pathlib.Path, required=True)
    args = parser.parse_args()
    kept, families, seen, count = [], [], set(), collections.Counter()
    for name, path in faces(args.fonts):
        family = first_words(name)
        try:
            pictures = drawn(path) if count[family] < FACES_MAX else None
        except (OSError, ZeroDivisionError):
            continue
        if pictures is None:
            continue
        digest = hashlib.sha256((pictures[:, ::4, ::4] > 127).tobytes()).digest()
        if digest in seen:
            continue
        seen.add(digest)
        count[family] += 1
        kept.append(pictures)
        families.append(family)
    valid = np.stack([told_apart(pictures) for pictures in kept])
    names = sorted(set(families))
    np.savez_compressed(args.output, pictures=np.stack(kept), valid=valid,
                        family=np.array([names.index(f) for f in families], np.int32),
                        names=np.array(names), test=np.array([is_test(n) for n in names]))
    print(f"{len(kept)} faces of {len(names)} families ({sum(map(is_test, names))} for tests), "
          f"{valid.sum()} pictures, {(~valid).sum()} that are not told apart, "
          f"{args.output.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
