"""A server of `weft serve` in a process of its own, for tests."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from weft.interop.serve.datatypes import DATATYPES

HEADER = "Inference-Header-Content-Length"
NAMES = {dtype.numpy: name for name, dtype in DATATYPES.items()}


class Server:
    """A running server: its process, its port, its log."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self.log = log
        self.port = self._port()

    def _port(self) -> int:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            found = re.search(r"listening on http://127.0.0.1:(\d+)", self.log.read_text())
            if found:
                return int(found[1])
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.02)
        raise AssertionError(self.log.read_text())

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)

    def ask(
        self, path: str, body: Any = None, headers: dict[str, str] | None = None, method: str = ""
    ) -> tuple[int, dict[str, str], bytes]:
        """The status, headers and body of an answer."""
        connection = self.connection()
        try:
            chunked = body is not None and not isinstance(body, (bytes, str))
            method = method or ("GET" if body is None else "POST")
            connection.request(method, path, body, headers or {}, encode_chunked=chunked)
            answer = connection.getresponse()
            return answer.status, dict(answer.headers), answer.read()
        finally:
            connection.close()

    def infer(self, model: str, data: Any, headers: dict[str, str] | None = None) -> Any:
        """(status, data) of a request in JSON."""
        status, _, body = self.ask(f"/v2/models/{model}/infer", json.dumps(data), headers)
        return status, json.loads(body)

    def figure(self, name: str, label: str = "") -> float:
        """The sum of a figure over its labels, or over those with this one."""
        text = self.ask("/metrics")[2].decode()
        lines = [line for line in text.splitlines() if re.match(rf"{name}[{{ ].*{label}", line)]
        return sum(float(line.split()[-1]) for line in lines)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)


@contextmanager
def serving(folder: Path, models: Sequence[str | Path], *options: str) -> Iterator[Server]:
    log = folder / f"log{len(list(folder.glob('log*')))}"
    command = [sys.executable, "-W", "error", "-m", "weft", "serve", *map(str, models)]
    environment = {**os.environ, "WEFT_NUM_THREADS": "1", "WEFT_BACKEND": "native"}
    with log.open("w") as file:
        process = subprocess.Popen(
            [*command, "--port", "0", *options],
            stdout=file,
            stderr=file,
            text=True,
            env=environment,
            start_new_session=True,  # Ctrl-C goes to all processes of a terminal
        )
    try:
        yield Server(process, log)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def as_json(name: str, array: np.ndarray[Any, Any]) -> dict[str, Any]:
    data = array.astype(np.float64) if array.dtype.name == "bfloat16" else array
    shape = list(array.shape)
    listed = data.tolist() if shape else [data.tolist()]
    return {"name": name, "shape": shape, "datatype": NAMES[array.dtype], "data": listed}


def binary(arrays: dict[str, np.ndarray[Any, Any]], **more: Any) -> tuple[bytes, dict[str, str]]:
    """The body and headers of a request in bytes, answered in bytes."""
    inputs = [
        {
            "name": name,
            "shape": list(array.shape),
            "datatype": NAMES[array.dtype],
            "parameters": {"binary_data_size": array.nbytes},
        }
        for name, array in arrays.items()
    ]
    head = {"inputs": inputs, "parameters": {"binary_data_output": True}, **more}
    text = json.dumps(head).encode()
    return text + b"".join(x.tobytes() for x in arrays.values()), {HEADER: str(len(text))}


def results(headers: dict[str, str], body: bytes) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of an answer, in JSON or bytes."""
    end = int(headers.get(HEADER, len(body)))
    rest, found = body[end:], {}
    for output in json.loads(body[:end])["outputs"]:
        dtype = DATATYPES[output["datatype"]].numpy
        size = output.get("parameters", {}).get("binary_data_size")
        if size is None:
            array = np.array(output["data"], dtype)
        else:
            array, rest = np.frombuffer(rest[:size], dtype), rest[size:]
        found[output["name"]] = array.reshape(output["shape"])
    assert not rest
    return found
