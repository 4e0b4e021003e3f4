"""For graphs that are never differentiated: what only says so is left out."""

from __future__ import annotations

from weft.ir.graph import Graph, Node, Value
from weft.passes.contract import Notes, Pass
from weft.passes.sweep import Sweep


class DropStopGradient(Pass):
    """Removes stop_gradient. Not in the pipeline: afterwards a gradient would pass there."""

    name = "drop_stop_gradient"

    def rewrite(self, graph: Graph, notes: Notes) -> Graph:
        def rule(node: Node, sweep: Sweep) -> Value | None:
            if node.op.name != "stop_gradient":
                return None
            notes.add("× stop_gradient(x) → x")
            return node.inputs[0]

        return Sweep(graph).run(rule)
