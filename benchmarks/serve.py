"""`weft serve` under load: 64 connections, with and without batches, beside the same server with
PyTorch eager or ONNX Runtime in the place of the program.

Each side is a server in a process of its own on a free port of this machine; this process is the
clients: each of the connections sends a request of one row and waits for the answer, for some
seconds. Sides take turns; of each the round with the least time of the processor counts, as
machines are busy. All run models on one thread. Printed are requests a second, the 50th and 99th
percentile of their time, the processor time of the server for a request, and the mean batch. All
ends by itself.

    python benchmarks/serve.py [--model mlp|cnn] [--seconds 4] [--rounds 3] [--connections 64]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import weft
from weft import nn
from weft.interop.serve import models as served_models
from weft.interop.serve.served import Served

#: name: (what runs the model, body, options of the server)
SIDES: dict[str, tuple[str, str, list[str]]] = {
    "weft": ("weft", "bytes", []),
    "weft, each alone": ("weft", "bytes", ["--max-batch=1"]),
    "weft, 2 workers": ("weft", "bytes", ["--workers=2"]),
    "PyTorch eager": ("torch", "bytes", []),
    "PyTorch eager, each alone": ("torch", "bytes", ["--max-batch=1"]),
    "ONNX Runtime": ("onnx", "bytes", []),
    "ONNX Runtime, each alone": ("onnx", "bytes", ["--max-batch=1"]),
    "weft, JSON": ("weft", "json", []),
    "weft, JSON, each alone": ("weft", "json", ["--max-batch=1"]),
    "PyTorch eager, JSON, each alone": ("torch", "json", ["--max-batch=1"]),
}
SHAPES = {"mlp": (784,), "cnn": (1, 28, 28)}


def layers(model: str, of: Any) -> Any:
    """The model, of weft.nn or torch.nn."""
    if model == "mlp":
        hidden = (of.Linear(784, 256), of.ReLU(), of.Linear(256, 256), of.ReLU())
        return of.Sequential(*hidden, of.Linear(256, 10))
    first = (of.Conv2d(1, 16, 3, padding=1), of.ReLU(), of.MaxPool2d(2))
    second = (of.Conv2d(16, 32, 3, padding=1), of.ReLU(), of.MaxPool2d(2), of.Flatten())
    return of.Sequential(*first, *second, of.Linear(32 * 49, 10))


# --- servers --------------------------------------------------------------------------------------


def run_server(engine: str, file: str, options: list[str]) -> None:
    """`weft serve`, with another engine in the place of the program's run."""
    if engine != "weft":
        call = {"torch": torch_call, "onnx": onnx_call}[engine](file)

        class Other(Served):
            def run(self, requests: Sequence[Sequence[Any]]) -> list[list[Any]]:
                rows = [inputs[0]._data for inputs in requests]
                found = call(np.concatenate(rows))  # these models do not mix rows
                return [[x] for x in np.split(found, len(rows))]

        served_models.Served = Other  # type: ignore[misc]
    from weft.cli import main

    sys.exit(main(["serve", file, "--port", "0", *options]))


def torch_call(file: str) -> Any:
    import torch

    torch.set_num_threads(1)
    model = layers(Path(file).stem, torch.nn).eval()
    state = weft.load_program(file).state
    model.load_state_dict({name: torch.from_numpy(x.numpy().copy()) for name, x in state.items()})

    def call(x: Any) -> Any:
        with torch.inference_mode():
            return model(torch.from_numpy(x)).numpy()

    return call


def onnx_call(file: str) -> Any:
    import onnxruntime

    path = file.replace(".weft", ".onnx")
    weft.onnx.export(weft.load_program(file), path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options)
    name = session.get_inputs()[0].name
    return lambda x: session.run(None, {name: x})[0]


# --- clients --------------------------------------------------------------------------------------


class Client(asyncio.Protocol):
    """A connection that sends one request after another; `times` has the seconds of each."""

    def __init__(self, request: bytes, until: float, times: list[float]) -> None:
        self.request, self.until, self.times = request, until, times
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.got = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.send()

    def send(self) -> None:
        self.start = time.perf_counter()
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.got += data
        end = self.got.find(b"\r\n\r\n")
        if end < 0:
            return
        length = re.search(rb"(?i)content-length: (\d+)\r\n", self.got[: end + 2])
        assert self.got.startswith(b"HTTP/1.1 200"), self.got
        assert length is not None
        if len(self.got) < end + 4 + int(length[1]):
            return
        self.got = b""
        now = time.perf_counter()
        self.times.append(now - self.start)
        if now < self.until:
            self.send()
        else:
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.over.done():
            self.over.set_result(None)


async def load(port: int, request: bytes, connections: int, seconds: float) -> list[float]:
    loop, times = asyncio.get_running_loop(), []
    until = time.perf_counter() + seconds
    made = [
        await loop.create_connection(lambda: Client(request, until, times), "127.0.0.1", port)
        for _ in range(connections)
    ]
    await asyncio.wait_for(asyncio.gather(*[client.over for _, client in made]), seconds + 30)
    return times


def request_of(kind: str, x: np.ndarray[Any, Any], model: str) -> bytes:
    tensor: dict[str, Any] = {"name": "x", "shape": x.shape, "datatype": "FP32"}
    headers, data = "", b""
    if kind == "json":
        tensor["data"] = [round(float(v), 4) for v in x.ravel()]
        head = json.dumps({"inputs": [tensor]}).encode()
    else:
        data = x.tobytes()
        tensor["parameters"] = {"binary_data_size": len(data)}
        said = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
        head = json.dumps(said).encode()
        headers = f"Inference-Header-Content-Length: {len(head)}\r\n"
    start = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: localhost\r\n{headers}"
    return f"{start}Content-Length: {len(head) + len(data)}\r\n\r\n".encode() + head + data


# --- the table ------------------------------------------------------------------------------------


def cpu_seconds(process: int) -> float:
    """Of a process and its children."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(cpu_seconds(int(child)) for child in children)


def figure(port: int, name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


def measured(side: str, file: str, options: argparse.Namespace) -> dict[str, float]:
    engine, kind, more = SIDES[side]
    command = [sys.executable, __file__, "--engine", engine, "--file", file, "--threads=1", *more]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        found, said = 0, ""
        while found < 1 + sum(option == "--workers=2" for option in more):
            line = server.stderr.readline()
            said += line
            assert line, said
            found += "listening" in line
        port = int(said.rpartition("127.0.0.1:")[2].split(":")[0])
        x = np.random.default_rng(0).random((1, *SHAPES[options.model])).astype(np.float32)
        request = request_of(kind, x, options.model)
        asyncio.run(load(port, request, options.connections, 1.0))
        runs, cpu = figure(port, "weft_batch_size_count"), cpu_seconds(server.pid)
        start = time.perf_counter()
        times = asyncio.run(load(port, request, options.connections, options.seconds))
        seconds = time.perf_counter() - start
        cpu = cpu_seconds(server.pid) - cpu
        runs = figure(port, "weft_batch_size_count") - runs
    finally:
        server.terminate()
        server.communicate(timeout=30)
    return {
        "requests/s": len(times) / seconds,
        "p50 ms": 1e3 * float(np.percentile(times, 50)),
        "p99 ms": 1e3 * float(np.percentile(times, 99)),
        "CPU µs": 1e6 * cpu / len(times),
        "batch": len(times) / runs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", choices=SHAPES, default="mlp")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    options, rest = parser.parse_known_args()
    if options.engine is not None:
        run_server(options.engine, options.file, rest)
    if rest:
        parser.error(f"unknown: {rest}")
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/{options.model}.weft"
        model = layers(options.model, nn).eval()
        weft.export(model, weft.spec(("B", *SHAPES[options.model]))).save(file)
        best: dict[str, dict[str, float]] = {}
        for _ in range(options.rounds):
            for side in SIDES:
                try:
                    found = measured(side, file, options)
                except AssertionError as error:
                    print(f"{side}: skipped: {str(error).strip().splitlines()[-1:]}")
                    continue
                if side not in best or found["CPU µs"] < best[side]["CPU µs"]:
                    best[side] = found
    print(f"{options.model}, {options.connections} connections, {os.cpu_count()} cores")
    for side, found in best.items():
        shown = "  ".join(f"{name} {value:8.1f}" for name, value in found.items())
        print(f"{side:32}  {shown}")


if __name__ == "__main__":
    main()
