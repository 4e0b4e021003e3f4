"""A graph as the schedule takes it: no composite nodes; loops keep only work that depends on the
previous iteration."""

from __future__ import annotations

from collections.abc import Callable

from weft.ir.graph import Graph
from weft.passes.common import CommonSubexpressions
from weft.passes.dead_code import DeadCode
from weft.passes.hoist import Hoist
from weft.passes.lowering.attention import Fusion
from weft.passes.lowering.decompose import decompose
from weft.passes.lowering.scan_products import ScanProducts

__all__ = ["lowered"]

#: What follows once composite ops are replaced. The last pass changes the order of sums.
_STEPS = (CommonSubexpressions(), DeadCode(), Hoist(), ScanProducts())


def lowered(graph: Graph, attends: Callable[[Fusion], bool] | None = None) -> Graph:
    """The graph in the ops that kernels are made of. `attends`: which attentions become one node;
    by default all."""
    graph = decompose(graph, attends)
    for step in _STEPS:
        graph = step.run(graph)
    return graph
