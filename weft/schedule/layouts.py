"""How an emitter reads an operand. There is one rule: an emitter gets operands in the layout that
it declares, dense ones if it declares nothing. `Values.handed` copies operands in other layouts,
and the verifier (`weft.schedule.verify`) checks that."""

from __future__ import annotations

import enum

from weft.base.shapes import size_of
from weft.ir.types import TensorType
from weft.schedule.groups import Leaf
from weft.schedule.views import View

__all__ = ["LINE", "Layout", "suits"]

#: Bytes that a GPU reads at once: buffers begin at multiples of them.
LINE = 16


class Layout(enum.Enum):
    """
    DENSE    all elements of the buffer, in C order: the emitter ignores strides
    ROWS     any strides and offset, but stride 1 along the last axis
    LINES    as ROWS, and rows begin at multiples of 16 bytes
    MATRIX   any strides and offset, but stride 1 along one of the last two axes
    """

    DENSE = "dense"
    ROWS = "rows"
    LINES = "lines"
    MATRIX = "matrix"


def suits(layout: Layout, leaf: Leaf) -> bool:
    """Whether an operand has the layout that an emitter declares."""
    kind = leaf.root.type
    if not isinstance(kind, TensorType):  # a stack or a token: it has no elements
        return True
    view: View = leaf.view
    if layout is Layout.ROWS:
        return not view.shape or view.shape[-1] == 1 or view.strides[-1] == 1
    if layout is Layout.LINES:
        begins = (view.offset, *view.strides[:-1])
        return suits(Layout.ROWS, leaf) and not any(n * kind.dtype.itemsize % LINE for n in begins)
    if layout is Layout.MATRIX:
        steps = [step for n, step in zip(view.shape, view.strides, strict=True) if n != 1]
        return not steps or 1 in steps[-2:]
    return view.is_dense and size_of(view.shape) == size_of(kind.shape)
