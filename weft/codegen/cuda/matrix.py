"""How operands of cuBLAS lie."""

from __future__ import annotations

from weft.schedule.views import View

__all__ = ["is_matrix"]


def is_matrix(view: View) -> bool:
    """Whether the last two axes are a matrix of cuBLAS: by rows or by columns, none repeated."""
    (rows, columns), (down, along) = view.shape[-2:], view.strides[-2:]
    if along == 1 or columns == 1:
        return rows == 1 or down >= columns
    return along >= rows and (rows == 1 or down == 1)
