"""How operands of products lie."""

from __future__ import annotations

from collections.abc import Sequence

from weft.base.shapes import Shape
from weft.schedule.views import View

__all__ = ["is_matrix", "matrices"]


def is_matrix(view: View) -> bool:
    """Whether the last two axes are a matrix of cuBLAS: by rows or by columns, none repeated."""
    (rows, columns), (down, along) = view.shape[-2:], view.strides[-2:]
    if along == 1 or columns == 1:
        return rows == 1 or down >= columns
    return along >= rows and (rows == 1 or down == 1)


def matrices(operands: Sequence[View], shape: Shape) -> tuple[View, View, Shape]:
    """The operands and the shape of a product as stacks of matrices: a vector on the left is a row,
    one on the right a column."""
    left, right = operands
    if len(left.shape) == 1:
        shape = (*shape[:-1], 1, shape[-1]) if len(right.shape) > 1 else (1, *shape)
        left = View((1, *left.shape), (left.shape[0] * left.strides[0], *left.strides), left.offset)
    if len(right.shape) == 1:
        shape = (*shape, 1)
        right = View((*right.shape, 1), (*right.strides, 1), right.offset)
    return left, right, shape
