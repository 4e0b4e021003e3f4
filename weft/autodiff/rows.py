"""The rows that a loop made, as one tensor with the history of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.autodiff.call import CallNode, link
from weft.core.tensor import Tensor, wrap


class RowsNode(CallNode):
    """Several tensors along a new axis."""

    __slots__ = ("rows",)

    rows: Sequence[Tensor]

    def frees(self) -> bool:
        return False


def with_histories(rows: Sequence[Tensor], whole: Tensor) -> Tensor:
    """`whole`, whose rows are `rows`, with their histories."""

    def backward(cotangents: Sequence[Any]) -> list[Tensor]:
        (g,) = cotangents
        return [g[i] for i in range(len(rows))]

    made = wrap(whole._data, whole)
    node = link("Rows", rows, [made], backward, backward, conflicts=(frozenset(),), kind=RowsNode)
    node.rows = rows
    return made


def row_of(whole: Any, index: int) -> Tensor | None:
    """A row with its own history, so that the gradients of others are not zeros, but absent:
    0 times the infinite slope of a root is NaN. None: it has none."""
    node = getattr(whole, "_node", None)
    return node.rows[index] if isinstance(node, RowsNode) else None
