# SPDX-License-Identifier: Apache-2.0
"""KServe's own client against the doors of a server that serves `copy` and `pair`; run by
test_other_clients.py with a Python that has the package `kserve`.

    kserve_client.py HTTP_ADDRESS GRPC_ADDRESS
"""
import asyncio
import sys

import numpy as np
from kserve import (InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest,
                    RESTConfig)

X = np.array([[1, -2.5, 3, 1e-3]], np.float32)
A = np.array([[1, 2], [3, 4]], np.float32)
N = np.array([[7], [-(1 << 62) - 1]], np.int64)


def tensor(name, datatype, data, binary=True):
    given = InferInput(name, list(data.shape), datatype)
    given.set_data_from_numpy(data, binary_data=binary)
    return given


def equal(got, name, expected):
    found = next(o for o in got.outputs if o.name == name).as_numpy()
    assert found.shape == expected.shape and (found == expected).all(), (name, found, expected)


def check(copied, paired):
    assert copied.model_name == "copy" and paired.id == "seven", (copied, paired)
    equal(copied, "y", X)
    equal(paired, "sum", A + A)
    equal(paired, "m", N)


def requests(binary):
    return (InferRequest("copy", [tensor("x", "FP32", X, binary)], request_id="one"),
            InferRequest("pair", [tensor("a", "FP32", A, binary), tensor("b", "FP32", A, binary),
                                  tensor("n", "INT64", N, binary)], request_id="seven"))


async def rest(address):
    base = f"http://{address}"
    client = InferenceRESTClient(RESTConfig(protocol="v2", retries=0))
    assert await client.is_server_live(base) is True
    assert await client.is_server_ready(base) is True
    assert await client.is_model_ready(base, "copy") is True
    for binary in (False, True):
        check(*[await client.infer(base, request, model_name=request.model_name)
                for request in requests(binary)])
    try:
        await client.infer(base, InferRequest("absent", [tensor("x", "FP32", X)]),
                           model_name="absent")
    except Exception as refusal:
        assert "404" in str(refusal), refusal
    else:
        raise AssertionError("a model that is not there has answered")
    await client.close()


async def over_grpc(address):
    client = InferenceGRPCClient(address, retries=0)
    assert await client.is_server_live() is True
    assert await client.is_server_ready() is True
    assert await client.is_model_ready("copy") is True
    for binary in (False, True):
        check(*[await client.infer(request) for request in requests(binary)])
    try:
        await client.infer(InferRequest("absent", [tensor("x", "FP32", X)]))
    except Exception as refusal:
        assert "NOT_FOUND" in str(refusal) or "absent" in str(refusal), refusal
    else:
        raise AssertionError("a model that is not there has answered")
    await client.close()


asyncio.run(rest(sys.argv[1]))
asyncio.run(over_grpc(sys.argv[2]))
print("all answered")
