"""For graphs that are never differentiated: removes ops that only affect gradients."""

from __future__ import annotations

from weft.ir.graph import Graph, Node, Value
from weft.ops.cards import STOP_GRADIENT, WITH_GRADIENT_OF
from weft.ops.identity import SENT
from weft.passes.contract import Notes, Pass
from weft.passes.sweep import Sweep


class DropStopGradient(Pass):
    """Removes stop_gradient, with_gradient_of and sent. Not in the pipeline: others need them."""

    name = "drop_stop_gradient"

    def rewrite(self, graph: Graph, notes: Notes) -> Graph:
        def rule(node: Node, sweep: Sweep) -> Value | None:
            if node.op not in (STOP_GRADIENT, WITH_GRADIENT_OF, SENT):
                return None
            notes.add(f"× {node.op.name}(x) → x")
            return node.inputs[0]

        return Sweep(graph).run(rule)
