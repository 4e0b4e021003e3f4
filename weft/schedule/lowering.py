"""A graph as the scheduler takes it: no composite nodes, and loops that do only what waits."""

from __future__ import annotations

from weft.ir.graph import Graph
from weft.passes.common import CommonSubexpressions
from weft.passes.dead_code import DeadCode
from weft.passes.hoist import Hoist
from weft.schedule.decompose import decompose
from weft.schedule.scan_products import ScanProducts

__all__ = ["lowered"]

#: What follows once composite cards are taken apart. The last one changes the order of sums.
_STEPS = (CommonSubexpressions(), DeadCode(), Hoist(), ScanProducts())


def lowered(graph: Graph) -> Graph:
    graph = decompose(graph)
    for step in _STEPS:
        graph = step.run(graph)
    return graph
