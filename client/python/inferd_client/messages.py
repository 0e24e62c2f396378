# SPDX-License-Identifier: Apache-2.0
"""Requests, replies and what they carry; no I/O."""
from __future__ import annotations

from dataclasses import dataclass, field as member
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt

from . import wire

INFER, LIVE, READY, MODEL_READY, SERVER_METADATA, MODEL_METADATA = 10, 11, 12, 13, 14, 15
INDEX = 17

STATUS_NAMES = ("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND",
                "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
                "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS",
                "UNAUTHENTICATED")

_DTYPES: Dict[str, Any] = {
    "BOOL": np.bool_, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32,
    "UINT64": np.uint64, "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
    "FP16": np.float16, "FP32": np.float32, "FP64": np.float64,
}
_NAMES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}


class InferenceError(Exception):
    """A request that the server answered with an error."""

    def __init__(self, code: int, message: str, retry_after_us: int = 0) -> None:
        self.code, self.message, self.retry_after_us = code, message, retry_after_us
        super().__init__(f"{self.name}: {message}")

    @property
    def name(self) -> str:
        """As gRPC calls the code."""
        return STATUS_NAMES[self.code] if self.code < len(STATUS_NAMES) else "UNKNOWN"

    @property
    def not_run(self) -> bool:
        """Whether the server has surely not run the request, and says when to send it again."""
        return self.retry_after_us > 0 and "may have" not in self.message


@dataclass(frozen=True)
class Tensor:
    """An input or output as a model declares it; -1 in the shape: any number."""
    name: str
    datatype: str
    shape: Tuple[int, ...]


@dataclass(frozen=True)
class Model:
    name: str
    version: str
    state: str
    reason: str

    @property
    def ready(self) -> bool:
        return self.state == "READY"


@dataclass(frozen=True)
class ModelMetadata:
    name: str
    versions: Tuple[str, ...]
    inputs: Tuple[Tensor, ...]
    outputs: Tuple[Tensor, ...]


@dataclass(frozen=True)
class ServerMetadata:
    name: str
    version: str
    extensions: Tuple[str, ...]


@dataclass(frozen=True)
class Timing:
    """Where the request spent its time in the server, and how many instances its batch had."""
    queue_ns: int = 0
    input_ns: int = 0
    compute_ns: int = 0
    output_ns: int = 0
    batch: int = 0


@dataclass(frozen=True)
class Result(Mapping[str, npt.NDArray[Any]]):
    """The outputs by their names. They are views of the reply, and cannot be written."""
    model: str
    version: str
    timing: Timing
    outputs: Dict[str, npt.NDArray[Any]] = member(default_factory=dict)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self.outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.outputs)

    def __len__(self) -> int:
        return len(self.outputs)


# --- requests ---


def _datatype(name: str, array: npt.NDArray[Any]) -> str:
    if array.dtype.name == "bfloat16":
        return "BF16"
    known = _NAMES.get(array.dtype.newbyteorder("="))
    if not known:
        raise TypeError(f"input {name!r}: there is no datatype for {array.dtype}")
    return known


def _as_sent(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Dense, row-major, little-endian."""
    if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and not _LITTLE):
        array = array.astype(array.dtype.newbyteorder("<"))
    return np.ascontiguousarray(array)


_LITTLE = bool(np.array([1], np.uint16).view(np.uint8)[0])


def infer_pieces(model: str, inputs: Mapping[str, npt.ArrayLike], version: str,
                 outputs: Optional[Sequence[str]]) -> List[Any]:
    """A ModelInferRequest as buffers, one behind the other. Arrays are not copied."""
    small = [wire.message((1, model), (2, version))]
    raw: List[Any] = []
    for name, value in inputs.items():
        given = np.asarray(value)
        shape = b"".join(wire.varint(d) for d in given.shape)  # ascontiguousarray adds to rank 0
        array = _as_sent(given)
        small.append(wire.field(5, wire.message((1, name), (2, _datatype(name, given)),
                                                (3, shape))))
        raw.append(wire.head(7, array.nbytes))
        if array.nbytes:
            raw.append(memoryview(array.reshape(-1).view(np.uint8)))
    small += [wire.field(6, wire.message((1, name))) for name in outputs or ()]
    return [b"".join(small), *raw]


def request_pieces(request_id: int, kind: int, body: Sequence[Any], *, timeout: float = 0,
                   priority: int = 0, token: str = "", traceparent: str = "") -> List[Any]:
    """A frame with a request. `timeout` in seconds; 0: the server's default."""
    size = sum(len(piece) for piece in body)
    small = wire.message((1, request_id), (2, max(int(timeout * 1e6), 1) if timeout else 0),
                         (3, priority), (4, token), (5, traceparent)) + wire.head(kind, size)
    if len(small) + size > 0x7FFFFFFF:
        raise ValueError(f"a request of {len(small) + size} bytes; a frame holds 2 GiB")
    return [wire.HEADER.pack(len(small) + size) + small, *body]


# --- replies ---


class Reply:
    def __init__(self, data: Union[bytes, bytearray]) -> None:
        self.fields = wire.decode(data)
        self.id = wire.number(self.fields, 1)

    def body(self, kind: int) -> Dict[int, list]:
        status = wire.number(self.fields, 2)
        if status:
            raise InferenceError(status, wire.text(self.fields, 3), wire.number(self.fields, 4))
        if kind not in self.fields:
            raise ValueError("the server's reply answers something else")
        return wire.part(self.fields, kind)


def _tensor(data: Any) -> Tensor:
    t = wire.decode(data)
    return Tensor(wire.text(t, 1), wire.text(t, 2), wire.packed(t, 3))


def _array(tensor: Tensor, data: memoryview) -> npt.NDArray[Any]:
    if tensor.datatype == "BF16":
        bits = np.frombuffer(data, np.dtype("<u2")).astype(np.uint32) << 16
        return bits.view(np.float32).reshape(tensor.shape)
    if tensor.datatype not in _DTYPES:
        raise ValueError(f"output {tensor.name!r}: the datatype {tensor.datatype} is not known")
    dtype = np.dtype(_DTYPES[tensor.datatype]).newbyteorder("<")
    return np.frombuffer(data, dtype).reshape(tensor.shape)


def result_of(reply: Reply) -> Result:
    body, timing = reply.body(INFER), wire.part(reply.fields, 5)
    tensors = [_tensor(data) for data in wire.blobs(body, 5)]
    raw = wire.blobs(body, 6)
    if len(raw) != len(tensors):
        raise ValueError("the server's reply has other outputs than contents")
    return Result(wire.text(body, 1), wire.text(body, 2),
                  Timing(*(wire.number(timing, tag) for tag in range(1, 6))),
                  {t.name: _array(t, data) for t, data in zip(tensors, raw)})


def models_of(reply: Reply) -> List[Model]:
    rows = [wire.decode(row) for row in wire.blobs(reply.body(INDEX), 1)]
    return [Model(*(wire.text(row, tag) for tag in range(1, 5))) for row in rows]


def model_metadata_of(reply: Reply) -> ModelMetadata:
    body = reply.body(MODEL_METADATA)
    return ModelMetadata(wire.text(body, 1),
                         wire.texts(body, 2), tuple(map(_tensor, wire.blobs(body, 4))),
                         tuple(map(_tensor, wire.blobs(body, 5))))


def server_metadata_of(reply: Reply) -> ServerMetadata:
    body = reply.body(SERVER_METADATA)
    return ServerMetadata(wire.text(body, 1), wire.text(body, 2),
                          wire.texts(body, 3))


def is_true(kind: int, reply: Reply) -> bool:
    return bool(wire.number(reply.body(kind), 1))
