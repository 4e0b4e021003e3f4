"""Distinct elements with PyTorch's arguments, and membership."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.dim_algebra import Dim
from weft.base.dims import dim
from weft.core.bind import bind
from weft.core.operands import as_tensor, cast, common
from weft.core.public import public
from weft.core.tensor import Tensor
from weft.ir.op import Op, Trait
from weft.ir.types import TensorType
from weft.ops.arguments import axis_of
from weft.ops.creation import arange, ones
from weft.ops.dtype_functions import diff
from weft.ops.elementwise import equal, logical_not, logical_or, minimum, not_equal, subtract
from weft.ops.index import nonzero, take
from weft.ops.index_cards import SCATTER_ADD
from weft.ops.index_shape import TENSOR
from weft.ops.reduce import any, cumulative_sum
from weft.ops.rules import apply
from weft.ops.search import searchsorted
from weft.ops.shape import concat, expand_dims, moveaxis, reshape, roll
from weft.ops.sorting import ARGSORT, sort, unique_all

__all__ = ["argwhere", "flatnonzero", "isin", "unique", "unique_consecutive"]


# --- distinct elements -------------------------------------------------------------------------


def _parts_type(x: TensorType, *, axis: int) -> tuple[TensorType, ...]:
    shape = (*x.shape[:axis], dim("_n"), *x.shape[axis + 1 :])
    count = x.like(dtype=dtypes.int64, shape=(shape[axis],))
    return x.like(shape=shape), count.like(shape=(x.shape[axis],)), count


def _parts(xp: Any, x: Any, *, axis: int) -> tuple[Any, ...]:
    found, inverse, counts = np.unique(
        x, return_inverse=True, return_counts=True, axis=axis, equal_nan=False
    )
    return found, inverse.reshape(-1).astype(np.int64), counts.astype(np.int64)


def _parts_vjp(xp: Any, g: Any, out: Any, x_type: Any, *, axis: int) -> Any:
    """Each distinct part is the first of those that are equal."""
    if g[0] is None:
        return None
    _, inverse, counts = out
    order = apply(ARGSORT, inverse, axis=0, descending=False)
    first = xp.take(order, xp.cumulative_sum(counts, axis=0) - counts, axis=0)
    index = (slice(None),) * axis + (TENSOR,)
    return apply(SCATTER_ADD, g[0], first, shape=x_type.shape, index=index)


_unique_parts = Op(
    "unique_parts",
    _parts_type,
    _parts,
    outputs=3,
    vjp=(_parts_vjp,),
    traits=Trait.DATA_SHAPE | Trait.WIDEN,
)


def _asked(values: Tensor, inverse: Tensor, counts: Tensor, *asked: bool) -> Any:
    more = [part for part, wanted in zip((inverse, counts), asked, strict=True) if wanted]
    return (values, *more) if more else values


@public("unique")
def unique(
    x: Tensor,
    /,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
) -> Any:
    """The distinct elements in ascending order, or the distinct parts along an axis.

    If asked for, also which of them each element is, and how often each occurs. Each NaN counts as
    a separate value.

    >>> weft.unique(weft.asarray([3, 1, 3]), return_counts=True)
    (tensor([1, 3]), tensor([1, 2]))
    """
    given = as_tensor(x, "unique")
    if axis is None:
        found = unique_all(given)
        parts = found.values, found.inverse_indices, found.counts
    else:
        parts = bind(_unique_parts, given, axis=axis_of(given, axis, "unique"))
    return _asked(*parts, return_inverse, return_counts)


@public("unique_consecutive")
def unique_consecutive(
    x: Tensor,
    /,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
) -> Any:
    """x without elements that equal the one before, or without such parts along an axis.

    If asked for, also which of them each element is, and how many elements each stands for.

    >>> weft.unique_consecutive(weft.asarray([1, 1, 2, 1]))
    tensor([1, 2, 1])
    """
    given = as_tensor(x, "unique_consecutive")
    if axis is None:
        rows, shape, at = reshape(given, (given.size,)), given.shape, 0
    else:
        at = axis_of(given, axis, "unique_consecutive")
        rows, shape = moveaxis(given, at, 0), (given.shape[at],)
    differs = not_equal(rows, roll(rows, 1, axis=0))
    if rows.ndim > 1:
        differs = any(differs, axis=tuple(range(1, rows.ndim)))
    size = rows.shape[0]
    differs = logical_or(differs, equal(arange(size, device=given.device), 0))
    (starts,) = nonzero(differs)
    found = take(rows, starts, axis=0)
    inverse = subtract(cumulative_sum(cast(differs, dtypes.int64), axis=0), 1)
    end = ones(1, dtype=dtypes.int64, device=given.device) * size
    counts = diff(starts, append=end)
    if axis is not None:
        found = moveaxis(found, 0, at)
    return _asked(found, reshape(inverse, shape), counts, return_inverse, return_counts)


# --- membership --------------------------------------------------------------------------------


@public("isin")
def isin(
    elements: Any, test_elements: Any, /, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """For each element, whether it is one of `test_elements`; NaN is none of them.

    >>> weft.isin(weft.asarray([1, 2, 3]), weft.asarray([3, 1]))
    tensor([ True, False,  True])
    """
    x, others = common((elements, test_elements), "isin")
    flat = reshape(others, (others.size,))
    count = flat.shape[0]
    few = count == 0 if isinstance(count, Dim) else count <= _FEW
    if few or x.dtype.kind == "complex":
        found = any(equal(expand_dims(x, -1), flat), axis=-1)
    else:
        if x.dtype.kind == "bool":
            x, flat = cast(x, dtypes.int8), cast(flat, dtypes.int8)
        ordered = sort(flat)
        place = minimum(searchsorted(ordered, x), flat.shape[0] - 1)
        found = equal(take(ordered, place), x)
    return logical_not(found) if invert else found


#: Up to this number of elements to test, each is compared with all.
_FEW = 8


# --- positions ---------------------------------------------------------------------------------


@public("argwhere")
def argwhere(x: Tensor, /) -> Tensor:
    """The positions of the nonzero elements: one row of indices for each.

    >>> weft.argwhere(weft.asarray([[0, 5], [7, 0]]))
    tensor([[0, 1],
            [1, 0]])
    """
    given = as_tensor(x, "argwhere")
    if not given.ndim:
        return argwhere(reshape(given, (1,)))[:, :0]
    return concat([reshape(part, (part.shape[0], 1)) for part in nonzero(given)], axis=1)


@public("flatnonzero")
def flatnonzero(x: Tensor, /) -> Tensor:
    """The positions of the nonzero elements of x as a vector."""
    given = as_tensor(x, "flatnonzero")
    return nonzero(reshape(given, (given.size,)))[0]
