#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A daemon on a device, with an ONNX file that it has its own child build, beside onnxruntime; and,
on a GPU, with tensors in GPU memory of another process: this one's.

    check_daemon.py --inferd PATH --inferctl PATH --models FOLDER [--device cuda]

Prints a line a check. Exit code 1 if any failed.
"""
import argparse
import base64
import ctypes
import glob
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "zoo"), str(HERE.parent / "integration")]
import compare  # noqa: E402
import inputs  # noqa: E402
import serving  # noqa: E402

MODELS, BATCHES, BOUND = ["resnet_tiny"], [1, 3], 1e-4


def served(args, address, model, feeds):
    with tempfile.TemporaryDirectory() as folder:
        command = [args.inferctl, "infer", address, "--model", model, "--output", folder]
        for name, array in feeds.items():
            file = f"{folder}/in_{name}.npy"
            np.save(file, array)
            command += ["--input", f"{name}={file}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=60)
        return {p.stem: np.load(p) for p in pathlib.Path(folder).glob("*.npy")
                if not p.name.startswith("in_")}


class Memory:
    """GPU memory of this process, through the runtime library alone."""

    def __init__(self, size):
        there = sorted(glob.glob("/usr/local/cuda*/lib64/libcudart.so.*"))
        self.lib, self.at = ctypes.CDLL(there[-1] if there else "libcudart.so"), ctypes.c_void_p()
        self.call("cudaMalloc", ctypes.byref(self.at), ctypes.c_size_t(size))

    def call(self, name, *args):
        code = getattr(self.lib, name)(*args)
        if code:
            raise RuntimeError(f"{name}: {code}")

    def handle(self):
        raw = (ctypes.c_char * 64)()
        self.lib.cudaIpcGetMemHandle.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self.call("cudaIpcGetMemHandle", raw, self.at)
        return base64.b64encode(raw.raw).decode()

    def copy(self, to, of, size):
        self.call("cudaMemcpy", to, of, ctypes.c_size_t(size), 4)  # the direction is found out

    def put(self, array, offset):
        self.copy(ctypes.c_void_p(self.at.value + offset), array.ctypes.data_as(ctypes.c_void_p),
                  array.nbytes)

    def get(self, like, offset):
        array = np.empty_like(like)
        self.copy(array.ctypes.data_as(ctypes.c_void_p), ctypes.c_void_p(self.at.value + offset),
                  array.nbytes)
        return array


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.loads(reply.read())


def shared(url, model, feeds, want):
    """The outputs that the server left in a region, when inputs lie there as well."""
    sizes = [(name, array, array.nbytes) for name, array in [*feeds.items(), *want.items()]]
    places, total = {}, 0
    for name, _, size in sizes:
        places[name] = {"shared_memory_region": "gpu", "shared_memory_byte_size": size,
                        "shared_memory_offset": total}
        total += -(-size // 256) * 256
    memory = Memory(total)
    for name, array in feeds.items():
        memory.put(np.ascontiguousarray(array), places[name]["shared_memory_offset"])
    post(f"{url}/cudasharedmemory/region/gpu/register",
         {"raw_handle": {"b64": memory.handle()}, "device_id": 0, "byte_size": total})
    post(f"{url}/models/{model}/infer", {
        "inputs": [{"name": name, "datatype": "FP32", "shape": list(array.shape),
                    "parameters": places[name]} for name, array in feeds.items()],
        "outputs": [{"name": name, "parameters": places[name]} for name in want]})
    post(f"{url}/cudasharedmemory/region/gpu/unregister", {})
    return {name: memory.get(array, places[name]["shared_memory_offset"])
            for name, array in want.items()}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inferd", required=True)
    parser.add_argument("--inferctl", required=True)
    parser.add_argument("--models", required=True, help="kept there for the next time")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    subprocess.run([sys.executable, HERE.parent / "zoo/make_zoo.py", args.models, *MODELS],
                   check=True, stdout=subprocess.DEVNULL)
    passed = failed = 0
    with tempfile.TemporaryDirectory() as cache:
        config = pathlib.Path(cache, "inferd.yaml")
        gpu, port = args.device.startswith("cuda"), free_port()
        config.write_text(f"cache: {cache}\ncuda_shared_memory: {str(gpu).lower()}\n")
        models = [f"{m}={args.models}/{m}.onnx" for m in MODELS]
        begun = time.monotonic()
        with serving.inferd(args.inferd, "--config", config, "--device", args.device, *models,
                            "--max-batch", max(BATCHES), "--http", f"127.0.0.1:{port}") as address:
            print(f"ready after {time.monotonic() - begun:.1f} s")
            for model in MODELS:
                for batch in BATCHES:
                    path = f"{args.models}/{model}.onnx"
                    feeds = inputs.make(path, batch)
                    want = compare.theirs(path, feeds)
                    ways = {"": lambda f: served(args, address, model, f)}
                    if gpu:
                        ways["shared"] = lambda f: shared(f"http://127.0.0.1:{port}/v2", model, f,
                                                          want)
                    for way, ask in ways.items():
                        mine = ask(feeds)
                        worst = max(compare.relative_error(mine.get(k), v)
                                    for k, v in want.items())
                        ok = worst <= BOUND
                        print(f"{model:14} {batch:3} {worst:9.2e} {'ok' if ok else 'FAILED'} {way}",
                              flush=True)
                        passed += ok
                        failed += not ok
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
