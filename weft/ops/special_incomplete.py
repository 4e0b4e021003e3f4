"""The incomplete gamma functions, by series and continued fraction until they no longer change."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.ops.activations import erfc_values
from weft.ops.define import binary
from weft.ops.special_define import call, horner
from weft.ops.special_gamma import STIRLING, lgamma_values

__all__ = ["gammainc", "gammaincc"]

_EPS = 2.0**-53
_MOST_TERMS = 100_000
#: From here on, the distribution is almost normal, and series would take too many terms.
_HUGE = 1e8


def _front(a: Any, x: Any) -> Any:
    """x ** a exp(-x) / gamma(a + 1), with all digits for large a too."""
    large = a >= 8
    high = np.where(large, a, 8.0)
    apart = (x - high) / high
    curve = np.where(np.abs(apart) < 0.5, np.log1p(apart) - apart, np.log(x / high) - apart)
    series = horner(STIRLING, 1 / (high * high)) / high
    far = np.exp(high * curve - series) / np.sqrt(2 * math.pi * high)
    low = np.where(large, 1.0, a)
    return np.where(large, far, np.exp(low * np.log(x) - x - lgamma_values(np, low + 1)))


def _series(a: Any, x: Any) -> Any:
    """1 + x / (a + 1) + x² / ((a + 1) (a + 2)) + …"""
    total, term, left, n = np.ones(a.shape), np.ones(a.shape), np.arange(a.size), 0
    while left.size and n < _MOST_TERMS:
        n += 1
        term = term * (x[left] / (a[left] + n))
        total[left] += term
        more = term > _EPS * total[left]
        left, term = left[more], term[more]
    return total


def _continued(a: Any, x: Any) -> Any:
    """Q / front * x / a, by the continued fraction of Legendre, after Lentz."""
    out, left = np.empty(a.shape), np.arange(a.size)
    b = x + 1 - a
    c, d = np.full(a.shape, 1e300), 1 / b
    h, n = d.copy(), 0
    while left.size and n < _MOST_TERMS:
        n += 1
        factor = -n * (n - a[left])
        b = b + 2
        d = 1 / (factor * d + b)
        c = b + factor / c
        h = h * (c * d)
        out[left] = h
        more = np.abs(c * d - 1) > 4 * _EPS
        left, b, c, d, h = left[more], b[more], c[more], d[more], h[more]
    return out


def _almost_normal(a: Any, x: Any) -> tuple[Any, Any]:
    """Temme's expansion for large a, with one correction: relative error below 1e-8 near a."""
    apart = (x - a) / a
    near = np.abs(apart) < 1e-2
    small = np.where(near, apart, 0.0)
    series = small * small * (0.5 - small / 3 + small**2 / 4 - small**3 / 5 + small**4 / 6)
    distance = np.where(near, series, apart - np.log1p(apart))
    eta = np.copysign(np.sqrt(2 * distance), apart)
    curve = np.where(near, -1 / 3 + eta / 12 - 2 * eta * eta / 135, 1 / apart - 1 / eta)
    more = np.exp(-a * distance) / np.sqrt(2 * math.pi * a) * curve
    tails = [0.5 * erfc_values(np, sign * eta * np.sqrt(0.5 * a)) for sign in (-1, 1)]
    return tails[0] - more, tails[1] + more


def _both(a: Any, x: Any) -> tuple[Any, Any]:
    """The lower and the upper function."""
    shape = np.broadcast_shapes(a.shape, x.shape)
    a, x = (np.broadcast_to(v, shape).astype(np.float64).reshape(-1) for v in (a, x))
    lower = np.full(a.shape, np.nan)
    upper = lower.copy()
    usual = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    huge = usual & (a > _HUGE)
    below = usual & ~huge & (x <= np.maximum(a, 1.0) + 1)
    above = usual & ~huge & ~below
    lower[huge], upper[huge] = _almost_normal(a[huge], x[huge])
    lower[below] = _front(a[below], x[below]) * _series(a[below], x[below])
    upper[below] = 1 - lower[below]
    upper[above] = _front(a[above], x[above]) * a[above] * _continued(a[above], x[above])
    lower[above] = 1 - upper[above]
    defined = (a >= 0) & (x >= 0) & ~((a == 0) & (x == 0)) & ~(np.isinf(a) & np.isinf(x))
    zero = defined & ~usual & ((x == 0) | np.isinf(a))
    one = defined & ~usual & ~zero
    lower[zero], upper[zero], lower[one], upper[one] = 0, 1, 1, 0
    return lower.reshape(shape), upper.reshape(shape)


def _values(which: int) -> Any:
    def evaluate(_xp: Any, a: Any, x: Any) -> Any:
        return np.asarray(_both(np.asarray(a), np.asarray(x))[which]).astype(a.dtype)

    return evaluate


def _density(xp: Any, a: Any, x: Any) -> Any:
    return xp.exp((a - 1) * xp.log(x) - x - call("lgamma", a))


def _slope(xp: Any, a: Any, x: Any) -> Any:
    """d P / d a, from how a gamma number with this P changes with a."""
    return -call("log_gamma_slope", a, xp.log(x)) * x * _density(xp, a, x)


gammainc = binary(
    "gammainc",
    """The regularized lower incomplete gamma function P(x1, x2): the gamma distribution of x1.

    >>> weft.special.gammainc(1.0, weft.asarray([0.0, 1.0]))
    tensor([0.        , 0.63212055])
    """,
    kinds="real floating",
    evaluate=_values(0),
    vjp=(
        lambda xp, g, _out, x1, x2: g * _slope(xp, x1, x2),
        lambda xp, g, _out, x1, x2: g * _density(xp, x1, x2),
    ),
    namespace="special",
    cycles=3000.0,
)
gammaincc = binary(
    "gammaincc",
    """The regularized upper incomplete gamma function, 1 - gammainc(x1, x2), with all digits.

    >>> weft.special.gammaincc(1.0, weft.asarray([0.0, 100.0]))
    tensor([1.0e+00, 3.8e-44])
    """,
    kinds="real floating",
    evaluate=_values(1),
    vjp=(
        lambda xp, g, _out, x1, x2: -g * _slope(xp, x1, x2),
        lambda xp, g, _out, x1, x2: -g * _density(xp, x1, x2),
    ),
    namespace="special",
    cycles=3000.0,
)
