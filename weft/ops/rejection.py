"""Draws by rejection: gamma, Poisson and binomial numbers, as functions of the state alone.

Element i of a draw owns one block of the generator, as `weft.ops.philox` counts them: counter
(lo, hi, 0, 0). Its proposal number r takes the blocks (lo, hi, r, 0) and (lo, hi, r, 1), so an
element may be rejected as often as it likes without using up numbers of others. All elements are
tried at once, and those that were rejected again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.dtypes import DType
from weft.base.errors import RangeError
from weft.base.shapes import Shape, size_of
from weft.ops import philox
from weft.ops.special_gamma import lgamma_values

__all__ = ["binomial", "log_gamma", "poisson"]

Array = Any
#: (indices, number of the round) -> which of them are accepted, and their values.
Propose = Callable[[Array, int], tuple[Array, Array]]
#: Up to this mean, counts are found by going up from 0.
_SMALL_MEAN = 10.0


def _words(state: Array, index: Array, turn: int, part: int) -> tuple[Array, Array]:
    """Two 64-bit words for each element."""
    key, first = int(state[0]), np.uint64(state[1])
    low, high = key & philox.LOW_32, key >> 32
    keys = [
        (np.uint64((low + a) & philox.LOW_32), np.uint64((high + b) & philox.LOW_32))
        for a, b in zip(*philox.KEY_STEPS, strict=True)
    ]
    block = index.astype(np.uint64) + first
    fixed = [np.full(block.shape, value, np.uint64) for value in (turn, part)]
    counter = (block & np.uint64(philox.LOW_32), block >> np.uint64(32), fixed[0], fixed[1])
    constants = [np.uint64(c) for c in philox.CONSTANTS]
    w0, w1, w2, w3 = philox.philox_4x32(counter, keys, constants)
    return w0 | (w1 << np.uint64(32)), w2 | (w3 << np.uint64(32))


def _open(word: Array) -> Array:
    """A float64 in (0, 1) from each word."""
    return ((word >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def _uniforms(state: Array, index: Array, turn: int, part: int = 0) -> tuple[Array, Array]:
    first, second = _words(state, index, turn, part)
    return _open(first), _open(second)


def _until_accepted(count: int, propose: Propose) -> Array:
    out = np.empty(count)
    left, turn = np.arange(count), 0
    while left.size:
        accepted, found = propose(left, turn)
        out[left[accepted]] = found[accepted]
        left, turn = left[~accepted], turn + 1
    return out


def _flat(parameter: Array, shape: Shape) -> Array:
    return np.broadcast_to(parameter, shape).astype(np.float64).reshape(-1)


def _check(good: Array, what: str, name: str) -> None:
    if not np.all(good):
        raise RangeError(f"{what}", op=name)


# --- gamma -------------------------------------------------------------------------------------


def log_gamma(_xp: Any, state: Array, alpha: Array, *, shape: Shape, dtype: DType) -> Array:
    """Logarithms of gamma numbers of scale 1, after Marsaglia and Tsang.

    Below 1, a number for alpha + 1 is multiplied by a uniform number to the power 1 / alpha.
    """
    _check(alpha > 0, "alpha must be positive", "gamma")
    each = _flat(alpha, shape)
    d = np.where(each < 1, each + 1, each) - 1 / 3
    c = 1 / np.sqrt(9 * d)

    def propose(left: Array, turn: int) -> tuple[Array, Array]:
        x, _ = philox.normal_pairs_64(np, *_words(state, left, turn, 0), -2.0)
        u, _ = _uniforms(state, left, turn, 1)
        root = 1 + c[left] * x
        v = root * root * root
        positive = v > 0
        logarithm = np.log(np.where(positive, v, 1.0))
        scale = d[left]
        accepted = positive & (np.log(u) < 0.5 * x * x + scale * (1 - v + logarithm))
        return accepted, np.log(scale) + logarithm

    out = _until_accepted(size_of(shape), propose)
    low = each < 1
    if low.any():
        (index,) = np.nonzero(low)
        # Blocks that no proposal takes: their third word is beyond any number of rounds.
        u, _ = _uniforms(state, index, philox.LOW_32)
        out[index] += np.log(u) / each[index]
    return out.astype(dtype.numpy).reshape(shape)


# --- counts ------------------------------------------------------------------------------------


def _counted(u: Array, p: Array, ratio: Callable[[Array, int], Array]) -> Array:
    """The first k up to which probabilities sum to u; p is that of 0, ratio(i, k) = p_k+1 / p_k."""
    out = np.zeros(u.shape)
    left, total, chance, k = np.arange(u.size), p.copy(), p.copy(), 0
    while True:
        more = (u[left] > total) & (chance > 0)
        left, total, chance = left[more], total[more], chance[more]
        if not left.size:
            return out
        chance = chance * ratio(left, k)
        total = total + chance
        k += 1
        out[left] = k


def poisson(_xp: Any, state: Array, rate: Array, *, shape: Shape, dtype: DType) -> Array:
    """Small means by summing probabilities, others by Hörmann's transformed rejection (PTRS)."""
    _check((rate >= 0) & np.isfinite(rate), "rates must be finite, from 0 up", "poisson")
    mean = _flat(rate, shape)
    large = np.maximum(mean, _SMALL_MEAN)
    b = 0.931 + 2.53 * np.sqrt(large)
    a = -0.059 + 0.02483 * b
    most = 0.9277 - 3.6224 / (b - 2)
    scale, logarithm = np.log(1.1239 + 1.1328 / (b - 3.4)), np.log(large)
    few = mean < _SMALL_MEAN

    def propose(left: Array, turn: int) -> tuple[Array, Array]:
        u, v = _uniforms(state, left, turn)
        u = u - 0.5
        room = 0.5 - np.abs(u)
        k = np.floor((2 * a[left] / room + b[left]) * u + large[left] + 0.43)
        bound = k * logarithm[left] - large[left] - lgamma_values(np, np.maximum(k, 0) + 1)
        below = np.log(v) + scale[left] - np.log(a[left] / (room * room) + b[left]) <= bound
        sure = (room >= 0.07) & (v <= most[left])
        never = (k < 0) | ((room < 0.013) & (v > room))
        return few[left] | sure | (~never & below), k

    out = _until_accepted(size_of(shape), propose)
    (index,) = np.nonzero(few)
    u, _ = _uniforms(state, index, 0)
    small = mean[index]
    out[index] = _counted(u, np.exp(-small), lambda i, k: small[i] / (k + 1))
    return out.astype(dtype.numpy).reshape(shape)


def binomial(
    _xp: Any, state: Array, count: Array, p: Array, *, shape: Shape, dtype: DType
) -> Array:
    """Small means by summing probabilities, others by Hörmann's transformed rejection (BTRS)."""
    whole = (count >= 0) & (count == np.floor(count)) & np.isfinite(count)
    _check(whole, "counts must be whole numbers from 0 up", "binomial")
    _check((p >= 0) & (p <= 1), "probabilities are numbers from 0 to 1", "binomial")
    n, chance = _flat(count, shape), _flat(p, shape)
    q = np.minimum(chance, 1 - chance)
    few = n * q < _SMALL_MEAN
    trials, rare = np.where(few, 1000.0, n), np.where(few, 0.5, q)
    spread = np.sqrt(trials * rare * (1 - rare))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * rare
    most, scale = 0.92 - 4.2 / b, (2.83 + 5.1 / b) * spread
    middle, odds = np.floor((trials + 1) * rare), np.log(rare / (1 - rare))
    top = lgamma_values(np, middle + 1) + lgamma_values(np, trials - middle + 1)

    def propose(left: Array, turn: int) -> tuple[Array, Array]:
        u, v = _uniforms(state, left, turn)
        u = u - 0.5
        room = 0.5 - np.abs(u)
        of = trials[left]
        k = np.floor((2 * a[left] / room + b[left]) * u + of * rare[left] + 0.5)
        inside = (k >= 0) & (k <= of)
        at = np.clip(k, 0, of)
        bound = top[left] - lgamma_values(np, at + 1) - lgamma_values(np, of - at + 1)
        bound = bound + (at - middle[left]) * odds[left]
        below = np.log(v * scale[left] / (a[left] / (room * room) + b[left])) <= bound
        return few[left] | (inside & (((room >= 0.07) & (v <= most[left])) | below)), k

    out = _until_accepted(size_of(shape), propose)
    (index,) = np.nonzero(few)
    u, _ = _uniforms(state, index, 0)
    some, low = n[index], q[index]
    none = np.exp(some * np.log1p(-low))
    ratios = low / (1 - low)
    out[index] = _counted(u, none, lambda i, k: np.maximum(some[i] - k, 0) / (k + 1) * ratios[i])
    out = np.where(chance > 0.5, n - out, out)
    return out.astype(dtype.numpy).reshape(shape)


# --- how a gamma number changes with alpha -----------------------------------------------------

_FEW_TERMS = 20.0


@functools.cache
def _quadrature() -> Any:
    """Nodes and weights of Gauss and Legendre, made when they are first needed."""
    return np.polynomial.legendre.leggauss(96)


def log_gamma_slope(_xp: Any, alpha: Array, log_x: Array, digamma: Any) -> Array:
    """d log(x) / d alpha of a gamma number x: -(dP / d alpha) / (x dP / dx), P its distribution.

    By a series for small alpha and x; elsewhere by an integral over the side of x that is shorter.
    """
    a, logarithm = np.broadcast_arrays(alpha.astype(np.float64), log_x.astype(np.float64))
    shape = a.shape
    a, logarithm = a.reshape(-1), logarithm.reshape(-1)
    out = np.empty(a.shape)
    x = np.exp(logarithm)
    series = (a < _FEW_TERMS) & (x <= np.maximum(a, 1.0))
    out[series] = _slope_series(a[series], x[series], logarithm[series], digamma)
    rest = ~series
    out[rest] = _slope_integral(a[rest], x[rest], digamma)
    return out.astype(alpha.dtype).reshape(shape)


def _slope_series(a: Array, x: Array, logarithm: Array, digamma: Any) -> Array:
    """The sum of x ** n / ((a + 1) … (a + n)) (digamma(a + n + 1) - log(x)) over n, by a."""
    slope, term = digamma(np, a + 1) - logarithm, np.ones(a.shape)
    total = slope.copy()
    for n in range(1, 100):
        slope = slope + 1 / (a + n)
        term = term * x / (a + n)
        total = total + term * slope
    return total / a


def _slope_integral(a: Array, x: Array, digamma: Any) -> Array:
    above = x > a
    rate = np.maximum(np.abs(1 - (a - 1) / x), 1e-300)
    wide = 18 * x / np.sqrt(np.maximum(a, 1.0))
    reach = np.minimum(40 / rate, wide)
    reach = np.where(above, reach, np.minimum(reach, x))
    middle = digamma(np, a)
    total = np.zeros(a.shape)
    for node, weight in zip(*_quadrature(), strict=True):
        s = 0.5 * (node + 1) * reach * np.where(above, 1.0, -1.0)
        height = np.exp((a - 1) * np.log1p(s / x) - s)
        total = total + weight * height * (np.log(x + s) - middle)
    return np.where(above, 1.0, -1.0) * total * 0.5 * reach / x
