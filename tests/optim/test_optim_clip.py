"""Gradients are clipped by norm and by value as PyTorch clips them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from optim_cases import array, leaf, loss_of, start
from peer import figures

import weft
import weft.optim


@pytest.mark.parametrize("norm_type", [1, 2, 3.5, np.inf, -np.inf, 0.5], ids=str)
@pytest.mark.parametrize("max_norm", [0.5, 100.0])
def test_clip_grad_norm(norm_type: float, max_norm: float) -> None:
    def work(library: Any) -> dict[str, Any]:
        params = start(library)
        loss_of(library, params).backward()
        clip = weft.optim if library is weft else library.nn.utils
        total = clip.clip_grad_norm_(iter(params), max_norm, norm_type)
        return {"total": array(total), "0": array(params[0].grad), "1": array(params[1].grad)}

    want = figures(f"clip_norm_{norm_type}_{max_norm}", work)
    for key, value in work(weft).items():
        np.testing.assert_allclose(value, want[key], rtol=1e-12)


def test_clip_grad_norm_of_nothing_and_of_nan() -> None:
    x = leaf()
    assert float(weft.optim.clip_grad_norm_([x], 1.0)) == 0
    x.grad = weft.tensor([weft.nan, 1.0])
    assert weft.isnan(weft.optim.clip_grad_norm_(x, 1.0))
    x.grad = weft.tensor([weft.inf, 1.0])
    with pytest.raises(RuntimeError, match="norm of the gradients is inf"):
        weft.optim.clip_grad_norm_([x], 1.0, error_if_nonfinite=True)


def test_clip_grad_norm_of_several_dtypes() -> None:
    x = weft.tensor([3.0], requires_grad=True)
    y = weft.tensor([4.0], dtype=weft.float64, requires_grad=True)
    x.grad, y.grad = weft.tensor([3.0]), weft.tensor([4.0], dtype=weft.float64)
    assert float(weft.optim.clip_grad_norm_([x, y], 1.0)) == 5
    np.testing.assert_allclose(x.grad.numpy(), [0.6], rtol=1e-6)
    np.testing.assert_allclose(y.grad.numpy(), [0.8], rtol=1e-6)
    assert y.grad.dtype is weft.float64


def test_clip_grad_value() -> None:
    x = weft.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    x.grad = weft.tensor([-3.0, 0.25, 3.0, weft.nan])
    weft.optim.clip_grad_value_(x, 0.5)
    assert x.grad.tolist()[:3] == [-0.5, 0.25, 0.5]
    assert weft.isnan(x.grad[3])
