# SPDX-License-Identifier: Apache-2.0
"""What the comparisons share: the files of torch_export.py, and the median time of a call."""
import pathlib
import statistics
import time

import numpy as np


def files(paths):
    """The files, where a folder stands for the .onnx files in it."""
    for path in map(pathlib.Path, paths):
        yield from sorted(path.glob("*.onnx")) if path.is_dir() else [path]


def sample_path(path):
    """Where the sample of NAME.SPELLING.onnx lies."""
    path = pathlib.Path(path)
    return path.with_name(path.name.split(".")[0] + ".npz")


def sample_of(path):
    """The inputs, outputs and counts of parts that belong to NAME.SPELLING.onnx."""
    with np.load(sample_path(path)) as file:
        parts = ({}, {}, {})
        for key in file.files:
            which = 1 if key.startswith("out.") else 2 if key.startswith("has.") else 0
            parts[which][key[4:] if which else key] = file[key]
        return parts


def median_s(function, seconds):
    """The median of calls for so many seconds, three at least, after one that does not count."""
    function()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)
