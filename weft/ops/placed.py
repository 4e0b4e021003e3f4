"""The cards of graphs that are split over devices.

    segment[device]          operands…     runs its nested graph, as one call of that device
    transfer[source,target]  %x            the value where another device takes it

They say where, not what: the values are those of the nested graph, and of the operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.ir.op import Op, Trait
from weft.ir.types import Type
from weft.ops.batching import leading
from weft.ops.control import check_inputs

if TYPE_CHECKING:
    from weft.ir.graph import Graph

__all__ = ["SEGMENT", "TRANSFER"]


def _segment_type(*operands: Type, graphs: Sequence[Graph], device: str) -> tuple[Type, ...]:
    (graph,) = graphs
    check_inputs(graph, operands, "the segment")
    return tuple([value.type for value in graph.outputs])


def _run_segment(run: Any, *operands: Any, graphs: Any, device: str) -> Any:
    """Runs its graph."""
    return run(graphs[0], operands)


SEGMENT = Op("segment", _segment_type, _run_segment, listed=False, graph_names=("body",))
TRANSFER = Op(
    "transfer",
    lambda x, *, source, target: x,
    lambda xp, x, *, source, target: x,
    numpy=lambda x, source, target: x,
    batch=leading,
    traits=Trait.ANYWHERE | Trait.LINEAR,
    may_fail=False,
    listed=False,
)
