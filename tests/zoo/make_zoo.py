#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the test models as ONNX files: make_zoo.py FOLDER [MODEL ...]

Networks with the published structure and made-up weights: speed and agreement with another engine
do not depend on what they were trained for. Files that are there already are left alone. Needs
numpy and onnx.
"""
import argparse
import os
import sys

import convnets
import transformers

MODELS = {
    "resnet50": convnets.resnet50,
    "mobilenet_v2": convnets.mobilenet_v2,
    "inception_v3": convnets.inception_v3,
    "bert_base": transformers.bert,
    "vit_b_16": transformers.vit,
    "vgg16": convnets.vgg16,
    "resnet_tiny": convnets.resnet_tiny,
    "bert_tiny": transformers.bert_tiny,
}
USUAL = ["resnet50", "mobilenet_v2", "inception_v3", "bert_base"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("model", nargs="*", help="of %s; the default is %s"
                        % (", ".join(MODELS), ", ".join(USUAL)))
    args = parser.parse_args()
    for name in args.model:
        if name not in MODELS:
            parser.error(f"no model {name}; there are {', '.join(MODELS)}")
    os.makedirs(args.folder, exist_ok=True)
    for name in args.model or USUAL:
        path = os.path.join(args.folder, f"{name}.onnx")
        if not os.path.exists(path):
            part = f"{path}.{os.getpid()}.part"
            MODELS[name]().save(part)
            os.rename(part, path)
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
