"""`torch.save` and `torch.load`: trees of tensors and plain values, without pickle."""

from __future__ import annotations

import io
import json
import pickle
import struct
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft.torch as torch
import weft.torch.nn as nn
from weft.errors import WeftError

DTYPES = [
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "int64",
    "int8",
    "uint8",
    "bool",
    "complex64",
]


@pytest.mark.parametrize("name", DTYPES)
def test_a_tensor_of_each_dtype(name: str, tmp_path: Path) -> None:
    x = torch.tensor([[0, 1], [2, 3]]).to(getattr(torch, name))
    for value in (x, x[0], x.t(), x[:0], x[0, 0]):
        torch.save(value, tmp_path / "x.pt")
        found = torch.load(tmp_path / "x.pt")
        assert isinstance(found, torch.Tensor)
        assert (found.dtype, found.shape) == (value.dtype, value.shape)
        assert torch.equal(found, value)
        found.zero_()  # it is its own


def test_a_checkpoint(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 2)).sum().backward()
    optimizer.step()
    path = tmp_path / "checkpoint.pt"
    saved = {"epoch": 3, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save({**saved, "loss": float("inf"), "name": "ö", "sizes": (1, [2.5, None, True])}, path)
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint.pt"]
    found = torch.load(path, map_location=torch.device("cpu"), weights_only=True)
    assert (found["epoch"], found["loss"], found["name"]) == (3, float("inf"), "ö")
    assert found["sizes"] == (1, [2.5, None, True])
    other = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    other.load_state_dict(found["model"])
    for one, two in zip(other.state_dict().values(), model.state_dict().values(), strict=True):
        assert torch.equal(one, two)
    again = torch.optim.Adam(other.parameters())
    again.load_state_dict(found["optimizer"])
    assert again.state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]


def test_keys_and_shared_tensors() -> None:
    x = torch.arange(3.0)
    tree = OrderedDict({0: x, "a.b": {"c": x}, "a": {"b.c": torch.ones(1)}, (1, "k"): [x]})
    file = io.BytesIO()
    torch.save(tree, file)
    file.seek(0)
    found = torch.load(file)
    assert list(found) == list(tree)
    assert found[0] is found["a.b"]["c"] is found[(1, "k")][0]
    assert found["a"]["b.c"].tolist() == [1.0]


def test_others_read_the_tensors(tmp_path: Path) -> None:
    torch.save({"w": torch.arange(4.0).view(2, 2)}, tmp_path / "w")
    data = (tmp_path / "w").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    entry = json.loads(data[8 : 8 + length])["w"]
    start, end = entry["data_offsets"]
    body = np.frombuffer(data[8 + length :][start:end], "<f4").reshape(entry["shape"])
    assert (entry["dtype"], body.tolist()) == ("F32", [[0.0, 1.0], [2.0, 3.0]])
    header = b'{"x":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}}'
    plain = struct.pack("<Q", len(header)) + header + struct.pack("<q", 7)
    assert torch.load(io.BytesIO(plain))["x"].tolist() == [7]


def file_of(header: Any, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
BAD = {
    "empty": b"",
    "short": b"\x05\x00",
    "pickle": pickle.dumps({"a": 1}),
    "zip": b"PK\x03\x04 and more",
    "long header": struct.pack("<Q", 2**60) + b"{}",
    "no JSON": file_of(b"{]"),
    "no table": file_of([1]),
    "cut off": file_of({"x": ENTRY}, b"1234"),
    "size": file_of({"x": {**ENTRY, "shape": [3]}}, bytes(8)),
    "negative": file_of({"x": {**ENTRY, "shape": [-2, -1]}}, bytes(8)),
    "order": file_of({"x": {**ENTRY, "data_offsets": [8, 0]}}, bytes(8)),
    "dtype": file_of({"x": {**ENTRY, "dtype": "X9"}}, bytes(8)),
    "no entry": file_of({"x": 5}),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused(name: str) -> None:
    with pytest.raises(WeftError):
        torch.load(io.BytesIO(BAD[name]))


def test_what_is_not_data_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save({"a": 1}, path)
    with pytest.raises(WeftError, match="state_dict"):
        torch.save({"model": nn.Linear(1, 1)}, path)
    assert torch.load(path) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]
