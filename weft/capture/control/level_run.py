"""A recorded graph with control flow, run inside of a transform whose own ops are recorded.

Each of its nodes with nested graphs is what the function of control flow makes of it there:
choices and loops over all elements in `vmap`, nodes that carry tangents in `jvp`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.autodiff.transforms.graphs import GraphRun
from weft.autodiff.transforms.vmap import DRAWING
from weft.capture.control.branches import cond, switch
from weft.capture.control.loops import scan, while_loop
from weft.ir.graph import Graph, Node
from weft.ir.interpret import Program
from weft.ir.op import Trait
from weft.ir.types import TensorType
from weft.ops.control import IF, SCAN, SWITCH, WHILE
from weft.ops.effects import CHECK, FAIL

CHOICES = (IF, SWITCH, WHILE)
#: Ops of which a batching rule cannot do all calls at once.
_EACH = Trait.STACK | Trait.EFFECT | Trait.DATA_SHAPE


def decides(graph: Graph) -> bool:
    """Whether values decide somewhere in a graph what it does, or whether it fails."""
    return any(
        node.op in CHOICES or node.op in (CHECK, FAIL) or any(map(decides, node.graphs))
        for node in graph.nodes
    )


def maskable(graph: Graph, chosen: bool = False) -> bool:
    """Whether all elements of a `vmap` can run a graph at once, where values decide.

    chosen   whether that is a branch, or the body of a `while`. There an element that takes no part
             draws no random numbers.
    """
    return all(_maskable(node, chosen) for node in graph.nodes)


def _maskable(node: Node, chosen: bool) -> bool:
    if node.graphs:
        inside = chosen or node.op in CHOICES
        tensors = all(isinstance(value.type, TensorType) for value in node.outputs)
        return tensors and all(maskable(graph, inside) for graph in node.graphs)
    return not node.op.traits & _EACH and not (chosen and node.op.batch in DRAWING)


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
        if node.op is SCAN:
            return self._scan(Program(node.graphs[0]), given, **attrs)
        return super()._control(node, given, attrs)

    def _scan(
        self, body: Program, given: list[Any], consts: int, carries: int, length: int, reverse: bool
    ) -> list[Any]:
        fixed, xs = given[:consts], given[consts + carries :]

        def step(carry: list[Any], slices: list[Any]) -> tuple[list[Any], list[Any]]:
            found = self(body, [*fixed, *carry, *slices])
            return found[:carries], found[carries:]

        last, ys = scan(step, given[consts : consts + carries], xs, length, reverse)
        return [*last, *ys]
