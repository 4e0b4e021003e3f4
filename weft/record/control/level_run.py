"""Runs a recorded graph with control flow inside of a transform that is itself recorded.

Nodes with nested graphs are transformed: batched in `vmap`, with tangents in `jvp`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft.autodiff.transforms.graphs import GraphRun
from weft.autodiff.transforms.vmap import DRAWING
from weft.base.dtypes import int64
from weft.base.errors import CaptureError
from weft.core.tensor import Tensor
from weft.ir.graph import Graph, Node
from weft.ir.op import Trait
from weft.ir.types import StackType, TensorType
from weft.ops.control import IF, SWITCH, WHILE
from weft.ops.creation import full
from weft.ops.effects import CHECK, FAIL
from weft.record.control.branches import cond, switch
from weft.record.control.closed import described
from weft.record.control.level_rules import call_control
from weft.record.control.loops import while_loop
from weft.record.control.node import specialized

CHOICES = (IF, SWITCH, WHILE)
#: Traits of ops that cannot be batched under a mask.
_EACH = Trait.STACK | Trait.EFFECT | Trait.DATA_SHAPE


def decides(graph: Graph) -> bool:
    """Whether values decide what a graph runs, or whether it fails."""
    return any(node.graphs or node.op in (CHECK, FAIL) for node in graph.nodes)


def maskable(graph: Graph, chosen: bool = False) -> bool:
    """Whether a graph whose path depends on values can be batched with masks.

    chosen   whether the graph is a branch or the body of a `while`. There it must not draw random
             numbers, since masked elements would draw, too.
    """
    return all(_maskable(node, chosen) for node in graph.nodes)


def differentiates(graph: Graph) -> bool:
    """Whether a graph has a loop that was recorded together with its backward."""
    return any(
        node.attrs.get("counted") or any(map(differentiates, node.graphs)) for node in graph.nodes
    )


def _maskable(node: Node, chosen: bool) -> bool:
    if node.graphs:
        inside = chosen or node.op in CHOICES
        tensors = all(isinstance(value.type, TensorType) for value in node.outputs)
        return tensors and all(maskable(graph, inside) for graph in node.graphs)
    return not node.op.traits & _EACH and not (chosen and node.op.batch in DRAWING)


class LevelRun(GraphRun):
    """Runs a graph on the level of a transform."""

    def _control(self, node: Node, given: list[Any], attrs: Mapping[str, Any]) -> Any:
        made = described(node.op, given, specialized(node, given), dict(attrs), node.location)
        return call_control(made, given, RUN)


class _Run:
    """How rules of transforms run graphs, and nodes that take different paths."""

    def __call__(self, graph: Graph, inputs: Sequence[Tensor]) -> list[Tensor]:
        return LevelRun(graph).outputs(inputs)

    def differing(self, node: Node, given: Sequence[Tensor]) -> list[Tensor]:
        graphs = node.graphs
        if node.op is not WHILE:
            ways = [lambda *operands, way=graph: self(way, operands) for graph in graphs]
            found: list[Tensor] = (
                cond(given[0], *ways, *given[1:])
                if node.op is IF
                else switch(given[0], ways, *given[1:])
            )
            return found
        if any(isinstance(value.type, StackType) for value in node.outputs):
            raise CaptureError(
                "this loop was recorded together with its backward, which keeps a stack of values "
                "of another depth for each element",
                op="vmap",
                hint="differentiate outside: vmap(grad(compile(f))) and grad(vmap(compile(f)))",
            )
        fixed, start = given[: node.attrs["consts"]], list(given[node.attrs["consts"] :])
        counter = [full((), 0, dtype=int64)] if node.attrs["counted"] else []
        ended: list[Tensor] = while_loop(
            lambda state: self(graphs[0], [*fixed, *state[: len(start)]])[0],
            lambda state: [
                *self(graphs[1], [*fixed, *state[: len(start)]]),
                *[n + 1 for n in state[len(start) :]],
            ],
            [*start, *counter],
        )
        return ended


RUN = _Run()
