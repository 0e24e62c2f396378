#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes passthrough.onnx: one Identity over [N, 1024] floats, 4 KiB in and out an instance.

It does nothing, so what a request to it costs is the server's own.
"""
import argparse
import pathlib

import onnx
from onnx import TensorProto, helper


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    args = parser.parse_args()

    graph = helper.make_graph(
        [helper.make_node("Identity", ["input"], ["output"], name="identity")], "passthrough",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["N", 1024])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["N", 1024])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)],
                              producer_name="inferd make_passthrough.py")
    model.ir_version = 8
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, args.output / "passthrough.onnx")


if __name__ == "__main__":
    main()
