"""Leaves that a captured function makes: they are differentiated outside, once and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn

MODES = {"trace": weft.trace, "source": weft.compile}
X = weft.asarray([[1.0, 2.0], [-3.0, -4.0], [0.5, -0.25]], dtype="f8")
W = weft.asarray([2.0, 3.0], dtype="f8")


def alone(w: Any, x: Any) -> Any:
    y = (x.detach() * 2).requires_grad_()
    return y, (y**3).sum() + (w**3).sum()


def with_a_weight(w: Any, x: Any) -> Any:
    """The leaf is computed of the weight, of which it knows nothing."""
    y = (x * w).detach().requires_grad_()
    return y, (y**3 * w).sum()


def in_a_branch(w: Any, x: Any) -> Any:
    y = (x * 2).detach().requires_grad_()
    z = y * w if x.sum() > 0 else y**2 * w
    return y, (z**2).sum()


def one_of_several(w: Any, x: Any) -> Any:
    """It is one result of an op that has two."""
    with weft.no_grad():
        y, z = weft.unstack(x * 2, axis=1)
    y.requires_grad_()
    return y, (y**3 * z * w[0]).sum()


def parameter(w: Any, x: Any) -> Any:
    y = nn.Parameter(x * 0.5)
    return y, weft.sin(y * w).sum()


FUNCTIONS: list[Callable[..., Any]] = [alone, with_a_weight, in_a_branch, one_of_several, parameter]


def slopes(f: Any, w: Any, x: Any, order: int) -> list[Any]:
    """Gradients by the leaf and by the weight: of the result, or of the squares of those."""
    y, z = f(w, x)
    if order == 2:
        first = weft.autograd.grad(z, [y, w], create_graph=True)
        z = sum((g**2).sum() for g in first)
    return [np.array(g.numpy()) for g in weft.autograd.grad(z, [y, w])]


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("f", FUNCTIONS)
def test_a_leaf_is_differentiated_as_in_eager_mode(f: Any, mode: str, order: int) -> None:
    w = W.clone().requires_grad_()
    want = slopes(f, w, X, order)
    captured = MODES[mode](f)
    for _ in range(2):
        for got, expected in zip(slopes(captured, w, X, order), want, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_second_derivatives_are_differences_of_the_first(mode: str) -> None:
    """By the weight, which the leaf does not depend on: the leaf is held, and put back."""
    captured = MODES[mode](with_a_weight)

    def first(w: Any) -> Any:
        y, z = captured(w, X)
        return np.array(weft.autograd.grad(z, y)[0].numpy())

    w = W.clone().requires_grad_()
    y, z = captured(w, X)
    (g,) = weft.autograd.grad(z, y, create_graph=True)
    (found,) = weft.autograd.grad(g.sum(), w)
    # d/dw of 3 y² w, y held at x w: 3 y²
    want = (3 * np.array(y.detach().numpy()) ** 2).sum(0)
    np.testing.assert_allclose(found.numpy(), want)
    (again,) = weft.autograd.grad((captured(w, X)[0] ** 2).sum(), [w], allow_unused=True)
    assert again is None
    # d/dy of 3 y² w is 6 y w: by finite differences of the formula at the leaf
    step = 1e-6
    y2, z2 = captured(w, X)
    (g2,) = weft.autograd.grad(z2, y2, create_graph=True)
    (second,) = weft.autograd.grad(g2.sum(), y2)
    held, scale = np.array(y2.detach().numpy()), np.array(W.numpy())
    slope = lambda v: 3 * v**2 * scale  # noqa: E731
    differences = (slope(held + step) - slope(held - step)) / (2 * step)
    np.testing.assert_allclose(second.numpy(), differences, rtol=1e-6)
    np.testing.assert_allclose(first(w), slope(held))
