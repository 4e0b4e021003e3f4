"""Checks of values that also hold in graphs and under vmap, where Python cannot ask for them."""

from __future__ import annotations

from weft.base.errors import IndexError, RangeError
from weft.core.bind import bind
from weft.core.tensor import Tensor
from weft.ops.creation import arange
from weft.ops.embedding import embedding
from weft.ops.shape import squeeze


def below(x: Tensor, count: int, message: str, op: str) -> Tensor:
    """The same integers; an error where one of them is not in 0 … count - 1.

    They are taken out of a table of numbers: an embedding checks its indices wherever it runs. Use
    the result: an op whose result nobody uses is left out of a graph.
    """
    table = arange(count, dtype=x.dtype, device=x.device)[:, None]
    try:
        return squeeze(bind(embedding, table, x, padding_idx=None), -1)
    except IndexError:
        raise RangeError(message, op=op, operands=[x.type]) from None
