#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every operator in every element type: check_types.py RUN_CASES FLOOR CASES

For each operator the smallest published case of one node, once for each type that ONNX allows its
data to have and the engine has; onnx's reference computes the expected results: integers in their
own type, floats in double. run_cases runs all the cases, of which at least FLOOR must pass.
"""
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper
    from onnx.reference import ReferenceEvaluator
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

RUN_CASES, FLOOR, CASES = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
FLOATS = {"FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16"}
NAMES = {"bool": "BOOL", "float": "FLOAT", "double": "DOUBLE", "float16": "FLOAT16",
         "bfloat16": "BFLOAT16"}
NAMES |= {f"{u}int{n}": f"{u}int{n}".upper() for n in (8, 16, 32, 64) for u in ("", "u")}
# operators whose subject is another type, or chance
LEFT_OUT = {"Cast", "CastLike", "QuantizeLinear", "DequantizeLinear", "Dropout", "Bernoulli"}
LEFT_OUT |= {"RandomUniformLike", "Constant", "EyeLike", "ConstantOfShape", "If", "Loop", "Scan"}
LEFT_OUT |= {"DynamicQuantizeLinear", "SplitToSequence"}
LEFT_OUT |= {"OptionalGetElement"}  # the types of its operands are no tensor's
# floats need another form of the case, or have an output of another float type
FLOATS_OUT = {"Mod", "LayerNormalization"}
# products with a matrix that is itself rounded to 16 bits; the reference computes them in doubles
HALVES_OUT = {"AffineGrid", "STFT"}


def load(path):
    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return numpy_helper.to_array(tensor)


def smallest_cases():
    """Operator -> folder and model."""
    best = {}
    for folder in sorted(CASES.iterdir()):
        model = onnx.load(folder / "model.onnx")
        size = sum(p.stat().st_size for p in (folder / "test_data_set_0").glob("input_*.pb"))
        node = model.graph.node[0]
        if len(model.graph.node) != 1 or node.domain or node.op_type in LEFT_OUT:
            continue
        if node.op_type not in best or size < best[node.op_type][0]:
            best[node.op_type] = size, folder, model
    return best


def formal(parameters, i):
    return parameters[min(i, len(parameters) - 1)]


def of_type(array, kind):
    """Small whole numbers of the type, made from the case's own values."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    if kind == onnx.TensorProto.BOOL:
        return np.asarray(array).astype(np.float64) > 0.3
    values = np.asarray(array).astype(np.float64)
    if np.any(values != np.rint(values)):
        values = np.rint(values * 4)
    values = np.clip(np.nan_to_num(values), -20, 20)
    if np.issubdtype(dtype, np.unsignedinteger):
        values = np.abs(values)
    return values.astype(dtype)


def write(folder, model, inputs, outputs):
    (folder / "test_data_set_0").mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")
    for kind, arrays in (("input", inputs), ("output", outputs)):
        for i, (info, array) in enumerate(zip(getattr(model.graph, kind), arrays)):
            tensor = numpy_helper.from_array(np.asarray(array), info.name)
            (folder / f"test_data_set_0/{kind}_{i}.pb").write_bytes(tensor.SerializeToString())


def retyped(model, schema, variable, kind):
    """Gives every operand of the type variable this type; returns the model and the names of these
    operands."""
    copy, node = onnx.ModelProto(), model.graph.node[0]
    copy.CopyFrom(model)
    changed = []
    for infos, names, parameters in ((copy.graph.input, node.input, schema.inputs),
                                     (copy.graph.output, node.output, schema.outputs)):
        for info in infos:
            at = list(names).index(info.name)
            if formal(parameters, at).type_str == variable:
                info.type.tensor_type.elem_type = kind
                changed.append(info.name)
    return copy, changed


def make(out, op, folder, model, schema, kind):
    index = {"Where": 1, "OneHot": 2}.get(op, 0)
    copy, changed = retyped(model, schema, schema.inputs[index].type_str, kind)
    inputs = [load(folder / f"test_data_set_0/input_{i}.pb")
              for i in range(len(model.graph.input))]
    inputs = [of_type(a, kind) if info.name in changed else a
              for info, a in zip(copy.graph.input, inputs)]
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    computed, values = copy, inputs
    real = kind in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
    if real:
        computed = retyped(model, schema, schema.inputs[index].type_str, onnx.TensorProto.DOUBLE)[0]
        values = [a.astype(np.float64) if info.name in changed else a
                  for info, a in zip(copy.graph.input, inputs)]
    names = [info.name for info in copy.graph.input]
    with np.errstate(all="ignore"):
        outputs = ReferenceEvaluator(computed).run(None, dict(zip(names, values)))
    outputs = [np.asarray(a).astype(dtype) if info.name in changed else a
               for info, a in zip(copy.graph.output, outputs)]
    write(out / f"{op}_{helper.tensor_dtype_to_string(kind).split('.')[-1]}", copy, inputs, outputs)


def make_all(out):
    made = 0
    for op, (_, folder, model) in sorted(smallest_cases().items()):
        schema = onnx.defs.get_schema(op, model.opset_import[0].version)
        if not schema.inputs or not model.graph.input:
            continue
        index = {"Where": 1, "OneHot": 2}.get(op, 0)
        for text in sorted(schema.inputs[index].types):
            name = NAMES.get(text.removeprefix("tensor(").removesuffix(")"))
            if not name or (op in FLOATS_OUT and name in FLOATS):
                continue
            if op in HALVES_OUT and name in ("FLOAT16", "BFLOAT16"):
                continue
            try:
                make(out, op, folder, model, schema, getattr(onnx.TensorProto, name))
                made += 1
            except Exception as error:  # the reference fails: nothing to compare
                print(f"{op} {name}: no reference: {str(error)[:100]}")
    print(f"{made} cases", flush=True)


def main():
    if not CASES.is_dir():
        print(f"no cases in '{CASES}': skipped")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        make_all(pathlib.Path(folder))
        return subprocess.run([RUN_CASES, "--floor", FLOOR, folder], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
