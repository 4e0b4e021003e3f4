"""Kernels for GPU arrays where a card's rule over CuPy would be wrong, or much slower.

CuPy's indexing wraps positions that are out of range, and leaves open which of several writes to
one place counts. Here they are checked first, which waits for the GPU; and the last write counts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from weft.base.errors import IndexError
from weft.base.shapes import Shape, size_of
from weft.ops.index_cards import all_in_range, filled_in, flat_places
from weft.ops.index_shape import Index, indexed_shape

__all__ = ["KERNELS"]

#: dtypes that CuPy's atomic additions take, for those that they do not: two's complement sums are
#: the same in wider integers and in unsigned ones.
_ADDS_AS = {
    np.dtype(narrow): np.dtype(wide)
    for wide, given in {
        np.int32: (np.int8, np.int16),
        np.uint32: (np.uint8, np.uint16),
        np.uint64: (np.int64,),
    }.items()
    for narrow in given
}


def add_at(xp: Any, out: Any, places: Any, values: Any) -> Any:
    """out.reshape(-1)[places] += values, where places repeat: the flat result."""
    exact = _ADDS_AS.get(out.dtype)
    flat = out.reshape(-1)
    if exact is not None:
        flat, values = flat.astype(exact), values.astype(exact)
    if flat.dtype.kind == "c":  # part by part
        real = np.float32 if flat.dtype == np.complex64 else np.float64
        pairs = xp.ascontiguousarray(values).view(real)
        both = (2 * places[:, None] + xp.arange(2)).reshape(-1)
        xp.add.at(flat.view(real), both, pairs)
        return flat
    xp.add.at(flat, places, values)
    return flat if exact is None else flat.astype(out.dtype)


def gather(xp: Any, x: Any, *indices: Any, index: Index) -> Any:
    return x[filled_in(index, all_in_range(xp, x.shape, index, indices))]


def scatter_add(xp: Any, value: Any, *indices: Any, shape: Shape, index: Index) -> Any:
    out = xp.zeros(shape, dtype=value.dtype)
    if not indices:
        out[index] = value
        return out
    places = flat_places(xp, shape, index, indices)
    return add_at(xp, out, places, value.reshape(-1)).reshape(shape)


def setitem(xp: Any, x: Any, value: Any, *indices: Any, index: Index) -> Any:
    out = x.copy()
    if not indices:
        out[index] = value
        return out
    part = indexed_shape(x.shape, index, [i.shape for i in indices])
    if not size_of(part):
        return out
    places = flat_places(xp, x.shape, index, indices)
    while value.ndim > len(part):  # axes of size 1 in front
        value = value[0]
    values = xp.broadcast_to(value, part).reshape(-1)
    # Each place is told the number of the last value for it, counted from 1.
    last = xp.zeros(size_of(x.shape), dtype=np.uint64)
    xp.maximum.at(last, places, xp.arange(1, values.size + 1, dtype=np.uint64))
    written = last > 0
    chosen = values[xp.where(written, last - np.uint64(1), last).astype(np.int64)]
    return xp.where(written, chosen, out.reshape(-1)).reshape(x.shape)


def embedding(xp: Any, weight: Any, indices: Any, *, padding_idx: int | None) -> Any:
    rows = weight.shape[0]
    if indices.dtype.kind not in "iu" or weight.ndim != 2:
        raise ValueError  # the type rule explains the error
    wide = indices.astype(np.int64)
    if wide.size and not (int(wide.min()) >= 0 and int(wide.max()) < rows):
        wrong = int(wide[(wide < 0) | (wide >= rows)][0])
        raise IndexError(
            f"there is no row {wrong} in a weight of {rows} rows",
            hint=f"rows are numbered 0 … {rows - 1}",
        )
    return weight[wide]


def row_sums(xp: Any, g: Any, indices: Any, *, rows: int, padding_idx: int | None) -> Any:
    size = g.shape[-1]
    narrow = g.dtype.itemsize == 2
    wide = g.astype(np.float32) if narrow else g
    places = (indices.reshape(-1, 1).astype(np.int64) * size + xp.arange(size)).reshape(-1)
    out = xp.zeros((rows, size), dtype=wide.dtype)
    sums = add_at(xp, out, places, wide.reshape(-1)).reshape(rows, size)
    if padding_idx is not None:
        sums[padding_idx] = 0
    return sums.astype(g.dtype) if narrow else sums


def nll(xp: Any, logp: Any, target: Any, *, axis: int, ignore_index: int) -> Any:
    classes = logp.shape[axis]
    if target.shape != logp.shape[:axis] + logp.shape[axis + 1 :] or target.dtype.kind not in "iu":
        raise ValueError  # the type rule explains the error
    ignored = target == ignore_index
    wide = xp.where(ignored, 0, target.astype(np.int64))
    if wide.size and not (int(wide.min()) >= 0 and int(wide.max()) < classes):
        wrong = int(wide[(wide < 0) | (wide >= classes)][0])
        raise IndexError(
            f"the target {wrong} is none of the {classes} classes",
            hint=f"classes are numbered 0 … {classes - 1}; {ignore_index} is ignored",
        )
    found = xp.raw.take_along_axis(logp, xp.expand_dims(wide, axis), axis=axis)
    return xp.where(ignored, xp.zeros((), dtype=logp.dtype), -found.reshape(target.shape))


def joined(xp: Any, x1: Any, x2: Any) -> Any:
    """Complex numbers part by part: a product with 1j would turn an infinite part into NaN."""
    parts = xp.broadcast_arrays(x1, x2)
    real = np.float64 if x1.dtype == np.float64 else np.float32
    pairs = xp.stack([part.astype(real) for part in parts], axis=-1)
    made = pairs.view(np.complex128 if real is np.float64 else np.complex64)
    return made.reshape(parts[0].shape)


#: By op: (xp, *arrays, **attributes) -> array.
KERNELS: dict[str, Callable[..., Any]] = {
    "gather": gather,
    "scatter_add": scatter_add,
    "setitem": setitem,
    "embedding": embedding,
    "row_sums": row_sums,
    "nll": nll,
    "complex": joined,
}


def bound(xp: Any) -> dict[str, Callable[..., Any]]:
    return {name: partial(kernel, xp) for name, kernel in KERNELS.items()}
