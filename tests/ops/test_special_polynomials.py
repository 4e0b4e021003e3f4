"""Orthogonal polynomials: beside NumPy's, with derivatives, compiled. Beside PyTorch: op_db."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft

P = np.polynomial
NUMPY = {
    "chebyshev_polynomial_t": P.chebyshev.chebval,
    "hermite_polynomial_h": P.hermite.hermval,
    "hermite_polynomial_he": P.hermite_e.hermeval,
    "laguerre_polynomial_l": P.laguerre.lagval,
    "legendre_polynomial_p": P.legendre.legval,
}
ALL = [name for name in weft.special.__all__ if "_polynomial_" in name]
X = weft.linspace(-1.5, 1.5, 7, dtype="float64")


@pytest.mark.parametrize("name", NUMPY)
def test_as_numpy(name: str) -> None:
    function = getattr(weft.special, name)
    degrees = weft.arange(8)[:, None]
    whole = function(X, degrees)
    assert whole.shape == (8, 7)
    for n in range(8):
        want = NUMPY[name](X.numpy(), [0.0] * n + [1.0])
        np.testing.assert_allclose(function(X, n).numpy(), want, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(whole[n].numpy(), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ALL)
def test_shapes_dtypes_and_degrees(name: str) -> None:
    function = getattr(weft.special, name)
    assert (function(X, -1) == 0).all()
    assert (function(X, 0) == 1).all()
    assert function(weft.asarray([1, 2]), 3).dtype is weft.float32
    assert function(X.astype("float16"), 3).dtype is weft.float16
    assert function(weft.zeros((0, 2)), weft.ones((3, 1, 2), dtype="int64")).shape == (3, 0, 2)
    assert function(X, weft.zeros((0, 1), dtype="int64")).shape == (0, 7)


@pytest.mark.parametrize("name", ALL)
def test_derivatives_and_compiled(name: str) -> None:
    function = getattr(weft.special, name)
    weft.check_grads(lambda x: function(x, 5), X)
    weft.check_grads(lambda x: function(x, weft.arange(7)), X)

    def value_and_slope(x: Any) -> Any:
        return function(x, 4), weft.grad(lambda t: function(t, 4).sum())(x)

    for mine, eager in zip(
        weft.compile(value_and_slope, backend="native")(X), value_and_slope(X), strict=True
    ):
        np.testing.assert_allclose(mine.numpy(), eager.numpy(), rtol=1e-12)
    np.testing.assert_allclose(
        weft.vmap(lambda x: function(x, 4))(X).numpy(), function(X, 4).numpy(), rtol=1e-12
    )
