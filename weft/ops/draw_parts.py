"""Draws in parts: each rank makes the numbers of its own elements.

Element i of a draw takes its bits from block i div n of its state, n elements to a block. So the
part of a rank, a range of the first axis, begins some blocks further on; where it begins within a
block, some more numbers are drawn and left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from weft.base.shapes import Shape
from weft.ir.op import OPS
from weft.ir.ways import Span, State, Way
from weft.ops import philox
from weft.ops.rules import apply

__all__ = ["drawn_in_parts"]


def drawn_in_parts(name: str) -> Any:
    """The ways of a card whose first operand is a state."""

    def rule(xp: Any, span: Span, state: Any, *operands: Any, shape: Shape, **attrs: Any) -> Any:
        per = _per_block(operands, attrs["dtype"])
        row = math.prod(shape[1:])
        offset, count = span.first * row, span.size * row
        block = xp.astype(offset // per, state.dtype)
        begin = xp.stack([state[0], state[1] + block])
        here = (span.size, *shape[1:])
        if count % per == 0:  # so is where each rank begins
            return apply(OPS[name], begin, *operands, shape=here, **attrs)
        flat = apply(OPS[name], begin, *operands, shape=(count + per,), **attrs)
        wanted = xp.arange(count) + offset % per
        return xp.reshape(xp.take(flat, wanted, axis=0), here)

    def ways(inputs: Any, outputs: Any, *, shape: Shape, **attrs: Any) -> Iterator[Way]:
        state, *operands = inputs
        if state.ndim != 1 or not shape or any(n.__class__ is not int for n in shape):
            return
        row = math.prod(shape[1:])
        per = _per_block(operands, attrs["dtype"])
        if any(x.ndim for x in operands) and row % per:
            return
        states: list[State] = [
            0 if x.ndim == len(shape) and x.shape[0] == shape[0] else None for x in operands
        ]
        if shape[0] > 1 and row:
            yield Way((None, *states), (0,), shape[0], even=False, rule=rule)

    return ways


def _per_block(operands: Any, dtype: Any) -> int:
    """Elements that one block is for: a probability says how many bits are compared with it."""
    return philox.elements_per_block(operands[0].dtype if operands else dtype)
