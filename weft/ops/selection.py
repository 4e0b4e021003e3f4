"""Elements chosen by a mask or a place, and values put there."""

from __future__ import annotations

from weft.base.errors import DTypeError, ShapeError
from weft.base.shapes import broadcasts_to
from weft.core.operands import Operand
from weft.core.public import method, public
from weft.core.tensor import Tensor
from weft.ops.select import where
from weft.ops.shape import broadcast_arrays

__all__ = ["masked_fill", "masked_select"]


@public("masked_fill")
def masked_fill(x: Tensor, mask: Tensor, value: Operand, /) -> Tensor:
    """x with `value` where the mask is True. The mask broadcasts to the shape of x.

    >>> weft.masked_fill(weft.asarray([1.0, 2.0]), weft.asarray([True, False]), -1)
    tensor([-1.,  2.])
    """
    if not broadcasts_to(mask.shape, x.shape):
        raise ShapeError(
            f"the mask of shape {mask.shape} does not broadcast to {x.shape}",
            op="masked_fill",
            operands=[x.type, mask.type],
        )
    filled = where(mask, value, x)
    if filled.dtype is not x.dtype:
        raise DTypeError(
            f"{x.dtype.name} cannot hold {value!r:.40}", op="masked_fill", hint="cast x first"
        )
    if filled.shape != x.shape:
        raise ShapeError("the value has too many axes", op="masked_fill", operands=[x.type])
    return filled


@public("masked_select")
def masked_select(x: Tensor, mask: Tensor, /) -> Tensor:
    """The elements where the mask is True, as a vector; the two broadcast.

    >>> weft.masked_select(weft.asarray([1, 2, 3]), weft.asarray([True, False, True]))
    tensor([1, 3])
    """
    wide, where_true = broadcast_arrays(x, mask)
    chosen: Tensor = wide[where_true]
    return chosen


@method("where")
def where_method(x: Tensor, condition: Tensor, other: Operand, /) -> Tensor:
    """x where the condition is True, `other` elsewhere."""
    return where(condition, x, other)
