"""Expressions that mean the same in PyTorch and in `weft.torch`: values, dtypes, structure."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from peer import torch as real
from torch_expressions import ROWS, VALUES

import weft
import weft.torch as torch

if real is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)


def evaluated(expression: str, namespace: Any) -> Any:
    names = {name: namespace.tensor(value) for name, value in VALUES.items()}
    names |= {"torch": namespace, "nn": namespace.nn, "np": np}
    return eval(expression, names)


def plain(value: Any) -> Any:
    """A result as arrays, lists and names of dtypes."""
    if hasattr(value, "detach"):
        return np.asarray(value.detach())
    if isinstance(value, (tuple, list)):
        return [plain(part) for part in value]
    return str(value).split(".")[-1] if hasattr(value, "itemsize") else value


def check(found: Any, wanted: Any) -> None:
    assert isinstance(found, list) == isinstance(wanted, list)
    if isinstance(wanted, list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            check(one, other)
    elif isinstance(wanted, np.ndarray):
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    else:
        assert type(found) is type(wanted)
        assert found == wanted


@pytest.mark.filterwarnings("ignore:torch.meshgrid")
@pytest.mark.parametrize("expression", ROWS)
def test_an_expression_means_the_same(expression: str) -> None:
    found = evaluated(expression, torch)
    check(plain(found), plain(evaluated(expression, real)))
    for part in found if isinstance(found, tuple) else (found,):
        assert not isinstance(part, weft.Tensor) or isinstance(part, torch.Tensor)
