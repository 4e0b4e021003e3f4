"""Rows of the ops that rearrange elements."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from samples.table import PAIRS, SHAPES, Row, Sample, call, values
from weft.base.dtypes import DType


def over_axes(extra: int = 0, **kwargs: Any) -> Any:
    def samples(dtype: DType) -> Iterable[Sample]:
        for shape in SHAPES:
            ndim = len(shape) + extra
            for axis in range(-ndim, ndim):
                yield call(values(shape, dtype), axis=axis, **kwargs)

    return samples


def reshape(dtype: DType) -> Iterable[Sample]:
    yield call(values((), dtype), (1, 1))
    yield call(values((6,), dtype), (2, 3))
    yield call(values((2, 3), dtype), (-1,))
    yield call(values((2, 3, 4), dtype), (4, -1, 2))
    yield call(values((2, 0), dtype), (0, 5))
    yield call(values((1, 1), dtype), ())


def permute(dtype: DType) -> Iterable[Sample]:
    yield call(values((), dtype), ())
    yield call(values((3, 4), dtype), (1, 0))
    yield call(values((2, 3, 4), dtype), (2, 0, 1))
    yield call(values((2, 3, 4), dtype), (-1, -3, -2))
    yield call(values((0, 3), dtype), (1, 0))


def broadcast(dtype: DType) -> Iterable[Sample]:
    for first, second in PAIRS:
        yield call(values(first, dtype), np.broadcast_shapes(first, second))


def expand(dtype: DType) -> Iterable[Sample]:
    yield call(values((3, 1), dtype), (-1, 4))
    yield call(values((3,), dtype), (2, -1))
    yield call(values((2, 1, 3), dtype), (5, -1, 4, -1))
    yield call(values((), dtype), (2,))
    yield call(values((0, 1), dtype), (0, 3))


def expanded(x: Any, shape: Any) -> Any:
    kept = (1,) * (len(shape) - x.ndim) + x.shape
    return np.broadcast_to(x, [k if w == -1 else w for w, k in zip(shape, kept, strict=True)])


def several(dtype: DType) -> Iterable[Sample]:
    for first, second in PAIRS:
        yield call(values(first, dtype), values(second, dtype))


def concat(dtype: DType) -> Iterable[Sample]:
    yield call([values((2, 3), dtype), values((2, 1), dtype), values((2, 0), dtype)], axis=1)
    yield call((values((2, 3), dtype), values((1, 3), dtype)), axis=-2)
    yield call([values((2, 3), dtype)])
    yield call([values((2, 3), dtype), values((), dtype)], axis=None)


def stack(dtype: DType) -> Iterable[Sample]:
    for shape in SHAPES:
        pair = [values(shape, dtype), values(shape, dtype, seed=1)]
        for axis in range(-len(shape) - 1, len(shape) + 1):
            yield call(pair, axis=axis)


def roll(dtype: DType) -> Iterable[Sample]:
    for shape in SHAPES:
        yield call(values(shape, dtype), 2)
        yield call(values(shape, dtype), -1)
    yield call(values((3, 4), dtype), 1, axis=0)
    yield call(values((3, 4), dtype), (1, -5), axis=(0, 1))
    yield call(values((3, 4), dtype), (1, 2), axis=(1, 1))


def tile(dtype: DType) -> Iterable[Sample]:
    yield call(values((), dtype), (2, 3))
    yield call(values((3,), dtype), (2,))
    yield call(values((3, 4), dtype), (2,))
    yield call(values((3,), dtype), (2, 1, 2))
    yield call(values((3, 4), dtype), (0, 2))
    yield call(values((3, 4), dtype), ())


def squeeze(dtype: DType) -> Iterable[Sample]:
    yield call(values((1,), dtype), 0)
    yield call(values((2, 1, 3), dtype), 1)
    yield call(values((1, 2, 1), dtype), (0, -1))


def flip(dtype: DType) -> Iterable[Sample]:
    for shape in SHAPES:
        yield call(values(shape, dtype))
    yield call(values((2, 3, 4), dtype), axis=1)
    yield call(values((2, 3, 4), dtype), axis=(0, -1))


def moves(dtype: DType) -> Iterable[Sample]:
    yield call(values((2, 3, 4), dtype), 0, -1)
    yield call(values((2, 3, 4), dtype), (0, 1), (1, 2))
    yield call(values((2, 3, 4), dtype), (2, 0), (0, 1))


def swaps(dtype: DType) -> Iterable[Sample]:
    yield call(values((2, 3, 4), dtype), 0, -1)
    yield call(values((2, 3), dtype), 1, 1)


def flatten(dtype: DType) -> Iterable[Sample]:
    for shape in SHAPES:
        yield call(values(shape, dtype))
    yield call(values((2, 3, 4), dtype), 1)
    yield call(values((2, 3, 4), dtype), 0, -2)


def flattened(x: Any, start: int = 0, end: int = -1) -> Any:
    if not x.ndim:
        return x.reshape(1)
    end %= x.ndim
    return x.reshape(
        (*x.shape[:start], int(np.prod(x.shape[start : end + 1])), *x.shape[end + 1 :])
    )


def matrices(dtype: DType) -> Iterable[Sample]:
    for shape in [(3, 4), (0, 2), (2, 3, 4), (1, 1)]:
        yield call(values(shape, dtype))


def triangles(dtype: DType) -> Iterable[Sample]:
    for shape in [(3, 4), (4, 3), (0, 2), (2, 3, 3), (1, 1)]:
        for k in (-5, -1, 0, 1, 5):
            yield call(values(shape, dtype), k=k)


def repeat(dtype: DType) -> Iterable[Sample]:
    for shape in SHAPES:
        yield call(values(shape, dtype), 2)
    yield call(values((3, 4), dtype), 3, axis=0)
    yield call(values((3, 4), dtype), 0, axis=-1)
    yield call(values((3,), dtype), np.array([2, 0, 1]))
    yield call(values((2, 3), dtype), np.array([2, 0, 1]), axis=1)


def grids(dtype: DType) -> Iterable[Sample]:
    x, y, z = (values((n,), dtype) for n in (2, 3, 4))
    yield call(x, y)
    yield call(x, y, z, indexing="ij")
    yield call(x, y, z, indexing="xy")
    yield call(x)


ROWS = [
    Row("reshape", np.reshape, reshape, "all"),
    Row("permute_dims", np.permute_dims, permute, "all"),
    Row("expand", expanded, expand, "all"),
    Row("broadcast_to", np.broadcast_to, broadcast, "all"),
    Row("broadcast_arrays", np.broadcast_arrays, several, "all"),
    Row("concat", np.concat, concat, "all"),
    Row("stack", np.stack, stack, "all"),
    Row("unstack", np.unstack, over_axes(), "all"),
    Row("expand_dims", np.expand_dims, over_axes(extra=1), "all"),
    Row("squeeze", np.squeeze, squeeze, "all"),
    Row("flatten", flattened, flatten, "all"),
    Row("flip", np.flip, flip, "all"),
    Row("moveaxis", np.moveaxis, moves, "all"),
    Row("swapaxes", np.swapaxes, swaps, "all"),
    Row("matrix_transpose", np.matrix_transpose, matrices, "all"),
    Row("roll", np.roll, roll, "all"),
    Row("tile", np.tile, tile, "all"),
    Row("repeat", np.repeat, repeat, "all"),
    Row("tril", lambda x, k: np.tril(x, k), triangles, "all"),
    Row("triu", lambda x, k: np.triu(x, k), triangles, "all"),
    Row("meshgrid", np.meshgrid, grids, "all"),
]
