"""Rows of a table by their numbers, and the transpose of that: the cards of `nn.Embedding`."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.dtypes import as_dtype
from weft.base.errors import DTypeError, IndexError, ShapeError
from weft.base.shapes import size_of
from weft.ir.op import Op, Trait
from weft.ir.types import TensorType
from weft.ir.ways import Span
from weft.ops.batch_index import embedding_rule, row_sums_rule
from weft.ops.rules import apply
from weft.ops.ways import embedded, summed_rows

# --- type rules --------------------------------------------------------------------------------


def _check_indices(indices: TensorType) -> None:
    if indices.dtype.kind not in ("int", "uint"):
        raise DTypeError(
            f"the rows of an embedding are named by integers, not by {indices.dtype.name}",
            hint="cast them with astype(weft.int64)",
        )


def _embedding_type(
    weight: TensorType, indices: TensorType, *, padding_idx: int | None
) -> TensorType:
    _check_indices(indices)
    if weight.ndim != 2:
        raise ShapeError(f"the weight must have 2 axes (rows, features), not shape {weight.shape}")
    return weight.like(shape=(*indices.shape, weight.shape[1]))


def _row_sums_type(
    g: TensorType, indices: TensorType, *, rows: int, padding_idx: int | None
) -> TensorType:
    _check_indices(indices)
    return g.like(shape=(rows, g.shape[-1]))


# --- evaluation --------------------------------------------------------------------------------

_UNSIGNED = {8: np.uint64, 4: np.uint32, 2: np.uint16, 1: np.uint8}


def _embedding_numpy(weight: Any, indices: Any, *, padding_idx: int | None) -> Any:
    if indices.dtype.kind not in "iu" or weight.ndim != 2:
        raise ValueError  # NumPy might accept it; the type rule explains the error
    # As unsigned integers, negative numbers are large: one comparison finds all that are invalid.
    if indices.size and indices.view(_UNSIGNED[indices.itemsize]).max() >= len(weight):
        wrong = indices[(indices < 0) | (indices >= len(weight))][0]
        raise IndexError(
            f"there is no row {wrong} in a weight of {len(weight)} rows",
            hint=f"rows are numbered 0 … {len(weight) - 1}",
        )
    return weight.take(indices, axis=0)


def _row_sums(xp: Any, g: Any, indices: Any, *, rows: int, padding_idx: int | None) -> Any:
    """The sums of the rows of g that have the same number, without the padding."""
    numbers = xp.reshape(indices, (1, size_of(indices.shape)))
    table = xp.reshape(xp.arange(rows, dtype=indices.dtype, device=indices.device), (rows, 1))
    hits = table == numbers
    if padding_idx is not None:
        hits = hits & (numbers != padding_idx)
    flat = xp.reshape(g, (size_of(indices.shape), g.shape[-1]))
    return xp.matmul(xp.astype(hits, as_dtype(g.dtype).numpy), flat)


_BLOCK = 65536  # elements that are added at a time


def _row_sums_numpy(g: Any, indices: Any, *, rows: int, padding_idx: int | None) -> Any:
    """The same, added in order. `np.add.at` is fast only for flat arrays."""
    size = g.shape[-1]
    out = np.zeros(rows * size, g.dtype)
    flat = g.reshape(indices.size, size)
    starts = indices.reshape(-1, 1).astype(np.int64) * size
    within = np.arange(size)
    step = max(_BLOCK // max(size, 1), 1)
    for i in range(0, len(flat), step):
        places = (starts[i : i + step] + within).reshape(-1)
        np.add.at(out, places, flat[i : i + step].reshape(-1))
    sums = out.reshape(rows, size)
    if padding_idx is not None:
        sums[padding_idx] = 0
    return sums


# --- cards -------------------------------------------------------------------------------------


def _embedding_vjp(
    _xp: Any, g: Any, _out: Any, weight_type: Any, indices: Any, *, padding_idx: int | None
) -> Any:
    return apply(row_sums, g, indices, rows=weight_type.shape[0], padding_idx=padding_idx)


def _row_sums_vjp(
    xp: Any,
    g: Any,
    _out: Any,
    _g: Any,
    indices: Any,
    *,
    rows: int,
    padding_idx: int | None,
) -> Any:
    found = apply(embedding, g, indices, padding_idx=padding_idx)
    if padding_idx is None:
        return found
    return xp.where(xp.expand_dims(indices, axis=-1) == padding_idx, 0, found)


def _rows_here(xp: Any, span: Span, weight: Any, indices: Any, *, padding_idx: int | None) -> Any:
    """Rows that a rank has of the table, and zeros for others."""
    here, place = span.place(xp, indices)
    rows = apply(embedding, weight, place, padding_idx=None)
    return xp.where(xp.expand_dims(here, axis=-1), rows, 0)


def _row_sums_here(
    xp: Any, span: Span, g: Any, indices: Any, *, rows: int, padding_idx: int | None
) -> Any:
    """The sums of the rows that a rank has of the table."""
    here, place = span.place(xp, indices)
    if padding_idx is not None:
        here = here & (indices != padding_idx)
    mine = xp.where(xp.expand_dims(here, axis=-1), g, 0)
    return apply(row_sums, mine, place, rows=span.size, padding_idx=None)


embedding = Op(
    "embedding",
    _embedding_type,
    lambda xp, weight, indices, *, padding_idx: xp.take(weight, indices, axis=0),
    numpy=_embedding_numpy,
    vjp=(_embedding_vjp, None),
    batch=embedding_rule,
    ways=embedded(_rows_here),
)
row_sums = Op(
    "row_sums",
    _row_sums_type,
    _row_sums,
    numpy=_row_sums_numpy,
    kinds="numeric",
    traits=Trait.LINEAR | Trait.WIDEN,
    vjp=(_row_sums_vjp, None),
    batch=row_sums_rule,
    ways=summed_rows(_row_sums_here),
)
