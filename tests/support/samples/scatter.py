"""Rows of reading and writing along an axis by tensors of indices, and of segments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from samples.table import Row, Sample, call, values
from weft.base.dtypes import DType

#: Repeated positions, negative ones, and fewer than x has along other axes.
AT = np.array([[2, 0, -1], [2, 0, 1]])

COMBINE: dict[str, Any] = {
    "sum": np.add,
    "add": np.add,
    "prod": np.multiply,
    "multiply": np.multiply,
    "amax": np.maximum,
    "amin": np.minimum,
    "mean": np.add,
}


def distinct(shape: tuple[int, ...], dtype: DType, seed: int = 0) -> Any:
    """Numbers without ties where the dtype has so many; none is zero."""
    if dtype.kind in ("float", "complex"):
        size = int(np.prod(shape))
        order = np.random.default_rng(seed).permutation(size)
        return ((order + 1 + 0.3 * seed) / 4 * (-1.0) ** order).reshape(shape).astype(dtype.numpy)
    return values(shape, dtype, 0, 3, seed=seed)


def gather_calls(dtype: DType) -> Iterable[Sample]:
    x = values((3, 4), dtype)
    yield call(x, 0, AT)
    yield call(x, -1, AT.astype(np.int32))
    yield call(x, 1, np.zeros((3, 0), dtype=np.int64))
    yield call(values((2, 3, 4), dtype), 1, np.array([[[0, -3, 1, 1]], [[2, 2, 2, 0]]]))
    yield call(values((), dtype), 0, np.array(0))


def gather(x: Any, axis: int, index: Any) -> Any:
    out = np.empty(index.shape, x.dtype)
    for place in np.ndindex(*index.shape):
        at = list(place)
        if x.ndim:
            at[axis] = index[place]
        out[place] = x[tuple(at)]
    return out


def scatter_calls(*more: Any, **named: Any) -> Callable[[DType], Iterable[Sample]]:
    def make(dtype: DType) -> Iterable[Sample]:
        x, src = distinct((3, 4), dtype), distinct((2, 3), dtype, seed=1)
        yield call(x, 0, AT, src, *more, **named)
        yield call(x, -1, AT.astype(np.int8), src, *more, **named)
        yield call(x, 0, AT, distinct((4, 5), dtype, seed=2), *more, **named)
        yield call(x, 0, np.zeros((0, 4), dtype=np.int64), x[:0], *more, **named)
        last = np.array([4, 0, -1, 0])
        yield call(distinct((5,), dtype), 0, last, distinct((4,), dtype, seed=3), *more, **named)
        yield call(distinct((), dtype), 0, np.array(0), distinct((), dtype, seed=4), *more, **named)

    return make


def combined(x: Any, places: Any, source: Any, reduce: str, include_self: bool = True) -> Any:
    """Element by element: `places` are pairs of a position in x and one in source."""
    out, count = x.astype(x.dtype), np.full(x.shape, int(include_self))
    seen = np.full(x.shape, include_self)
    for to, position in places:
        given = source[position]
        out[to] = COMBINE[reduce](out[to], given) if seen[to] else given
        seen[to] = True
        count[to] += 1
    if reduce == "mean":
        over = np.maximum(count, 1)
        return (out // over if x.dtype.kind in "iu" else out / over).astype(x.dtype)
    return out


def along(x: Any, axis: int, index: Any) -> Any:
    for place in np.ndindex(*index.shape):
        at = list(place)
        if x.ndim:
            at[axis] = index[place] % x.shape[axis]
        yield tuple(at), place


def scatter(x: Any, axis: int, index: Any, src: Any, reduce: str | None = None) -> Any:
    if reduce is not None:
        return combined(x, along(x, axis, index), src, reduce)
    out = x.copy()
    for to, position in along(x, axis, index):
        out[to] = src[position]
    return out


def scatter_reduce(
    x: Any, axis: int, index: Any, src: Any, reduce: str, include_self: bool = True
) -> Any:
    return combined(x, along(x, axis, index), src, reduce, include_self)


# --- parts along an axis -----------------------------------------------------------------------


def part_calls(dtype: DType) -> Iterable[Sample]:
    x = distinct((3, 4), dtype)
    yield call(x, 0, np.array([2, 0, -1]), distinct((3, 4), dtype, seed=1))
    yield call(x, 1, np.array([1, 1], dtype=np.uint8), distinct((3, 2), dtype, seed=1))
    yield call(distinct((5,), dtype), -1, np.array([4]), distinct((1,), dtype, seed=1))
    yield call(x, 0, np.zeros(0, dtype=np.int64), x[:0])


def select_calls(dtype: DType) -> Iterable[Sample]:
    for sample in part_calls(dtype):
        yield call(*sample.args[:3])


def fill_calls(dtype: DType) -> Iterable[Sample]:
    for sample in part_calls(dtype):
        yield call(*sample.args[:3], 1)


def part_index(x: Any, axis: int, index: Any) -> Any:
    return (*(slice(None),) * (axis % x.ndim), index)


def index_add(x: Any, axis: int, index: Any, source: Any) -> Any:
    out = x.copy()
    np.add.at(out, part_index(x, axis, index), source)
    return out


def index_copy(x: Any, axis: int, index: Any, source: Any) -> Any:
    out = x.copy()
    out[part_index(x, axis, index)] = source
    return out


def put_calls(dtype: DType) -> Iterable[Sample]:
    x = distinct((3, 4), dtype)
    at = np.array([[3, 0], [-1, 0]])
    yield call(x, at, distinct((4,), dtype, seed=1))
    yield call(x, at, distinct((2, 2), dtype, seed=1), **accumulating(dtype))
    yield call(distinct((), dtype), np.array([0]), distinct((1,), dtype, seed=1))


def accumulating(dtype: DType) -> dict[str, Any]:
    return {"accumulate": dtype.kind != "bool"}


def put(x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    out = x.reshape(-1).copy()
    if accumulate:
        np.add.at(out, index.reshape(-1), source.reshape(-1))
    else:
        out[index.reshape(-1)] = source.reshape(-1)
    return out.reshape(x.shape)


def index_put_calls(dtype: DType) -> Iterable[Sample]:
    x = distinct((3, 4), dtype)
    rows, columns = np.array([0, 2, 0]), np.array([1, -1, 1])
    yield call(x, [rows, columns], distinct((3,), dtype, seed=1))
    yield call(x, [rows, columns], distinct((3,), dtype, seed=1), **accumulating(dtype))
    yield call(x, [rows], distinct((4,), dtype, seed=1), **accumulating(dtype))
    yield call(x, [rows[:, None], columns], distinct((3, 3), dtype, seed=1), **accumulating(dtype))
    yield call(x, [values((3, 4), dtype) != 0], distinct((), dtype, seed=2))


def index_put(x: Any, indices: Any, value: Any, accumulate: bool = False) -> Any:
    out = x.copy()
    if accumulate:
        np.add.at(out, tuple(indices), value)
    else:
        out[tuple(indices)] = value
    return out


# --- replaced parts ----------------------------------------------------------------------------


def masked_calls(dtype: DType) -> Iterable[Sample]:
    x = distinct((3, 4), dtype)
    mask = np.random.default_rng(5).integers(0, 2, (3, 4)).astype(bool)
    yield call(x, mask, distinct((13,), dtype, seed=1))
    yield call(x, mask[0], distinct((3, 4), dtype, seed=1))
    yield call(x, np.zeros((3, 4), dtype=bool), x[:0])
    yield call(x[:0], mask[:0], x[:0])


def masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    out, mask = x.copy(), np.broadcast_to(mask, x.shape)
    out[mask] = source.reshape(-1)[: mask.sum()]
    return out


def select_scatter_calls(dtype: DType) -> Iterable[Sample]:
    x = distinct((3, 4), dtype)
    yield call(x, distinct((4,), dtype, seed=1), 0, -1)
    yield call(x, distinct((3,), dtype, seed=1), -1, 2)


def slice_scatter_calls(dtype: DType) -> Iterable[Sample]:
    x = distinct((3, 4), dtype)
    yield call(x, distinct((2, 4), dtype, seed=1), 0, 1)
    yield call(x, distinct((3, 2), dtype, seed=1), 1, None, -1, 2)
    yield call(x, x[:0], 0, 2, 2)


def diagonal_scatter_calls(dtype: DType) -> Iterable[Sample]:
    x = distinct((3, 4), dtype)
    yield call(x, distinct((3,), dtype, seed=1))
    yield call(x, distinct((2,), dtype, seed=1), -1)
    yield call(x, distinct((1,), dtype, seed=1), -3, 1, 0)
    yield call(distinct((2, 3, 2), dtype), distinct((3, 2), dtype, seed=1), 0, 0, 2)


def select_scatter(x: Any, src: Any, axis: int, index: int) -> Any:
    return index_copy(x, axis, index, src)


def slice_scatter(
    x: Any, src: Any, axis: int, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    return index_copy(x, axis, slice(start, end, step), src)


def diagonal_scatter(x: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    out = x.copy()
    view = np.moveaxis(out, (dim1, dim2), (0, 1))
    for k in range(src.shape[-1]):
        view[k + max(-offset, 0), k + max(offset, 0)] = src[..., k]
    return out


# --- segments ----------------------------------------------------------------------------------


def segment_calls(dtype: DType) -> Iterable[Sample]:
    ids = np.array([2, 0, 2, 2, 0])
    yield call(distinct((5,), dtype), ids, 4)
    yield call(distinct((5, 3), dtype, seed=1), np.array([2, 0, 1, 2, 0], dtype=np.uint8), 3)
    yield call(distinct((0, 2), dtype), ids[:0], 2)


def segments(reduce: Callable[..., Any], empty: Callable[[Any], Any]) -> Callable[..., Any]:
    def reference(data: Any, ids: Any, count: int) -> Any:
        rows = []
        for i in range(count):
            found = data[ids == i]
            none = np.full(data.shape[1:], empty(data.dtype))
            rows.append(reduce(found, axis=0) if len(found) else none)
        return np.stack(rows)

    return reference


def limit(name: str, infinity: float) -> Callable[[Any], Any]:
    return lambda dtype: infinity if dtype.kind == "f" else getattr(np.iinfo(dtype), name)


def segment_softmax(data: Any, ids: Any, count: int) -> Any:
    out = np.empty(data.shape, np.float64)
    for i in set(ids.tolist()):
        powers = np.exp(data[ids == i].astype(np.float64))
        out[ids == i] = powers / powers.sum(axis=0)
    return out


ROWS = [
    Row("gather", gather, gather_calls, "all"),
    Row("scatter", scatter, scatter_calls(), "all"),
    Row("scatter", scatter, scatter_calls(reduce="add"), "numeric"),
    Row("scatter", scatter, scatter_calls(reduce="multiply"), "numeric", rtol=32),
    Row("scatter_add", lambda *a: scatter(*a, reduce="add"), scatter_calls(), "numeric"),
    *(
        Row("scatter_reduce", scatter_reduce, scatter_calls(how, **self), kinds, rtol=32)
        for how, kinds in (
            ("sum", "numeric"),
            ("prod", "numeric"),
            ("mean", "numeric"),
            ("amax", "real numeric"),
            ("amin", "real numeric"),
        )
        for self in ({}, {"include_self": False})
    ),
    Row("index_select", lambda x, d, i: np.take(x, i, axis=d), select_calls, "all"),
    Row("index_add", index_add, part_calls, "numeric"),
    Row("index_copy", index_copy, part_calls, "all"),
    Row("index_fill", index_copy, fill_calls, "numeric"),
    Row("put", put, put_calls, "all"),
    Row("index_put", index_put, index_put_calls, "all"),
    Row("masked_scatter", masked_scatter, masked_calls, "all"),
    Row("select_scatter", select_scatter, select_scatter_calls, "all"),
    Row("slice_scatter", slice_scatter, slice_scatter_calls, "all"),
    Row("diagonal_scatter", diagonal_scatter, diagonal_scatter_calls, "all"),
    Row("segment_sum", segments(np.sum, lambda _: 0), segment_calls, "real floating"),
    Row("segment_prod", segments(np.prod, lambda _: 1), segment_calls, "real floating"),
    Row("segment_max", segments(np.max, limit("min", -np.inf)), segment_calls, "real numeric"),
    Row("segment_min", segments(np.min, limit("max", np.inf)), segment_calls, "real numeric"),
    Row("segment_mean", segments(np.mean, lambda _: 0), segment_calls, "real numeric"),
    Row("segment_softmax", segment_softmax, segment_calls, "real floating", rtol=32),
]
