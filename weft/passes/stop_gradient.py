"""For graphs that are never differentiated: what only says so is left out."""

from __future__ import annotations

from weft.ir.graph import Graph, Node, Value
from weft.passes.contract import Notes, Pass
from weft.passes.sweep import Sweep


class DropStopGradient(Pass):
    """Removes stop_gradient and with_gradient_of. Not in the pipeline: gradients depend on them."""

    name = "drop_stop_gradient"

    def rewrite(self, graph: Graph, notes: Notes) -> Graph:
        def rule(node: Node, sweep: Sweep) -> Value | None:
            if node.op.name not in ("stop_gradient", "with_gradient_of"):
                return None
            notes.add(f"× {node.op.name}(x) → x")
            return node.inputs[0]

        return Sweep(graph).run(rule)
