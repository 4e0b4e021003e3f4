"""`vmap` of a node of control flow that takes the same path for all elements.

The nested graphs are batched. If elements take different paths, `PathsDiffer` is raised: see
`weft.autodiff.transforms.control`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.autodiff.transforms.vmap import MapLevel
from weft.core.bind import recording
from weft.core.tensor import Tensor
from weft.ir.graph import Graph, Node
from weft.ir.types import StackType, TensorType, Type
from weft.ops.batching import moved
from weft.ops.control import SCAN, WHILE
from weft.ops.stacks import SharedStack, widened
from weft.record.control.closed import LevelRunner, described, inner_recorder
from weft.record.control.nested import NestedRecorder, close


class PathsDiffer(Exception):
    """Elements take different paths."""


class _Body:
    """One nested graph, batched; some of its inputs are mapped."""

    def __init__(self, graph: Graph, size: int, mapped: Sequence[bool]) -> None:
        self.graph = graph
        self.size = size
        self.nested = inner_recorder(graph.name)
        self.level = MapLevel(size)
        kinds = [v.type for v in graph.inputs]
        given = [
            self.nested.input(_wide_type(kind, size) if on else kind)
            for kind, on in zip(kinds, mapped, strict=True)
        ]
        for value, old in zip(self.nested.inputs, graph.inputs, strict=True):
            value.name = old.name
        self.elements = [self.level.element(x, on) for x, on in zip(given, mapped, strict=True)]
        self.found: list[Tensor] = []
        self.mapped: list[bool] = []  # for each output

    def record(self, run: LevelRunner) -> None:
        with recording(self.nested), recording(self.level):
            self.found = run(self.graph, self.elements)
        self.mapped = [self.level.mapped(x) for x in self.found]

    def finish(self, wanted: Sequence[bool]) -> NestedRecorder:
        """Set the outputs of the graph, with the mapped axis where `wanted`."""
        with recording(self.nested):
            outputs = [
                widened(self.level.below(x), has or not on, self.size)
                for x, has, on in zip(self.found, self.mapped, wanted, strict=True)
            ]
            self.nested.graph.outputs = tuple([self.nested.value_of(x) for x in outputs])
        return self.nested


def _wide_type(kind: Type, size: int) -> Type:
    if isinstance(kind, StackType):
        element = _wide_type(kind.element, size)
        assert isinstance(element, (TensorType, StackType))
        return StackType(element)
    assert isinstance(kind, TensorType)
    return kind.like(shape=(size, *kind.shape))


def batched(
    size: int,
    node: Node,
    operands: Sequence[Tensor],
    mapped: Sequence[bool],
    run: LevelRunner,
    call: Callable[..., list[Tensor]],
) -> tuple[list[Tensor], list[bool]]:
    """The results of a node for all elements, and which of them are mapped."""
    rule = _while if node.op is WHILE else _scan if node.op is SCAN else _branches
    return rule(_Call(size, node, run, call), list(operands), list(mapped))


class _Call:
    def __init__(
        self, size: int, node: Node, run: LevelRunner, call: Callable[..., list[Tensor]]
    ) -> None:
        self.size = size
        self.node = node
        self.run = run
        self.call = call

    def body(self, graph: Graph, mapped: list[bool]) -> _Body:
        """One nested graph. Sets `mapped` for input stacks that must differ between elements."""
        while True:
            made = _Body(graph, self.size, mapped)
            try:
                made.record(self.run)
            except SharedStack as shared:
                if shared.value not in made.nested.inputs:
                    raise
                mapped[made.nested.inputs.index(shared.value)] = True
            else:
                return made

    def settled(
        self, graph: Graph, consts: int, carries: int, mapped: list[bool]
    ) -> tuple[_Body, list[bool]]:
        """The body, with carries mapped that it returns mapped; and a flag for each input."""
        flags = list(mapped)
        while True:
            body = self.body(graph, flags)
            before = list(flags)
            for i in range(carries):
                flags[consts + i] = flags[consts + i] or body.mapped[i]
            if flags == before:
                return body, flags

    def emit(
        self,
        recorders: Sequence[NestedRecorder],
        chosen: list[Tensor],
        operands: list[Tensor],
        **attrs: Any,
    ) -> list[Tensor]:
        captured = close(recorders)
        if "consts" in attrs:
            attrs["consts"] += len(captured)
        given = [*chosen, *captured, *operands]
        graphs = [nested.graph for nested in recorders]
        node = described(self.node.op, given, graphs, attrs, self.node.location)
        return self.call(node, given, self.run)

    def start(
        self, operands: list[Tensor], had: Sequence[bool], mapped: Sequence[bool]
    ) -> list[Tensor]:
        """Operands, with the mapped axis where `mapped` says so and `had` not yet."""
        return [
            widened(x, has or not on, self.size)
            for x, has, on in zip(operands, had, mapped, strict=True)
        ]


def _branches(
    call: _Call, operands: list[Tensor], mapped: list[bool]
) -> tuple[list[Tensor], list[bool]]:
    if mapped[0]:
        raise PathsDiffer
    given = mapped[1:]
    while True:
        before = list(given)
        ways = [call.body(graph, given) for graph in call.node.graphs]
        if given == before:
            break
    flags = [any(column) for column in zip(*[way.mapped for way in ways], strict=True)]
    recorders = [way.finish(flags) for way in ways]
    start = call.start(operands[1:], mapped[1:], given)
    return call.emit(recorders, operands[:1], start), flags


def _while(
    call: _Call, operands: list[Tensor], mapped: list[bool]
) -> tuple[list[Tensor], list[bool]]:
    node = call.node
    consts, counted = node.attrs["consts"], node.attrs["counted"]
    carries = len(operands) - consts
    condition, graph = node.graphs
    body, flags = call.settled(graph, consts, carries, mapped)
    test = call.body(condition, flags)
    if test.mapped[0]:
        raise PathsDiffer
    ends = [*flags[consts:], *body.mapped[carries:]]
    recorders = [test.finish([False]), body.finish(ends)]
    start = call.start(operands, mapped, flags)
    results = call.emit(recorders, [], start, consts=consts, counted=counted)
    return results, [*ends[:carries], False, *ends[carries:]] if counted else ends


def _scan(
    call: _Call, operands: list[Tensor], mapped: list[bool]
) -> tuple[list[Tensor], list[bool]]:
    node = call.node
    consts, carries = node.attrs["consts"], node.attrs["carries"]
    last = consts + carries
    (graph,) = node.graphs
    body, flags = call.settled(graph, consts, carries, mapped)
    ends = [*flags[consts:last], *body.mapped[carries:]]
    start = call.start(operands[:last], mapped[:last], flags[:last])
    for i in range(last, len(operands)):
        x, is_array = operands[i], isinstance(node.inputs[i].type, TensorType)
        start.append(moved(x, 0, 1) if mapped[i] and is_array else x)
    results = call.emit([body.finish(ends)], [], start, **node.attrs)
    for i in range(carries, len(results)):
        if ends[i] and isinstance(graph.outputs[i].type, TensorType):
            results[i] = moved(results[i], 1, 0)
    return results, ends
