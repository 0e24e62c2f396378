# SPDX-License-Identifier: Apache-2.0
"""Inputs for the models of the zoo: images with large structures and some noise (noise alone would
average out before the classifier), token ids of the vocabulary, masks that end."""
import numpy as np
import onnx

from graph import bell

_HIGH = {"input_ids": 500, "token_type_ids": 2}


def _image(seed, shape):
    coarse = bell(seed, (*shape[:2], 5, 5), 1.0)
    rows = np.arange(shape[2]) * 5 // shape[2]
    columns = np.arange(shape[3]) * 5 // shape[3]
    return coarse[:, :, rows][:, :, :, columns] + bell(seed + 1, shape, 0.3)


def dims(path, sequence=24):
    """The options that bind the named dimensions that the file has besides the batch."""
    graph = onnx.load(path, load_external_data=False).graph
    names = {d.dim_param for value in graph.input for d in value.type.tensor_type.shape.dim}
    return ["--dim", f"sequence={sequence}"] if "sequence" in names else []


def make(path, batch, seed=1, sequence=24):
    """Input name -> array for the ONNX file, with symbolic dimensions bound."""
    model = onnx.load(path, load_external_data=False)
    weights = {w.name for w in model.graph.initializer}
    known = {"batch": batch, "sequence": sequence}
    out = {}
    for value in model.graph.input:
        if value.name in weights:
            continue
        kind = value.type.tensor_type
        shape = [known[d.dim_param] if d.dim_param else d.dim_value for d in kind.shape.dim]
        random = np.random.RandomState(seed + len(out))
        if value.name == "attention_mask":
            length = random.randint(shape[1] // 2, shape[1] + 1, shape[0])
            out[value.name] = (np.arange(shape[1]) < length[:, None]).astype(np.int64)
        elif kind.elem_type == onnx.TensorProto.INT64:
            out[value.name] = random.randint(0, _HIGH.get(value.name, 2), shape).astype(np.int64)
        elif len(shape) == 4:
            out[value.name] = _image(seed + len(out), shape)
        else:
            out[value.name] = bell(seed + len(out), shape, 1.0)
    return out
