"""Rows of elements by rank, medians, quantiles, and running extremes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from samples.index import argsort
from samples.table import Row, Sample, call, specials, values
from weft.base.dtypes import DType

SHAPES: list[tuple[int, ...]] = [(1,), (5,), (3, 4), (2, 3, 4)]


def ranks(*more: Any) -> Callable[[DType], Iterable[Sample]]:
    """Calls with k = 1 and k = the size of the axis, and others."""

    def make(dtype: DType) -> Iterable[Sample]:
        for shape in SHAPES:
            x = values(shape, dtype, -2, 2)
            for axis in (-1, 0):
                for k in sorted({1, shape[axis] // 2 + 1, shape[axis]}):
                    yield call(x, k, axis, *more)
        yield call(specials(dtype), 2, 0, *more)
        # long rows are not sorted: eagerly from 128 elements on, natively for 64 ranks at most
        long = values((2, 140), dtype, -2, 2)
        yield call(long, 5, -1, *more)
        yield call(long, 30, -1, *more)
        yield call(long, 70, 1, *more)

    return make


def order(x: Any, axis: int, largest: bool) -> Any:
    """NaN is larger than all numbers, and equal elements keep their order."""
    if not largest:
        return argsort(x, axis)
    n = x.shape[axis]
    return n - 1 - np.flip(argsort(np.flip(x, axis), axis), axis)


def topk(x: Any, k: int, axis: int = -1, largest: bool = True) -> Any:
    at = np.take(order(x, axis, largest), range(k), axis)
    return np.take_along_axis(x, at, axis), at


def kthvalue(x: Any, k: int, axis: int = -1, keepdims: bool = False) -> Any:
    at = np.take(order(x, axis, False), [k - 1], axis)
    found = np.take_along_axis(x, at, axis), at
    return found if keepdims else tuple(part.squeeze(axis) for part in found)


def mode_calls(dtype: DType) -> Iterable[Sample]:
    for shape in SHAPES:
        x = np.round(values(shape, dtype, 0, 3)).astype(dtype.numpy)
        if dtype.kind == "float":  # no ties of different elements
            x = values(shape, dtype)
        yield call(x, -1)
        yield call(x, 0, True)


def mode(x: Any, axis: int = -1, keepdims: bool = False) -> Any:
    def one(row: Any) -> Any:
        found, counts = np.unique(row, return_counts=True)
        return np.flatnonzero(row == found[np.argmax(counts)])[-1]

    at = np.expand_dims(np.apply_along_axis(one, axis, x), axis)
    found = np.take_along_axis(x, at, axis), at
    return found if keepdims else tuple(part.squeeze(axis) for part in found)


# --- medians and quantiles ---------------------------------------------------------------------


def medians(dtype: DType) -> Iterable[Sample]:
    for shape in [(), (1,), (5,), (3, 4), (2, 3, 4), (0,), (2, 0)]:
        x = values(shape, dtype, -3, 3)
        yield call(x)
        yield call(x, keepdims=True)
        for axis in range(-len(shape), len(shape)):
            yield call(x, axis=axis)
            yield call(x, axis=axis, keepdims=True)
    yield call(values((2, 3, 4), dtype, -3, 3), axis=(0, 2))
    yield call(values((3, 150), dtype, -3, 3), axis=1)
    if dtype.kind == "float":
        x = values((3, 4), dtype)
        x[0, 1] = x[2] = np.nan
        yield call(x, axis=1)


def quantiles(dtype: DType) -> Iterable[Sample]:
    x = values((3, 4), dtype, -3, 3)
    for q in (0, 0.3, 1.0, [0.1, 0.5], np.array([[0.2], [0.9]])):
        yield call(x, q)
        yield call(x, q, axis=0)
        yield call(x, q, axis=1, keepdims=True)
    for method in ("lower", "higher", "midpoint", "nearest"):
        yield call(x, 0.4, axis=1, method=method)
        yield call(x, [0.4, 0.7], method=method)
    yield call(x[:0], 0.5)
    if dtype.kind == "float":
        y = x.copy()
        y[0, 1] = y[2] = np.nan
        yield call(y, 0.3, axis=1)
        yield call(y, [0.3, 0.9], axis=0)


def in_float64(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(x: Any, *args: Any, **kwargs: Any) -> Any:
        wide = x.astype(np.float64)
        if x.size == 0:
            return function(wide, *args, **kwargs) if not args else np.float64(np.nan)
        return function(wide, *args, **kwargs)

    return wrapped


# --- running -----------------------------------------------------------------------------------


def running(dtype: DType) -> Iterable[Sample]:
    for shape in [(), (1,), (5,), (0,), (3, 4), (2, 3, 4), (2, 0)]:
        x = values(shape, dtype, -2, 2)
        for axis in range(-len(shape), max(len(shape), 1)):
            yield call(x, axis)
    yield call(specials(dtype), 0)


def running_extreme(better: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def one(row: Any) -> Any:
        at, best = [], 0
        for i in range(len(row)):
            best = i if row[i] != row[i] or better(row[i], row[best]) else best
            at.append(best)
        return np.array(at, dtype=np.int64)

    def reference(x: Any, axis: int) -> Any:
        row = x.reshape(1) if not x.ndim else x
        at = np.apply_along_axis(one, axis, row) if x.size else np.zeros(row.shape, dtype=np.int64)
        return np.take_along_axis(row, at, axis).reshape(x.shape), at.reshape(x.shape)

    return reference


def log_sums(dtype: DType) -> Iterable[Sample]:
    for shape in [(), (1,), (5,), (0,), (3, 4), (2, 3, 4)]:
        x = values(shape, dtype, -30, 30)
        for axis in range(-len(shape), max(len(shape), 1)):
            yield call(x, axis)
    yield call(np.array([-np.inf, 1, -np.inf, 2, np.inf, 1], dtype=dtype.numpy), 0)


def log_sum(x: Any, axis: int) -> Any:
    row = x.reshape(1) if not x.ndim else x
    return np.logaddexp.accumulate(row, axis=axis).reshape(x.shape)


ROWS = [
    Row("topk", topk, ranks(), "real"),
    Row("topk", topk, ranks(False), "real"),
    Row("kthvalue", kthvalue, ranks(True), "real"),
    Row("kthvalue", kthvalue, ranks(), "real"),
    Row("mode", mode, mode_calls, "real"),
    Row("msort", lambda x: np.sort(x, axis=0), lambda d: [call(values((3, 4), d))], "real"),
    Row("median", in_float64(np.median), medians, "real numeric"),
    Row("nanmedian", in_float64(np.nanmedian), medians, "real numeric"),
    Row("quantile", in_float64(np.quantile), quantiles, "real numeric", rtol=32),
    Row("nanquantile", in_float64(np.nanquantile), quantiles, "real numeric", rtol=32),
    Row("cummax", running_extreme(lambda a, b: a >= b), running, "real"),
    Row("cummin", running_extreme(lambda a, b: a <= b), running, "real"),
    Row("logcumsumexp", log_sum, log_sums, "real floating", rtol=16),
]
