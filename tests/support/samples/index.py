"""Rows of indexing by function, sorting and sets. x[…] itself is in tests/ops/test_indexing.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from samples.table import Row, Sample, call, specials, values
from weft.base.dtypes import DType

SHAPES: list[tuple[int, ...]] = [(1,), (5,), (0,), (3, 4), (2, 0), (2, 3, 4)]


def take(dtype: DType) -> Iterable[Sample]:
    yield call(values((5,), dtype), np.array([4, 0, -1, 0]))
    yield call(values((3, 4), dtype), np.array([2, 0], dtype=np.int32), axis=0)
    yield call(values((3, 4), dtype), np.array([3, 0, 1], dtype=np.uint8), axis=-1)
    yield call(values((3, 4), dtype), np.zeros(0, dtype=np.int64), axis=1)
    yield call(values((3, 4), dtype), np.array([[0, 1], [2, 2]]), axis=0)


def along(dtype: DType) -> Iterable[Sample]:
    x = values((3, 4), dtype)
    order = np.array([[3, 0, 1, 2], [0, -1, 2, 3], [1, 1, 1, 1]])
    yield call(x, order)
    yield call(x, order[:, :2])
    yield call(x, np.array([[2, 1, 0, 0]]), axis=0)
    yield call(values((5,), dtype), np.array([1, 4]), axis=0)


def along_dims(dtype: DType) -> Iterable[Sample]:
    for sample in along(dtype):
        yield call(*sample.args, sample.kwargs.get("axis", -1))
    yield call(values((3, 4), dtype), np.array([[11, 0]]))


def along_dim(x: Any, indices: Any, axis: int | None = None) -> Any:
    if axis is None:
        return np.take_along_axis(x.reshape(-1), indices.reshape(-1), 0)
    return np.take_along_axis(x, indices, axis)


def nonzero(dtype: DType) -> Iterable[Sample]:
    for shape in SHAPES:
        yield call(values(shape, dtype, -1, 1))


def search(dtype: DType) -> Iterable[Sample]:
    x = np.sort(values((7,), dtype))
    yield call(x, values((4,), dtype, seed=2))
    yield call(x, values((2, 3), dtype, seed=2), side="right")
    yield call(x, values((), dtype, seed=2))
    shuffled = values((7,), dtype, seed=3)
    yield call(shuffled, x, sorter=np.argsort(shuffled, kind="stable"))


def sorting(dtype: DType) -> Iterable[Sample]:
    for shape in SHAPES:
        x = values(shape, dtype, -2, 2)
        for axis in range(-len(shape), len(shape)):
            yield call(x, axis=axis)
            yield call(x, axis=axis, descending=True)
    yield call(specials(dtype))
    yield call(specials(dtype), descending=True)


def sorted_keys(x: Any, descending: bool) -> Any:
    """Keys for a stable ascending sort by Python: NaN last, in both directions."""
    return lambda i: (x[i] != x[i], -x[i].item() if descending else x[i].item())


def argsort(x: Any, axis: int = -1, descending: bool = False) -> Any:
    def one(row: Any) -> Any:
        return np.array(sorted(range(len(row)), key=sorted_keys(row, descending)), dtype=np.int64)

    return np.apply_along_axis(one, axis, x) if x.size else np.zeros(x.shape, dtype=np.int64)


def sort(x: Any, axis: int = -1, descending: bool = False) -> Any:
    return np.take_along_axis(x, argsort(x, axis, descending), axis)


def sets(dtype: DType) -> Iterable[Sample]:
    for shape in [(), *SHAPES]:
        yield call(values(shape, dtype, -2, 2))
    yield call(specials(dtype))


def unique(*fields: str) -> Callable[..., Any]:
    def reference(x: Any) -> Any:
        found = np.unique_all(x)
        parts = tuple(getattr(found, field) for field in fields)
        return parts if len(parts) > 1 else parts[0]

    return reference


ROWS = [
    Row("take", np.take, take, "all"),
    Row("take_along_axis", lambda x, i, axis=-1: np.take_along_axis(x, i, axis), along, "all"),
    Row("take_along_dim", along_dim, along_dims, "all"),
    Row("nonzero", np.nonzero, nonzero, "all"),
    Row("searchsorted", np.searchsorted, search, "real"),
    Row("sort", sort, sorting, "real"),
    Row("argsort", argsort, sorting, "real"),
    Row("unique_all", unique("values", "indices", "inverse_indices", "counts"), sets, "all"),
    Row("unique_counts", unique("values", "counts"), sets, "all"),
    Row("unique_inverse", unique("values", "inverse_indices"), sets, "all"),
    Row("unique_values", unique("values"), sets, "all"),
]
