"""Functions of floats against oracles with more digits: ≤ 2 ulp in float32, ≤ 4 in float64.

float32 is compared with NumPy in float64, at a million points; float64 with NumPy in long double
where that has more digits (and where not, with room for NumPy's own errors).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from registers import Array, Call, Loops

from weft.base import dtypes
from weft.base.dtypes import DType
from weft.codegen.machine import Machine, host
from weft.codegen.math import FUNCTIONS
from weft.codegen.text import Module

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of NaNs and overflow

LONG = np.finfo(np.longdouble).eps < np.finfo(np.float64).eps
WIDER = {dtypes.float32: np.float64, dtypes.float64: np.longdouble}
#: In units in the last place; libm's erf, which is no better than ours, takes a further one.
ROOM = {dtypes.float32: 2.0, dtypes.float64: 4.0 if LONG else 5.0}
POINTS = {dtypes.float32: 1_000_000, dtypes.float64: 60_000}


def _by_libm(function: Callable[[float], float]) -> Callable[[Array], Array]:
    return lambda x: np.array([function(v) for v in x.tolist()], x.dtype)


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


NAMES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2"}
NAMES |= {"asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "pow": "power"}
ORACLES: dict[str, Callable[..., Array]] = {
    "erf": _by_libm(math.erf),
    "erfc": _by_libm(math.erfc),
    "sigmoid": _sigmoid,
    "softplus": _softplus,
} | {
    name: getattr(np, NAMES.get(name, name))
    for name in FUNCTIONS
    if hasattr(np, NAMES.get(name, name))
}
SLOW = {"erf", "erfc"}  # to be had from libm only, one number at a time

# --- points ---------------------------------------------------------------------------------------


def specials(dtype: DType) -> Array:
    info = np.finfo(dtype.numpy)
    numbers = [0, 0.5, 1, 1.5, 2, 3, 4, 28, 100, 1e5, 1e30, math.pi, math.pi / 2, 0.25, math.inf]
    numbers += [info.tiny, info.smallest_subnormal, info.max, info.eps, 1 + info.eps]
    numbers += [1 - info.epsneg, 88.7, 88.73, 103.9, 87.4, 709.7, 709.8, 745.1, 745.2, math.nan]
    numbers += [65536.0, 65537.0, 2.0**20, 2.0**20 + 1, 2.0**24, 2.0**53, 0.7071068, 1.4142136]
    found = np.array(numbers).astype(dtype.numpy)
    return np.concatenate([found, -found])


def points(dtype: DType, count: int, seed: int) -> Array:
    """Any bits; numbers of usual size; of any size between; near 1; near multiples of π/2."""
    rng = np.random.default_rng(seed)
    part = count // 5
    bits = rng.integers(0, 256, part * dtype.itemsize, np.uint8).view(dtype.numpy)
    usual = rng.standard_normal(part) * rng.choice([0.1, 1, 10, 100], part)
    sizes = np.exp(rng.uniform(-20, 8, part)) * rng.choice([-1, 1], part)
    ones = 1 + rng.standard_normal(part) * 10.0 ** rng.uniform(-8, 0, part)
    turns = rng.integers(-40_000, 40_000, part) * (math.pi / 2)
    rest = np.concatenate([usual, sizes, ones, turns]).astype(dtype.numpy)
    return np.concatenate([specials(dtype), bits, rest])


def operands(name: str, dtype: DType, count: int) -> list[Array]:
    if FUNCTIONS[name][0] == 1:
        return [points(dtype, count, 1)]
    pairs = np.meshgrid(specials(dtype), specials(dtype))
    x, y = (np.concatenate([p.ravel(), points(dtype, count, i)]) for i, p in enumerate(pairs))
    rng = np.random.default_rng(2)
    y = rng.permutation(y[pairs[0].size :])
    few = rng.choice([2, -1, 0.5, 3, -2, 7, -0.3, 1.7], y.size).astype(dtype.numpy)
    y = np.where(rng.random(y.size) < 0.4, few, y)
    return [x, np.concatenate([pairs[1].ravel(), y])]


# --- comparison -----------------------------------------------------------------------------------


def units_off(found: Array, wanted: Array) -> Array:
    """The distance from the true value in units of its last place; inf for the wrong special."""
    rounded = wanted.astype(found.dtype)
    unit = np.abs(np.spacing(rounded)).astype(wanted.dtype)
    off = np.abs(found.astype(wanted.dtype) - wanted) / unit
    special = ~np.isfinite(rounded)
    equal = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
    off = np.where(special, np.where(equal, 0, np.inf), off)
    off = np.where(~special & ~np.isfinite(found), np.inf, off)
    unsigned = (rounded == 0) & (found == 0) & (np.signbit(rounded) != np.signbit(found))
    return np.where(unsigned, np.inf, off).astype(np.float64)


def true_values(name: str, dtype: DType, arrays: list[Array]) -> Array:
    wide: Any = np.float64 if name in SLOW else WIDER[dtype]
    wanted = ORACLES[name](*[a.astype(wide) for a in arrays])
    if name == "sigmoid":  # its card computes exp(-x), which overflows before the result is 0
        wanted = np.where(np.isposinf(np.exp(-arrays[0])), 0, wanted)
    return np.asarray(wanted)


def check(name: str, dtype: DType, lanes: int, count: int, target: Machine | None = None) -> None:
    count = min(count, 30_000) if name in SLOW else count
    arrays = operands(name, dtype, count)
    found = Loops([Call(name, (dtype,) * len(arrays), dtype, lanes)], target).run(0, *arrays)
    wanted = true_values(name, dtype, arrays)
    off = units_off(found, wanted)
    if name == "logaddexp":  # where the sum cancels, what is left has the error of its terms
        terms = np.fmax(np.abs(arrays[0]), np.abs(arrays[1])).astype(np.float64)
        room = 4 * np.finfo(np.float64).eps * np.maximum(terms, 1)
        close = np.abs(found.astype(wanted.dtype) - wanted) <= room
        off = np.where(close & np.isfinite(wanted), 0, off)
    room = ROOM[dtype] + (name in SLOW and dtype is dtypes.float64)
    worst = np.argsort(-off)[:3]
    shown = [(*(a[i] for a in arrays), found[i], wanted[i], off[i]) for i in worst]
    assert off[worst[0]] <= room, f"{name} of {dtype.name}, {lanes} lanes: {shown}"


@pytest.mark.parametrize("dtype", WIDER, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name: str, dtype: DType) -> None:
    check(name, dtype, host().lanes(dtype.itemsize), POINTS[dtype])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_other_numbers_of_lanes(name: str) -> None:
    """Scalars, and vectors longer than the machine's."""
    for lanes in (1, 2 * host().lanes(8)):
        check(name, dtypes.float64, lanes, 2000)
    for lanes in (1, 4):
        check(name, dtypes.float32, lanes, 2000)


@pytest.mark.skipif(host().vector_bytes < 64, reason="this machine is the narrower one")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_without_wide_vectors(name: str) -> None:
    words = host().features.split(",")
    kept = ",".join(f"-{w[1:]}" if w[1:].startswith("avx512") else w for w in words)
    narrow = dataclasses.replace(host(), features=kept, vector_bytes=32)
    for dtype in WIDER:
        check(name, dtype, narrow.lanes(dtype.itemsize), 10_000, narrow)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_far_from_0_without_a_c_library(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on GPUs: any size of numbers."""
    monkeypatch.setattr(Module, "has_c_library", False)
    for dtype in WIDER:
        check(name, dtype, 1, 20_000)


def test_every_function_has_an_oracle() -> None:
    assert set(ORACLES) == set(FUNCTIONS)
