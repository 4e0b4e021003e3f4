"""`jvp` of a node of control flow: a node that carries tangents in addition to values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.autodiff.gradient_flow import active_results, carried_active, is_smooth
from weft.autodiff.transforms.forward import ForwardLevel
from weft.core.bind import recording
from weft.core.grad_mode import enable_grad
from weft.core.operands import cast
from weft.core.symbolic import symbolic
from weft.core.tensor import Tensor
from weft.ir.graph import Graph, Node, Value
from weft.ir.types import Type
from weft.ops.control import SCAN, WHILE
from weft.ops.stacks import zero_of
from weft.record.control.closed import (
    Groups,
    LevelRunner,
    described,
    groups_of,
    inner_recorder,
    laid_out,
    taken_apart,
)
from weft.record.control.nested import NestedRecorder, close

Call = Callable[..., list[Tensor]]
Tangents = Sequence[Tensor | None]


class Dual:
    """A node in which some operands (tangent not None) have tangents.

    active   for each result, whether it has a tangent
    """

    def __init__(self, node: Node, tangents: Tangents, run: LevelRunner) -> None:
        self.node = node
        self.run = run
        flags = [t is not None for t in tangents]
        self.active = active_results(node, flags)
        self.captured: list[Tensor] = []
        if node.op is WHILE:
            self.flags = self._while(flags)
        elif node.op is SCAN:
            self.flags = self._scan(flags)
        else:
            self.flags = self._branches(flags)

    def call(
        self, values: Sequence[Tensor], tangents: Tangents, call: Call
    ) -> tuple[list[Tensor], list[Tensor | None]]:
        """The results and their tangents."""
        started = [
            zero_of(_element(value.type)) if on and t is None else t
            for t, on, value in zip(tangents, self.flags, self.node.inputs, strict=True)
        ]
        operands = laid_out(values, started, self.groups)
        chosen = self.groups[0].start  # a condition or index comes before all groups
        operands = [*values[:chosen], *self.captured, *operands]
        made = described(self.node.op, operands, self.graphs, self.attrs, self.node.location)
        results = call(made, operands, self.run)
        return taken_apart(results, self.active, self.ends)

    # --- each kind of node --------------------------------------------------------------------

    def _branches(self, flags: list[bool]) -> list[bool]:
        node = self.node
        count = len(node.inputs) - 1
        self.groups: Groups = [range(1, count + 1)]
        self.ends: Groups = groups_of(len(node.outputs))
        inner = groups_of(count)
        self._close([self._graph(g, inner, flags[1:], self.ends, self.active) for g in node.graphs])
        self.attrs: dict[str, Any] = {}
        return flags

    def _while(self, flags: list[bool]) -> list[bool]:
        node = self.node
        condition, body = node.graphs
        consts = node.attrs["consts"]
        carries = len(node.inputs) - consts
        carried = carried_active(body, flags, consts, carries)
        flags = [*flags[:consts], *carried]
        self.active[:carries] = carried  # also a carry to which no iteration gives a tangent
        self.groups = groups_of(consts, carries)
        counted = node.attrs["counted"]
        ys = len(body.outputs) - carries
        self.ends = groups_of(carries, 1, ys) if counted else groups_of(carries)
        wanted = [*self.active[:carries], *self.active[carries + 1 :]]
        none = [False]
        self._close(
            [
                self._graph(condition, self.groups, flags, groups_of(1), none),
                self._graph(body, self.groups, flags, groups_of(carries, ys), wanted),
            ]
        )
        self.attrs = {"consts": self._constants(flags, consts), "counted": counted}
        return flags

    def _scan(self, flags: list[bool]) -> list[bool]:
        node = self.node
        (body,) = node.graphs
        consts, carries = node.attrs["consts"], node.attrs["carries"]
        last = consts + carries
        carried = carried_active(body, flags, consts, carries)
        flags = [*flags[:consts], *carried, *flags[last:]]
        self.active[:carries] = carried
        self.groups = groups_of(consts, carries, len(flags) - last)
        self.ends = groups_of(carries, len(body.outputs) - carries)
        self._close([self._graph(body, self.groups, flags, self.ends, self.active)])
        self.attrs = {
            **node.attrs,
            "consts": self._constants(flags, consts),
            "carries": carries + sum(carried),
        }
        return flags

    def _constants(self, flags: list[bool], consts: int) -> int:
        return len(self.captured) + consts + sum(flags[:consts])

    # --- nested graphs ------------------------------------------------------------------------

    def _close(self, recorders: Sequence[NestedRecorder]) -> None:
        self.captured = close(recorders)
        self.graphs: list[Graph] = [nested.graph for nested in recorders]

    def _graph(
        self,
        graph: Graph,
        groups: Groups,
        flags: Sequence[bool],
        ends: Groups,
        wanted: Sequence[bool],
    ) -> NestedRecorder:
        """A nested graph that also takes tangents of inputs (`flags`) and gives those of outputs
        (`wanted`)."""
        nested = inner_recorder(graph.name)
        level = ForwardLevel()
        values = [Value(value.type, value.name) for value in graph.inputs]
        tangents = [
            Value(v.type) if on else None for v, on in zip(graph.inputs, flags, strict=True)
        ]
        nested.inputs = laid_out(values, tangents, groups)
        with recording(nested), enable_grad():
            duals = [
                level.dual(symbolic(v, nested), None if t is None else symbolic(t, nested))
                for v, t in zip(values, tangents, strict=True)
            ]
            with recording(level):
                found = self.run(graph, duals)
            moved = [
                _tangent(level.tangent(x), value.type) if on else None
                for x, value, on in zip(found, graph.outputs, wanted, strict=True)
            ]
            outputs = laid_out([level.below(x) for x in found], moved, ends)
            nested.graph.outputs = tuple([nested.value_of(x) for x in outputs])
        return nested


def _element(kind: Type) -> Any:
    assert is_smooth(kind)
    return kind


def _tangent(found: Tensor | None, kind: Type) -> Tensor:
    if found is None:
        return zero_of(_element(kind))
    return cast(found, kind.dtype) if hasattr(kind, "dtype") else found
