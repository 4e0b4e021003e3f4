"""`max`, `min` and poolings never give -0, whichever zeros they meet in which order."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.nn.functional as F

DTYPES = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float32": np.float32,
    "float64": np.float64,
}
MODES = ("eager", "interpret", "native")


def _run(function: Any, mode: str, x: Any) -> Any:
    if mode != "eager":
        function = weft.compile(function, backend=mode)
    return np.asarray(function(weft.asarray(x)).numpy())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions(dtype: str, mode: str) -> None:
    """Along rows, along columns and over all, of lengths below, at and above those of vectors."""
    zeros = [*itertools.product([0.0, -0.0], repeat=3), (-1.0, -0.0, 0.0), (1.0, 0.0, -0.0)]
    for length in (1, 3, 17, 70):
        x = np.stack([np.resize(np.array(z, DTYPES[dtype]), length) for z in zeros])
        x[:, 1:-1] = np.where(x[:, 1:-1] == 0, -0.0, x[:, 1:-1])
        for name in ("max", "min"):
            wanted = getattr(x.astype(np.float64), name)(axis=1) + 0.0
            for axis, part in ((1, x), (0, x.T)):
                found = _run(lambda t, n=name, a=axis: getattr(weft, n)(t, axis=a), mode, part)
                assert (found == wanted).all(), (name, length)
                assert (np.signbit(found) == np.signbit(wanted)).all(), (name, length)
            for row, one in zip(x[:3], wanted, strict=False):
                whole = _run(lambda t, n=name: getattr(weft, n)(t), mode, row)
                assert np.signbit(whole) == np.signbit(one), (name, length)


SUMS = {
    "sum": lambda t, a: weft.sum(t, axis=a),
    "mean": lambda t, a: weft.mean(t, axis=a),
    "sum of products": lambda t, a: weft.sum(t * abs(t - 1), axis=a),
    "nansum": lambda t, a: weft.nansum(t, axis=a),
    "keepdims": lambda t, a: weft.sum(t, axis=a, keepdims=True),
    "twice": lambda t, a: weft.sum(weft.sum(t, axis=a)),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SUMS)
def test_sums(name: str, dtype: str, mode: str) -> None:
    """A sum is never -0, as in NumPy: also of one element, and of elements that are all -0."""
    for shape in ((1, 1), (3, 1), (1, 3), (3, 17), (40, 3), (5, 70), (2, 40000)):
        x = np.full(shape, -0.0, DTYPES[dtype])
        for part in (x, x.T):
            for axis in (0, 1, None) if name != "twice" else (0, 1):
                found = _run(lambda t, a=axis: SUMS[name](t, a), mode, part)
                assert not np.signbit(found).any(), (shape, axis)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_pooling(dtype: str, mode: str) -> None:
    rng = np.random.default_rng(0)
    for size, stride in ((2, 2), (3, 1)):
        x = rng.choice(np.array([0.0, -0.0], DTYPES[dtype]), (2, 3, 7, 9), p=[0.2, 0.8])
        found = _run(lambda t, k=size, s=stride: F.max_pool2d(t, k, stride=s), mode, x)
        assert not np.signbit(found).any()


def test_nan_stays_nan() -> None:
    x = np.array([[0.0, np.nan, -0.0], [-0.0, 0.0, np.nan]], np.float32)
    for mode in MODES:
        for name in ("max", "min"):
            assert np.isnan(
                _run(lambda t, name=name: getattr(weft, name)(t, axis=1), mode, x)
            ).all()


def test_sigmoid_of_all_bfloat16_numbers() -> None:
    """Near -89, where exp(-x) is as large as a float can be, and everywhere else."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    x = bits[(bits & 0x7FFF) <= 0x7F80].view(ml_dtypes.bfloat16)  # all but NaN
    eager = _run(weft.sigmoid, "eager", x)
    with np.errstate(over="ignore"):
        wide = 1 / (1 + np.exp(-x.astype(np.float32)))
    assert (eager == wide.astype(ml_dtypes.bfloat16)).all()
    for mode in ("interpret", "native"):
        assert (_run(weft.sigmoid, mode, x) == eager).all()
        near = x[(x > -95) & (x < -80)]
        for one in near[::4]:  # alone, too: without vectors
            assert _run(weft.sigmoid, mode, one) == _run(weft.sigmoid, "eager", one)
