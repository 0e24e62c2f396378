#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A copy of a model with the shapes of its inputs given: pin_shapes.py FILE OUT INPUT=D,D,... ...

A dimension `batch` stays free, all others become numbers. Beside OUT goes an .npz with a sample of
the inputs, one instance each: floats from -1 to 1, integers from 0 to 255. For models that others
ship with open dimensions; ort_compare.py takes what is written here."""
import pathlib
import sys

import numpy as np
import onnx


def main():
    if len(sys.argv) < 4 or any("=" not in pin for pin in sys.argv[3:]):
        sys.exit(__doc__)
    model = onnx.load(sys.argv[1])
    pins = {name: dims.split(",") for name, dims in
            (pin.rsplit("=", 1) for pin in sys.argv[3:])}
    weights = {w.name for w in model.graph.initializer}
    values = [v for v in model.graph.input if v.name not in weights]
    if {v.name for v in values} != set(pins):
        sys.exit(f"expected INPUT=... for each of {sorted(v.name for v in values)}, "
                 f"got {sorted(pins)}")
    random, sample = np.random.RandomState(1), {}
    for value in values:
        kind, dims = value.type.tensor_type, pins[value.name]
        del kind.shape.dim[:]
        for dim in dims:
            kind.shape.dim.add(**({"dim_param": dim} if dim == "batch" else
                                  {"dim_value": int(dim)}))
        shape = [1 if dim == "batch" else int(dim) for dim in dims]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        sample[value.name] = (random.uniform(-1, 1, shape).astype(dtype)
                              if np.issubdtype(dtype, np.floating) else
                              random.randint(0, 256, shape).astype(dtype))
    del model.graph.value_info[:]  # they were of the open dimensions
    onnx.save(model, sys.argv[2])
    out = pathlib.Path(sys.argv[2])
    np.savez(out.with_name(out.name.split(".")[0] + ".npz"), **sample)


if __name__ == "__main__":
    main()
