"""How a node may be cut over the devices of the tensor axis: what its card says (`weft.ir.ways`),
and two ways for tables with a row for each class.

A layout of a value is the axis that is cut, or `WHOLE` (all devices have all of it), `PARTS` (each
has a term of a sum) or `OPEN` (nothing is decided: random numbers and constants are made as they
are needed).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weft.ir.graph import Node
from weft.ir.types import TensorType
from weft.ir.ways import SUM, State, ways_of_call
from weft.ops.cards import CROSS_ENTROPY, EMBEDDING

__all__ = ["OPEN", "PARTS", "WHOLE", "Split", "splits_of"]

WHOLE, PARTS, OPEN = -1, -2, -3


@dataclass(frozen=True, slots=True)
class Split:
    """One way to cut a node: the layouts of its operands and results, how many parts there may be
    (0: any), and how often one number per row is summed over the devices besides."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    parts: int = 0
    summed_rows: int = 0


def splits_of(
    node: Node,
    inputs: Sequence[TensorType],
    outputs: Sequence[TensorType],
    attrs: Mapping[str, Any],
) -> tuple[Split, ...]:
    """All ways to cut a node whose operands and results have these types."""
    found = [
        Split(tuple(map(_layout, way.inputs)), tuple(map(_layout, way.outputs)), way.parts)
        for way in ways_of_call(node.op, inputs, outputs, attrs)
        if not way.combine
    ]
    if node.op is EMBEDDING:  # each device looks up the rows that it has, others give zeros
        found.append(Split((0, WHOLE), (PARTS,), inputs[0].shape[0]))
    elif node.op is CROSS_ENTROPY:  # the maximum, the sum and the logit of the right class
        axis = attrs["axis"] % inputs[0].ndim
        cut = tuple(axis if kind.ndim == inputs[0].ndim else WHOLE for kind in outputs)
        rest = (WHOLE,) * (len(inputs) - 1)
        found.append(Split((axis, *rest), cut, inputs[0].shape[axis], 3))
    return tuple(found)


def _layout(state: State) -> int:
    return PARTS if state == SUM else WHOLE if state is None else int(state)
