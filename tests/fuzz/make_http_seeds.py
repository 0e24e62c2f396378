#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes seeds of fuzz_http: make_http_seeds.py FOLDER"""
import json
import pathlib
import struct
import sys

A = {"name": "a", "datatype": "FP32", "shape": [1, 2], "data": [1, -2.5e-3]}
N = {"name": "n", "datatype": "INT64", "shape": [1, 1], "data": [9223372036854775807]}


def request(line, body=b"", *fields):
    if isinstance(body, dict):
        body = json.dumps(body).encode()
    if body and not any("chunked" in f for f in fields):
        fields = (*fields, f"Content-Length: {len(body)}")
    return "\r\n".join([f"{line} HTTP/1.1", "Host: a", *fields, "", ""]).encode() + body


def binary(rows, **parameters):
    raw = {"a": struct.pack(f"<{2 * rows}f", *range(2 * rows)),
           "n": struct.pack(f"<{rows}q", *range(rows))}
    given = [{"name": k, "datatype": t, "shape": [rows, w],
              "parameters": {"binary_data_size": len(raw[k])}}
             for k, t, w in (("a", "FP32", 2), ("n", "INT64", 1))]
    text = json.dumps({"inputs": given, "parameters": parameters}).encode()
    return request("POST /v2/models/m/infer", text + raw["a"] + raw["n"],
                   f"Inference-Header-Content-Length: {len(text)}")


def chunked(body, step):
    cut = [body[k:k + step] for k in range(0, len(body), step)] + [b""]
    return b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in cut)


INFER = "POST /v2/models/m/versions/1/infer"
BOTH = {"id": "x", "inputs": [A, N],
        "outputs": [{"name": "sum", "parameters": {"binary_data": True}}]}
SEEDS = {
    "questions": b"".join(request(f"GET /v2{p}") for p in (
        "", "/health/live", "/models/m", "/models/m/config", "/models/stats", "/logging")),
    "json": request(INFER, BOTH) + request(INFER, {"inputs": [N, A]}),
    "nested": request(INFER, {"inputs": [dict(A, data=[[1, 2]]), N],
                              "other": [{"a": [None, True]}]}),
    "mixed": request(INFER, {"inputs": [A, N], "parameters": {"binary_data_output": True}}),
    "binary": binary(1) + binary(3, binary_data_output=True),
    "large": binary(6000, binary_data_output=True),
    "long": request(INFER, {"inputs": [dict(A, shape=[900, 2], data=[0.1] * 1800),
                                       dict(N, shape=[900, 1], data=list(range(900)))]}),
    "chunked": request(INFER, chunked(json.dumps(BOTH).encode(), 9), "Transfer-Encoding: chunked"),
    "expect": request(INFER, BOTH, "Expect: 100-continue", "Authorization: Bearer abc"),
    "methods": request("HEAD /v2") + request("OPTIONS *") + request("DELETE /v2") +
    request("GET /v2/models/%6d", b"", "Connection: close"),
    "orders": request("POST /v2/repository/models/m/load", {"parameters": {"config": "{}"}}) +
    request("POST /v2/trace/setting", {"trace_level": ["OFF", "TENSORS"], "trace_rate": None}) +
    request("POST /v2/repository/index", {"ready": True}),
    "two": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "old": b"GET /v2 HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /v2 HTTP/1.0\r\n\r\n",
    "files": request("POST /v2/repository/models/m/load", {"parameters": {
        "config": "{\"name\": \"m\"}", "file:1/model.onnx": "QUJD" * 9000, "file:1/x": "QQ=="}}),
}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for k, (name, stream) in enumerate(SEEDS.items()):
        (folder / name).write_bytes(bytes([9 + k, 1 + k]) + stream)
    (folder / "scarce").write_bytes(bytes([20, 200]) + SEEDS["json"] + SEEDS["large"])


if __name__ == "__main__":
    main()
