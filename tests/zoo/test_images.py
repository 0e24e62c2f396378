#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random configurations of the operators for images, boxes and signals: test_images.py INFERCTL
[SEED [COUNT]]. Each model is a bundle of many nodes of one family; inferctl's answers are
onnxruntime's. Prints TAP; skipped without onnx or onnxruntime.
"""
import os
import sys
import tempfile

try:
    import numpy as np
    import onnxruntime  # noqa: F401
    from onnx import TensorProto, helper
    import compare
    from bundle import Bundle
except ImportError as e:
    print(f"1..0 # SKIP {e}")
    sys.exit(0)

BOUND = 1e-5


def pick(rng, *values):
    return values[rng.integers(len(values))]


def small(rng, low=1, high=9):
    return int(rng.integers(low, high + 1))


# --- one random node of a family each ---

def grid_sample(b, rng):
    spatial = pick(rng, 2, 2, 3) if b.opset >= 20 else 2
    modes = ("linear", "nearest") + (("cubic",) if spatial == 2 else ())
    mode = pick(rng, *modes)
    # Cubic at a border: the text and onnx's reference move the place into the image, while
    # onnxruntime moves the 16 pixels around the place.
    padding = pick(rng, "zeros", "reflection", *(["border"] if mode != "cubic" else []))
    if b.opset < 20:
        mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    n = small(rng, 1, 3)
    x = b.data(n, small(rng, 1, 4), *(small(rng, 2) for _ in range(spatial)))
    grid = b.feed(rng.uniform(-1.6, 1.6, (n, *(small(rng, 1, 6) for _ in range(spatial)), spatial)
                              ).astype(np.float32))
    b.node("GridSample", x, grid, mode=mode, align_corners=int(rng.integers(2)),
           padding_mode=padding)


def regions(rng, n, h, w, scale):
    corner = rng.uniform(-2, 1, (n, 2)) * (w, h) / 2 + (w / 4, h / 4)
    size = rng.uniform(0.2, 1.2, (n, 2)) * (w, h)
    return (np.concatenate([corner, corner + size], 1) / scale).astype(np.float32)


def roi_align(b, rng):
    n, h, w, r = small(rng, 1, 3), small(rng, 3, 14), small(rng, 3, 14), small(rng, 1, 6)
    scale = pick(rng, 1.0, 0.5, 0.0625)
    b.node("RoiAlign", b.data(n, small(rng, 1, 4), h, w), b.feed(regions(rng, r, h, w, scale)),
           b.feed(rng.integers(0, n, r)), spatial_scale=scale, mode=pick(rng, "avg", "max"),
           output_height=small(rng, 1, 5), output_width=small(rng, 1, 5),
           sampling_ratio=pick(rng, 0, 0, 1, 2, 3),
           coordinate_transformation_mode=pick(rng, "half_pixel", "output_half_pixel"))


def max_roi_pool(b, rng):
    n, h, w, r = small(rng, 1, 3), small(rng, 3, 14), small(rng, 3, 14), small(rng, 1, 6)
    scale = pick(rng, 1.0, 0.5)
    rois = np.concatenate([rng.integers(0, n, (r, 1)), regions(rng, r, h, w, scale)], 1)
    b.node("MaxRoiPool", b.data(n, small(rng, 1, 4), h, w), b.feed(rois.astype(np.float32)),
           spatial_scale=scale, pooled_shape=[small(rng, 1, 5), small(rng, 1, 5)])


def boxes_of(rng, batch, n, centre):
    low, size = rng.uniform(0, 6, (batch, n, 2)), rng.uniform(0.5, 4, (batch, n, 2))
    if centre:
        return np.concatenate([low, size], 2).astype(np.float32)
    swap = rng.integers(0, 2, (batch, n, 1)).astype(bool)  # any two opposite corners
    a, c = np.where(swap, low + size, low), np.where(swap, low, low + size)
    return np.concatenate([a, c], 2).astype(np.float32)


def non_max_suppression(b, rng):
    batch, classes, n = small(rng, 1, 3), small(rng, 1, 3), small(rng, 1, 40)
    centre = int(rng.integers(2))
    scores = np.round(rng.uniform(0, 1, (batch, classes, n)), pick(rng, 1, 6)).astype(np.float32)
    inputs = [b.feed(boxes_of(rng, batch, n, centre)), b.feed(scores),
              b.constant(pick(rng, 1, 5, 100, [7])), b.constant(rng.uniform(0, 0.8), np.float32)]
    if rng.integers(2):
        inputs.append(b.constant([rng.uniform(0, 0.9)], np.float32))
    b.node("NonMaxSuppression", *inputs, types=(TensorProto.INT64,), center_point_box=centre)


def resize(b, rng):
    shape = [small(rng, 1, 2), small(rng, 1, 3), small(rng, 4, 12), small(rng, 4, 12)]
    mode = pick(rng, "nearest", "linear", "cubic")
    coord = pick(rng, "half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric",
                 *(["half_pixel_symmetric"] if b.opset >= 19 else []))
    more = {"mode": mode, "coordinate_transformation_mode": coord}
    if mode == "nearest":
        more["nearest_mode"] = pick(rng, "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    if mode == "cubic":
        more["cubic_coeff_a"] = pick(rng, -0.75, -0.5)
        more["exclude_outside"] = int(rng.integers(2))
    x = b.data(*shape)
    if rng.integers(2):
        sizes = [shape[0], shape[1], small(rng, 2, 20), small(rng, 2, 20)]
        b.node("Resize", x, "", "", b.constant(sizes), **more)
    else:
        # Corners of 0.7 * 5 pixels: 3.5 in the published cases and onnx's reference, 3 in
        # onnxruntime.
        whole = coord == "align_corners"
        scales = [1, 1, pick(rng, 2, 3) if whole else rng.uniform(0.4, 2.5),
                  pick(rng, 2, 3) if whole else pick(rng, 2, 0.5, 3)]
        b.node("Resize", x, "", b.constant(scales, np.float32), **more)


def resize_half_pixel(b, rng):
    """A way of resizing that only opsets 11 and 12 have."""
    shape = [1, small(rng, 1, 3), small(rng, 4, 12), small(rng, 4, 12)]
    sizes = [1, shape[1], small(rng, 2, 20), small(rng, 2, 20)]
    b.node("Resize", b.data(*shape), b.constant([], np.float32), b.constant([], np.float32),
           b.constant(sizes), mode="nearest", nearest_mode="floor",
           coordinate_transformation_mode="tf_half_pixel_for_nn")


def resize_crop(b, rng):
    shape = [1, small(rng, 1, 3), small(rng, 4, 12), small(rng, 4, 12)]
    # onnxruntime does not crop a dimension that keeps its size: none does here.
    sizes = [pick(rng, *(k for k in range(2, 10) if k != n)) for n in shape[2:]]
    start = rng.uniform(-0.2, 0.5, 2)
    roi = [0, 0, *start, 1, 1, *(start + rng.uniform(0.3, 0.9, 2))]
    b.node("Resize", b.data(*shape), b.constant(roi, np.float32), "",
           b.constant([1, shape[1], *sizes]),
           mode=pick(rng, "nearest", "linear", "cubic"), extrapolation_value=-3.5,
           coordinate_transformation_mode="tf_crop_and_resize")


def resize_ratio(b, rng):
    shape = [1, 2, small(rng, 4, 12), small(rng, 4, 12)]
    policy = pick(rng, "stretch", "not_larger", "not_smaller")
    # Where a ratio is kept, onnxruntime does not resize axes that are counted from the back.
    axes = pick(rng, [2, 3], [3, 2], *([[-1, -2]] if policy == "stretch" else []))
    b.node("Resize", b.data(*shape), "", "", b.constant([small(rng, 3, 20), small(rng, 3, 20)]),
           axes=axes, mode=pick(rng, "nearest", "linear"), keep_aspect_ratio_policy=policy)


def resize_antialias(b, rng):
    shape = [1, 2, small(rng, 6, 16), small(rng, 6, 16)]
    sizes = [1, 2, small(rng, 2, 18), small(rng, 2, 18)]
    b.node("Resize", b.data(*shape), "", "", b.constant(sizes), antialias=1, exclude_outside=1,
           mode=pick(rng, "linear", "cubic"))


def affine_grid(b, rng):
    n, spatial = small(rng, 1, 3), pick(rng, 2, 3)
    b.node("AffineGrid", b.data(n, spatial, spatial + 1),
           b.constant([n, 2, *(small(rng, 2) for _ in range(spatial))]),
           align_corners=int(rng.integers(2)))


def col2im(b, rng):
    block, strides = [small(rng, 1, 3) for _ in range(2)], [small(rng, 1, 2) for _ in range(2)]
    dilations, pads = [small(rng, 1, 2) for _ in range(2)], [small(rng, 0, 1) for _ in range(4)]
    image = [small(rng, 5, 9) for _ in range(2)]
    n = np.prod([(image[i] + pads[i] + pads[2 + i] - dilations[i] * (block[i] - 1) - 1)
                 // strides[i] + 1 for i in range(2)])
    b.node("Col2Im", b.data(small(rng, 1, 3), small(rng, 1, 3) * block[0] * block[1], n),
           b.constant(image), b.constant(block), dilations=dilations, pads=pads, strides=strides)


def center_crop_pad(b, rng):
    shape = [small(rng) for _ in range(3)]
    axes = pick(rng, [0, 1, 2], [2, 0], [-1])
    b.node("CenterCropPad", b.data(*shape), b.constant([small(rng, 1, 12) for _ in axes]),
           axes=axes)


def det(b, rng):
    n = small(rng, 1, 7)
    b.node("Det", b.data(*(small(rng, 1, 4) for _ in range(small(rng, 0, 2))), n, n))


def max_pool_columns(b, rng):
    spatial = small(rng, 1, 3)
    b.node("MaxPool", b.data(small(rng, 1, 2), small(rng, 1, 3),
                             *(small(rng, 4, 8) for _ in range(spatial))),
           types=(TensorProto.FLOAT, TensorProto.INT64), storage_order=1,
           kernel_shape=[small(rng, 1, 3)] * spatial, strides=[small(rng, 1, 2)] * spatial)


def einsum(b, rng):
    i, j, k = small(rng, 2, 5), small(rng, 2, 5), small(rng, 2, 5)
    equation, shapes = pick(
        rng, ("ii->i", [(i, i)]), ("ii", [(i, i)]), ("iji->j", [(i, j, i)]),
        ("bii,bij->bj", [(k, i, i), (k, i, j)]), ("iij,jkk->ik", [(i, i, j), (j, k, k)]),
        ("...ii->...i", [(k, j, i, i)]), ("...ij,...jk->...ik", [(3, i, j), (1, j, k)]),
        ("...ij,jk->i...k", [(2, 3, i, j), (j, k)]), ("iij->ji", [(i, i, j)]))
    b.node("Einsum", *(b.data(*s) for s in shapes), equation=equation)


def dft(b, rng):
    shape = [small(rng, 1, 3), small(rng, 3, 12), small(rng, 3, 12), pick(rng, 1, 2)]
    axis, inverse = pick(rng, 1, 2), 0
    half = int(shape[-1] == 1 and rng.integers(2))
    if not half:
        inverse = int(rng.integers(2))
    more = {"inverse": inverse, "onesided": half}
    inputs = [b.data(*shape), b.constant(small(rng, 3, 14)) if rng.integers(2) else ""]
    if b.opset >= 20:
        inputs.append(b.constant(axis))
    else:
        more["axis"] = axis
    b.node("DFT", *inputs, **more)


def stft(b, rng):
    length = small(rng, 4, 16)
    signal = b.data(small(rng, 1, 2), length * small(rng, 2, 5) + small(rng, 0, 3), 1)
    window = b.data(length) if rng.integers(2) else ""
    b.node("STFT", signal, b.constant(small(rng, 1, length)), window,
           b.constant(length) if not window or rng.integers(2) else "",
           onesided=int(rng.integers(2)))


def mel(b, rng):
    b.node("MelWeightMatrix", b.constant(small(rng, 2, 12)), b.constant(small(rng, 32, 300)),
           b.constant(pick(rng, 8000, 16000)), b.constant(rng.uniform(0, 100), np.float32),
           b.constant(rng.uniform(1000, 4000), np.float32))


def unique(b, rng):
    dtype = pick(rng, np.float32, np.int64)
    x = b.constant(rng.integers(-2, 3, (small(rng), small(rng, 1, 2))).astype(dtype), dtype)
    more = {"axis": pick(rng, 0, 1, -1)} if rng.integers(2) else {}
    b.node("Unique", x, types=(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)),
                               *[TensorProto.INT64] * 3), sorted=int(rng.integers(2)), **more)


# --- and the models made of them ---

BUNDLES = [
    (16, [grid_sample, roi_align, max_roi_pool]), (20, [grid_sample, roi_align, affine_grid]),
    (13, [resize, resize_crop, non_max_suppression]),
    (19, [resize, resize_ratio, resize_antialias]),
    (18, [col2im, center_crop_pad, det, max_pool_columns, einsum]), (17, [dft, stft, mel]),
    (20, [dft, unique]), (11, [resize_half_pixel]),
]


def difference(op, mine, want):
    """0: the same. The rows of a NonMaxSuppression beyond the selected ones are -1."""
    if mine is not None and op.startswith("NonMaxSuppression"):
        if not (mine[len(want):] == -1).all():
            return float("inf")
        mine = mine[:len(want)]
    if not want.size:
        return 0.0 if mine is not None and mine.shape == want.shape else float("inf")
    return compare.relative_error(mine, want)


def main():
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 24
    failed = number = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        path = os.path.join(folder, "bundle.onnx")
        for opset, families in BUNDLES:
            number += 1
            rng = np.random.default_rng([seed, number])
            b = Bundle(opset, rng)
            while len(b.nodes) < count and len(b.outputs) < 60 and len(b.feeds) < 60:
                families[len(b.nodes) % len(families)](b, rng)
            b.save(path)
            mine = compare.ours(sys.argv[1], path, b.feeds, ["--no-tune"])
            wrong = []
            for name, want in compare.theirs(path, b.feeds).items():
                error = difference(b.told[name], mine.get(name), want)
                if not error <= BOUND:
                    shape = None if mine.get(name) is None else mine[name].shape
                    wrong.append(f"{b.told[name]}: {error:.1e} {shape} {want.shape}")
            print(f"{'not ok' if wrong else 'ok'} {number} - opset {opset}: {len(b.nodes)} nodes "
                  f"of {', '.join(f.__name__ for f in families)}")
            for line in wrong:
                print(f"# {line}")
            failed += bool(wrong)
    print(f"1..{number}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
