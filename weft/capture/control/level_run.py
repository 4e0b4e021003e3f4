"""A recorded graph with control flow, run inside of a transform whose own ops are recorded.

Each of its nodes with nested graphs is what the function of control flow makes of it there:
choices and loops over all elements in `vmap`, nodes that carry tangents in `jvp`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.autodiff.transforms.graphs import GraphRun
from weft.capture.control.branches import cond, switch
from weft.capture.control.loops import while_loop
from weft.ir.graph import Graph, Node
from weft.ir.interpret import Program
from weft.ops.control import IF, SWITCH, WHILE


def decides(graph: Graph) -> bool:
    """Whether values decide somewhere in a graph which way it goes."""
    return any(
        node.op in (IF, SWITCH, WHILE) or any(map(decides, node.graphs)) for node in graph.nodes
    )


class LevelRun(GraphRun):
    """Runs a graph on the level of a transform."""

    def _control(self, node: Node, given: list[Any], attrs: Mapping[str, Any]) -> Any:
        if node.op is IF or node.op is SWITCH:
            ways = [self._branch(Program(graph)) for graph in node.graphs]
            if node.op is IF:
                return cond(given[0], ways[0], ways[1], *given[1:])
            return switch(given[0], ways, *given[1:])
        if node.op is WHILE and not attrs["counted"]:
            condition, body = [Program(graph) for graph in node.graphs]
            fixed, carry = given[: attrs["consts"]], given[attrs["consts"] :]
            return while_loop(
                lambda carry: self(condition, [*fixed, *carry])[0],
                lambda carry: self(body, [*fixed, *carry]),
                carry,
            )
        return super()._control(node, given, attrs)
