"""Batching rules of the random cards.

Each element of the mapped axis gets its own numbers: in a draw of n blocks of the generator, those
of element b start at block b * n. So a function that draws once gets the same numbers as in a
Python loop over the elements.
"""

from __future__ import annotations

from typing import Any

from weft.base.dims import ceil_div
from weft.base.shapes import size_of
from weft.core.bind import bind
from weft.core.operands import constant
from weft.core.tensor import Tensor
from weft.ir.op import OPS, Op
from weft.ops import philox
from weft.ops.batching import (
    Attrs,
    Inputs,
    Mapped,
    Same,
    aligned,
    broadcasted,
    looped,
    reshaped,
)

__all__: list[str] = []


#: Where the dtype does not say how many elements come from one block.
PER_BLOCK = {
    "random_integers": 2,
    "random_log_gamma": 1,
    "random_poisson": 1,
    "random_binomial": 1,
}


def advance_rule(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Any:
    if mapped[0]:
        return looped(op, size, mapped, inputs, attrs)
    return Same(bind(op, inputs[0], blocks=attrs["blocks"] * size))


def draw_rule(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Any:
    if mapped[0]:
        return looped(op, size, mapped, inputs, attrs)
    state, *rest = inputs
    shape = attrs["shape"]
    count = size_of(shape)
    per_block = _per_block(op, rest, attrs)
    whole = ceil_div(count, per_block) * per_block
    given = [_spread(p, m, size, shape, whole) for p, m in zip(rest, mapped[1:], strict=True)]
    drawn: Tensor = bind(op, state, *given, **{**attrs, "shape": (size, whole)})
    if whole != count:
        drawn = bind(OPS["getitem"], drawn, index=(slice(None), slice(count)))
    return reshaped(drawn, (size, *shape))


def _per_block(op: Op, operands: Inputs, attrs: Attrs) -> int:
    """The number of elements from one block of the generator, as in `weft.ops.random`."""
    if op.name in PER_BLOCK:
        return PER_BLOCK[op.name]
    return philox.elements_per_block(operands[0].dtype if operands else attrs["dtype"])


def _spread(p: Tensor, is_mapped: bool, size: int, shape: Any, whole: int) -> Tensor:
    """One probability for each number drawn, including those that are discarded."""
    wide = aligned(p, True, len(shape)) if is_mapped else p
    rows = size if is_mapped else 1
    count = size_of(shape)
    flat = reshaped(broadcasted(wide, (rows, *shape)), (rows, count))
    if whole == count:
        return flat
    none = broadcasted(constant(0, p.dtype, p.device), (rows, whole - count))
    out: Tensor = bind(OPS["concat"], flat, none, axis=1)
    return out
