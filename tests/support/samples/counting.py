"""Rows of counts, histograms, distinct elements and membership."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from samples.table import Row, Sample, call, specials, values
from weft.base.dtypes import DType

NUMBERS = np.array([3, 0, 3, 1, 3])


def bincounts(dtype: DType) -> Iterable[Sample]:
    yield call(NUMBERS, values((5,), dtype))
    yield call(NUMBERS.astype(np.uint8), values((5,), dtype), 6)
    yield call(NUMBERS[:0], values((0,), dtype))
    yield call(NUMBERS, minlength=2)


def bincount(x: Any, weights: Any = None, minlength: int = 0, length: int = 0) -> Any:
    size = max([minlength, length, *(x + 1)])
    out = np.zeros(size, np.int64 if weights is None else weights.dtype)
    for i, number in enumerate(x):
        out[number] += 1 if weights is None else weights[i]
    return out


def histcs(dtype: DType) -> Iterable[Sample]:
    x = values((3, 7), dtype, -3, 3)
    yield call(x, 4)
    yield call(x, 5, -2, 3)
    yield call(x, bins=1, min=0, max=1)
    yield call(np.ones((3,), dtype=dtype.numpy), 4)
    yield call(x[:0], 3)
    if dtype.kind == "float":
        yield call(np.array([0, 0.5, 1, np.nan, 2, -1, np.inf], dtype=dtype.numpy), 2, 0, 1)


def histc(x: Any, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    wide = x.astype(np.float64)
    if min == max and x.size:
        min, max = wide.min(), wide.max()
        if min == max:
            min, max = min - 1, max + 1
    ends = (min, max) if min < max else (0, 1)
    counts = np.histogram(wide[~np.isnan(wide)], bins, ends)[0]
    return counts.astype(x.dtype if x.dtype.kind == "f" else np.int64)


def histograms(dtype: DType) -> Iterable[Sample]:
    x = values((3, 7), dtype, -3, 3)
    yield call(x)
    yield call(x, 4, range=(-1.5, 3))
    yield call(x, np.array([-2.0, 0.25, 0.5, 2.25]))
    yield call(x, 4, range=(-2.5, 3), weights=values((3, 7), dtype, 0, 2, seed=1))
    yield call(x, 3, weights=values((3, 7), dtype, 0, 2, seed=1))
    yield call(x, 5, range=(-3, 3), density=True)
    yield call(np.ones((3,), dtype=dtype.numpy), 4)


def sets(dtype: DType) -> Iterable[Sample]:
    for shape in [(), (0,), (5,), (3, 4)]:
        yield call(values(shape, dtype, -1, 1), return_inverse=True, return_counts=True)
    yield call(values((4, 3), dtype, 0, 1), return_counts=True, axis=0)
    yield call(values((2, 5), dtype, 0, 1), return_inverse=True, axis=-1)
    yield call(specials(dtype))


def unique(
    x: Any, return_inverse: bool = False, return_counts: bool = False, axis: Any = None
) -> Any:
    return np.unique(
        x,
        return_inverse=return_inverse,
        return_counts=return_counts,
        axis=axis,
        equal_nan=False,
    )


def consecutive(
    x: Any, return_inverse: bool = False, return_counts: bool = False, axis: Any = None
) -> Any:
    rows = x.reshape(-1) if axis is None else np.moveaxis(x, axis, 0)
    starts = [i for i in range(len(rows)) if i == 0 or (rows[i] != rows[i - 1]).any()]
    inverse = np.array([sum(s <= i for s in starts) - 1 for i in range(len(rows))], dtype=np.int64)
    counts = np.diff(np.array([*starts, len(rows)], dtype=np.int64))
    found = rows[starts] if starts else rows
    parts = [found if axis is None else np.moveaxis(found, 0, axis)]
    if return_inverse:
        parts.append(inverse.reshape(x.shape) if axis is None else inverse)
    if return_counts:
        parts.append(counts)
    return tuple(parts) if len(parts) > 1 else parts[0]


def members(dtype: DType) -> Iterable[Sample]:
    x = values((3, 4), dtype, -3, 3)
    yield call(x, x.reshape(-1)[:3])
    yield call(x, values((4, 5), dtype, -3, 3, seed=1), invert=True)
    yield call(specials(dtype), np.concatenate([specials(dtype)] * 2))
    yield call(x, x.reshape(-1)[:0])


def buckets(dtype: DType) -> Iterable[Sample]:
    edges = np.sort(values((5,), dtype, seed=2))
    yield call(values((2, 3), dtype), edges)
    yield call(edges, edges, right=True)


def bucketize(x: Any, edges: Any, right: bool = False) -> Any:
    return np.searchsorted(edges, x, side="right" if right else "left")


def rows_searched(dtype: DType) -> Iterable[Sample]:
    tables = np.sort(values((2, 3, 5), dtype), axis=-1)
    yield call(tables, values((2, 3, 4), dtype, seed=2))
    yield call(tables[0], values((3, 2), dtype, seed=2), right=True)
    yield call(tables[0], tables[0], side="right", sorter=np.argsort(tables[0], axis=-1))


def search_rows(
    x1: Any, x2: Any, side: str = "left", right: bool = False, sorter: Any = None
) -> Any:
    out = np.empty(x2.shape, np.int64)
    for place in np.ndindex(*x1.shape[:-1]):
        out[place] = np.searchsorted(x1[place], x2[place], side="right" if right else side)
    return out


def positions(dtype: DType) -> Iterable[Sample]:
    for shape in [(5,), (0,), (3, 4), (2, 0), (2, 3, 4)]:
        yield call(values(shape, dtype, -1, 1))


ROWS = [
    Row("bincount", bincount, bincounts, "real numeric"),
    Row("histc", histc, histcs, "real numeric"),
    Row("histogram", np.histogram, histograms, "real numeric", rtol=32),
    Row("unique", unique, sets, "real"),
    Row("unique_consecutive", consecutive, sets, "all"),
    Row("isin", np.isin, members, "all"),
    Row("bucketize", bucketize, buckets, "real"),
    Row("searchsorted", search_rows, rows_searched, "real"),
    Row("argwhere", np.argwhere, positions, "all"),
    Row("flatnonzero", np.flatnonzero, positions, "all"),
]
