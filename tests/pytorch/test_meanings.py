"""Expressions that mean the same in PyTorch and in `weft.torch`: values, dtypes, structure."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from peer import FOLDER
from peer import torch as real
from torch_expressions import ROWS, VALUES

import weft
import weft.torch as torch

STORED = Path(FOLDER) / "torch_expressions.json"


def evaluated(expression: str, namespace: Any) -> Any:
    names = {name: namespace.tensor(value) for name, value in VALUES.items()}
    names |= {"torch": namespace, "nn": namespace.nn, "np": np}
    return eval(expression, names)


def plain(value: Any) -> Any:
    """A result as JSON has it: arrays with their dtypes and shapes, dtypes by name."""
    if hasattr(value, "detach"):
        array = np.asarray(value.detach())
        return {"dtype": str(array.dtype), "shape": list(array.shape), "values": array.tolist()}
    if isinstance(value, (tuple, list)):
        return [plain(part) for part in value]
    return str(value).split(".")[-1] if hasattr(value, "itemsize") else value


def check(found: Any, wanted: Any) -> None:
    assert type(found) is type(wanted)
    if isinstance(wanted, list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            check(one, other)
    elif isinstance(wanted, dict):
        assert (found["dtype"], found["shape"]) == (wanted["dtype"], wanted["shape"])
        np.testing.assert_allclose(found["values"], wanted["values"], rtol=1e-5, atol=1e-6)
    else:
        assert found == wanted


@functools.cache
def stored() -> dict[str, Any]:
    """What PyTorch gave; written anew with WEFT_STORE_FIGURES=1."""
    if real is not None and os.environ.get("WEFT_STORE_FIGURES"):
        rows = {expression: plain(evaluated(expression, real)) for expression in ROWS}
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in rows.items()]
        STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    found: dict[str, Any] = json.loads(STORED.read_text())
    return found


@pytest.mark.filterwarnings("ignore:torch.meshgrid")
@pytest.mark.parametrize("expression", ROWS)
def test_an_expression_means_the_same(expression: str) -> None:
    found = evaluated(expression, torch)
    check(plain(found), stored()[expression])
    if real is not None:
        check(plain(found), json.loads(json.dumps(plain(evaluated(expression, real)))))
    for part in found if isinstance(found, tuple) else (found,):
        assert not isinstance(part, weft.Tensor) or isinstance(part, torch.Tensor)


def test_the_version_says_whose_names_these_are() -> None:
    assert torch.__version__.startswith("2.13")
    assert tuple(map(int, torch.__version__.split("+")[0].split("."))) >= (2, 0, 0)
