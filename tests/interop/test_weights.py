"""`weft.save` and `weft.load`; more of their files: `tests/pytorch/test_serialization.py`."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

import weft
import weft.torch


def test_a_checkpoint(tmp_path: Path) -> None:
    model = weft.nn.Sequential(weft.nn.Linear(2, 3), weft.nn.BatchNorm1d(3))
    optimizer = weft.optim.Adam(model.parameters())
    model(weft.randn(4, 2)).sum().backward()
    optimizer.step()
    path = tmp_path / "checkpoint"
    weft.save({"epoch": 3, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    found = weft.load(path)
    assert found["epoch"] == 3
    assert all(type(x) is weft.Tensor for x in found["model"].values())
    other = weft.nn.Sequential(weft.nn.Linear(2, 3), weft.nn.BatchNorm1d(3))
    other.load_state_dict(found["model"])
    again = weft.optim.Adam(other.parameters())
    again.load_state_dict(found["optimizer"])
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert (a == b).all()
        assert (optimizer.state[a]["exp_avg"] == again.state[b]["exp_avg"]).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool", "complex64"])
def test_files_of_both_namespaces_are_one(dtype: str) -> None:
    x = weft.asarray([[0, 1], [2, 3]]).astype(dtype)
    for save, load in ((weft.save, weft.torch.load), (weft.torch.save, weft.load)):
        file = io.BytesIO()
        save({"x": x, "views": [x[0], x.T]}, file)
        file.seek(0)
        found = load(file)
        assert type(found["x"]) is (weft.Tensor if load is weft.load else type(weft.torch.ones(1)))
        assert (weft.asarray(found["x"]) == x).all()
        assert (weft.asarray(found["views"][1]) == x.T).all()


def test_what_is_loaded_is_its_own(tmp_path: Path) -> None:
    weft.save(weft.ones(2), tmp_path / "x")
    x, y = weft.load(tmp_path / "x"), weft.load(tmp_path / "x", device="cpu")
    x += 1
    assert y.tolist() == [1.0, 1.0]
    assert weft.load(tmp_path / "x").tolist() == [1.0, 1.0]


def test_a_module_is_refused(tmp_path: Path) -> None:
    with pytest.raises(weft.errors.DTypeError, match="is a Linear"):
        weft.save(weft.nn.Linear(1, 1), tmp_path / "x")
    assert not list(tmp_path.iterdir())
