"""`unique_all` by a sort: what remains to be known during the run is how many values differ.

Each element of the sorted values that differs from the one before begins a group. The positions of
these tell the values; their running number, put back to where the elements came from, is the
inverse.
"""

from __future__ import annotations

from typing import Any

from weft.base.asked_sizes import AskedSizes, NotEmpty, asking
from weft.base.dims import dim
from weft.base.dtypes import int64
from weft.base.errors import WeftError
from weft.base.shapes import size_of
from weft.core.bind import bind
from weft.core.grad_mode import no_grad
from weft.ir.concrete import concrete
from weft.ir.graph import Graph, Node
from weft.ops.creation import arange, ones
from weft.ops.elementwise import equal, logical_or, not_equal, subtract
from weft.ops.index import nonzero, take
from weft.ops.index_cards import SCATTER_ADD, TENSOR
from weft.ops.reduce import cumulative_sum
from weft.ops.shape import reshape, roll
from weft.ops.sorting import argsort
from weft.passes.dead_code import DeadCode
from weft.record.make_graph import make_graph

__all__ = ["unique_graph"]


def unique_graph(node: Node) -> Graph | None:
    """The ops of a `unique_all`; None where it stays a call of the card."""
    kind = node.inputs[0].tensor_type
    size = size_of(kind.shape)
    if kind.dtype.kind == "complex" or (size.__class__ is int and size == 0):
        return None
    try:
        with no_grad(), asking(AskedSizes({}, data=NotEmpty())):
            made = make_graph(_unique, kind)
    except WeftError:  # of a size that some of these must know
        return None
    mine, theirs = (graph.tensor_type.shape[0] for graph in (made.outputs[0], node.outputs[0]))
    renamed = concrete(made, {str(mine): dim(str(theirs))})
    return DeadCode().run(renamed)


def _unique(x: Any) -> tuple[Any, ...]:
    size = size_of(x.shape)
    flat = reshape(x, (size,))
    order = argsort(flat)
    ordered = take(flat, order)
    begins = logical_or(not_equal(ordered, roll(ordered, 1, axis=0)), equal(arange(size), 0))
    (starts,) = nonzero(begins)
    group = subtract(cumulative_sum(begins.astype(int64), axis=0), 1)
    count = starts.shape[0]
    each = ones((size,), dtype=int64)
    index = (TENSOR,)
    inverse = bind(SCATTER_ADD, group, order, shape=(size,), index=index)
    counts = bind(SCATTER_ADD, each, group, shape=(count,), index=index)
    return take(ordered, starts), take(order, starts), reshape(inverse, x.shape), counts
