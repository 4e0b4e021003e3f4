"""Tensors with a part replaced: a row, a slice, a diagonal, what a mask selects."""

from __future__ import annotations

from typing import Any

from weft.base import dtypes
from weft.base.dim_algebra import dim_max, dim_min
from weft.base.errors import DTypeError, ShapeError
from weft.base.shapes import size_of
from weft.core.bind import bind
from weft.core.operands import Operand, as_tensor, cast
from weft.core.public import public
from weft.core.tensor import Tensor, type_of
from weft.ops.arguments import axis_of, integer
from weft.ops.creation import arange, zeros
from weft.ops.index import fitting, take
from weft.ops.index_cards import SETITEM
from weft.ops.reduce import cumulative_sum
from weft.ops.scatter import (
    changed_at,
)
from weft.ops.select import where
from weft.ops.shape import broadcast_to, moveaxis, reshape

__all__ = ["diagonal_scatter", "masked_scatter", "select_scatter", "slice_scatter"]


@public("select_scatter")
def select_scatter(x: Tensor, src: Tensor, /, axis: int, index: int) -> Tensor:
    """x with its part number `index` along an axis replaced by src.

    >>> weft.select_scatter(weft.zeros((2, 2)), weft.ones(2), 1, -1)
    tensor([[0., 1.],
            [0., 1.]])
    """
    at = axis_of(x, axis, "select_scatter")
    number = integer(index, "index", "select_scatter", x)
    return _replaced(x, src, ((slice(None),) * at) + (number,), "select_scatter")


@public("slice_scatter")
def slice_scatter(
    x: Tensor,
    src: Tensor,
    /,
    axis: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Tensor:
    """x with its part start:end:step along an axis replaced by src.

    >>> weft.slice_scatter(weft.zeros(5), weft.ones(2), 0, 1, 4, 2)
    tensor([0., 1., 0., 1., 0.])
    """
    at = axis_of(x, axis, "slice_scatter")
    key = ((slice(None),) * at) + (slice(start, end, step),)
    return _replaced(x, src, key, "slice_scatter")


def _replaced(x: Tensor, src: Any, key: tuple[Any, ...], op: str) -> Tensor:
    value = fitting(src, x)
    part = x[key].shape
    if value.shape != part:
        raise ShapeError(
            f"src has shape {value.shape}, and the part {part}",
            op=op,
            operands=[type_of(x), type_of(value)],
        )
    out: Tensor = bind(SETITEM, x, value, index=key)
    return out


@public("diagonal_scatter")
def diagonal_scatter(
    x: Tensor, src: Tensor, /, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """x with a diagonal over two axes replaced by src, whose last axis goes along the diagonal.

    >>> weft.diagonal_scatter(weft.zeros((2, 3)), weft.ones(2), 1)
    tensor([[0., 1., 0.],
            [0., 0., 1.]])
    """
    first, second = (axis_of(x, axis, "diagonal_scatter") for axis in (dim1, dim2))
    if first == second:
        raise ShapeError(f"axis {first} is named twice", op="diagonal_scatter", operands=[x.type])
    turned = moveaxis(x, (first, second), (0, 1))
    rows, columns = turned.shape[:2]
    k = integer(offset, "offset", "diagonal_scatter", x)
    length = dim_max(dim_min(rows + min(k, 0), columns - max(k, 0)), 0)
    value = fitting(src, x)
    wanted = (*turned.shape[2:], length)
    if value.shape != wanted:
        raise ShapeError(
            f"src has shape {value.shape}, and the diagonal {wanted}",
            op="diagonal_scatter",
            operands=[type_of(x), type_of(value)],
        )
    along = arange(length, device=x.device)
    key = (along + max(-k, 0), along + max(k, 0))
    out = changed_at(turned, key, moveaxis(value, -1, 0), SETITEM)
    return moveaxis(out, (0, 1), (first, second))


@public("masked_scatter")
def masked_scatter(x: Tensor, mask: Tensor, source: Tensor, /) -> Tensor:
    """x with the elements under a mask replaced by the first elements of source, in order.

    >>> mask = weft.asarray([True, False, True])
    >>> weft.masked_scatter(weft.zeros(3), mask, weft.asarray([1.0, 2.0, 3.0]))
    tensor([1., 0., 2.])
    """
    chosen = as_tensor(mask, "masked_scatter", like=x)
    if chosen.dtype is not dtypes.bool:
        raise DTypeError(f"the mask is {chosen.dtype.name}, not bool", op="masked_scatter")
    flat_mask = reshape(broadcast_to(chosen, x.shape), (size_of(x.shape),))
    value = fitting(source, x)
    value = reshape(value, (value.size,))
    number = cumulative_sum(cast(flat_mask, dtypes.int64), axis=0)
    last: Operand = 0
    if value.size == 0:  # no element may be asked for, and position 0 must exist
        value, last = zeros(1, dtype=x.dtype, device=x.device), 1
    taken = take(value, where(flat_mask, number - 1 + last, 0))
    return reshape(where(flat_mask, taken, reshape(x, (size_of(x.shape),))), x.shape)
