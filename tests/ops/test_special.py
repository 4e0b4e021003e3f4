"""Special functions against SciPy in units in the last place, at poles, and at 0 in any order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.special as scipy

import weft

S = weft.special
#: function, SciPy's, range, how many units in the last place of float64 SciPy and we may differ
ROWS: list[tuple[Any, Any, tuple[float, float], float]] = [
    (weft.lgamma, scipy.gammaln, (3.0, 100.0), 4),
    (weft.digamma, scipy.psi, (0.01, 1.3), 4),
    (weft.digamma, scipy.psi, (1.6, 100.0), 4),
    (weft.erfinv, scipy.erfinv, (-0.9999, 0.9999), 6),
    (S.ndtri, scipy.ndtri, (0.001, 0.999), 6),
    (S.log_ndtr, scipy.log_ndtr, (-40.0, -1.0), 4),
    (S.erfcx, scipy.erfcx, (0.0, 60.0), 12),  # ours is within 4, by mpmath
    (S.i0e, scipy.i0e, (-40.0, 40.0), 4),
    (S.i1e, scipy.i1e, (8.0, 40.0), 4),
    (S.trigamma, lambda x: scipy.polygamma(1, x), (0.01, 40.0), 6),
    (S.entr, scipy.entr, (0.01, 9.0), 2),
]


@pytest.mark.parametrize(("mine", "theirs", "span", "units"), ROWS)
@pytest.mark.parametrize("backend", ["eager", "native"])
def test_last_digits(mine: Any, theirs: Any, span: Any, units: float, backend: str) -> None:
    call = mine if backend == "eager" else weft.compile(lambda x: mine(x), backend="native")
    x = np.random.default_rng(0).uniform(*span, 2000)
    want = theirs(x)
    found = call(weft.asarray(x)).numpy()
    assert (np.abs(found - want) <= units * np.spacing(np.abs(want))).all()
    narrow = x.astype(np.float32)
    want = theirs(narrow.astype(np.float64)).astype(np.float32)
    found = call(weft.asarray(narrow)).numpy()
    assert (np.abs(found - want) <= 2 * np.spacing(np.abs(want))).all()


@pytest.mark.parametrize(
    ("call", "want"),
    [
        (lambda: weft.lgamma(weft.asarray([0.0, -0.0, -1.0, -7.0])), [math.inf] * 4),
        (lambda: weft.lgamma(weft.asarray([-0.5, -2.5])), scipy.gammaln([-0.5, -2.5])),
        (lambda: weft.digamma(weft.asarray([0.0, -0.0, -3.0])), [-math.inf, math.inf, math.nan]),
        (lambda: weft.digamma(weft.asarray([-0.3, -2.7])), scipy.psi([-0.3, -2.7])),
        (lambda: weft.polygamma(2, weft.asarray([-0.3, -2.7])), scipy.polygamma(2, [-0.3, -2.7])),
        (lambda: weft.erfinv(weft.asarray([-1.0, 1.0, 1.5])), [-math.inf, math.inf, math.nan]),
        (lambda: S.ndtri(weft.asarray([0.0, 1.0, -0.1])), [-math.inf, math.inf, math.nan]),
        (lambda: S.gammainc(2.0, weft.asarray([0.0, math.inf])), [0.0, 1.0]),
        (lambda: S.zeta(weft.asarray([1.0, 0.5]), 2.0), [math.inf, math.nan]),
    ],
)
def test_poles_and_negative_numbers(call: Any, want: Any) -> None:
    np.testing.assert_allclose(call().numpy(), want, rtol=2e-6)


def slopes(function: Any, x: float, order: int) -> list[float]:
    found = []
    for _ in range(order + 1):
        found.append(function(weft.asarray(x, dtype=weft.float64)).item())
        function = weft.grad(function)
    return found


def test_every_order_at_zero() -> None:
    """Derivatives stay in the family: no 0 / 0 at 0."""
    pi = math.pi
    sinc = [1, 0, -(pi**2) / 3, 0, pi**4 / 5, 0, -(pi**6) / 7]
    np.testing.assert_allclose(slopes(weft.sinc, 0.0, 6), sinc, rtol=1e-13)
    np.testing.assert_allclose(
        slopes(weft.i0, 0.0, 6), [1, 0, 1 / 2, 0, 3 / 8, 0, 5 / 16], rtol=1e-13
    )
    np.testing.assert_allclose(slopes(S.i1, 0.0, 5), [0, 1 / 2, 0, 3 / 8, 0, 5 / 16], rtol=1e-13)
    want = [scipy.gammaln(2.5), *(scipy.polygamma(n, 2.5) for n in range(5))]
    np.testing.assert_allclose(slopes(weft.lgamma, 2.5, 5), want, rtol=1e-12)
    near = slopes(weft.sinc, 1e-3, 4)
    np.testing.assert_allclose(near[3], pi**4 / 5 * 1e-3, rtol=1e-5)


def test_errors_name_what_is_wrong() -> None:
    with pytest.raises(weft.errors.RangeError, match="n must be an int"):
        weft.polygamma(1.5, weft.ones(2))  # type: ignore[arg-type]
    with pytest.raises(weft.errors.RangeError, match="from 0 to"):
        weft.polygamma(-1, weft.ones(2))
    x = weft.ones(2).requires_grad_()
    with pytest.raises(weft.errors.GradientError, match="exponent"):
        weft.sum(S.zeta(x + 1, 2.0)).backward()
