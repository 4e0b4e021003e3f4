"""The history of control flow: nodes with nested graphs, and their backward.

The backward of such a node is another such node. It is recorded when a backward pass asks for it.
The forward node, whose graph is still being recorded, is then extended in place by results that the
backward needs. Both are ordinary nodes with histories of their own, so gradients of any order work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.autodiff.gradient_flow import active_results, has_leaves, is_smooth
from weft.autodiff.node import (
    FREED,
    AccumulateGrad,
    OpNode,
    PartNode,
    as_array,
    count,
    data_of,
    freed,
    locate,
    part_of,
    tensor_of,
)
from weft.autodiff.node import Node as HistoryNode
from weft.autodiff.transforms.history import Primal
from weft.autodiff.transforms.levels import innermost_level
from weft.base.dim_algebra import Dim, replaced
from weft.base.dims import bind_dims
from weft.base.errors import CaptureError, CaptureGradientError, WeftError
from weft.base.source import SourceLocation, user_location
from weft.core import bind as binding
from weft.core.grad_mode import enable_grad, no_grad
from weft.core.symbolic import SymbolicArray, symbolic
from weft.core.tensor import Tensor, wrap
from weft.ir.graph import Graph, Node, Value
from weft.ir.infer import infer_types
from weft.ir.op import Op
from weft.ir.types import StackType, TensorType, Type
from weft.record.control.borders import Border
from weft.record.control.nested import graph_recorder
from weft.record.control.on_level import on_level
from weft.record.recorder import GraphRecorder, locate_histories

#: (history, recorder, cotangents of the results, operands asked for) -> gradients of the operands
Backward = Callable[
    ["ControlNode", GraphRecorder, list[Tensor | None], list[bool]], list[Tensor | None]
]
#: By op. Filled by `branches.py`.
BACKWARD: dict[Op, Backward] = {}


class ControlNode(HistoryNode):
    """The history of the results of a node of control flow."""

    __slots__ = ("arrives", "create", "doubts", "node", "opaque", "operands", "owner", "pinned")

    node: Node
    operands: Any  # its operands, tensors of the graph of `owner`
    owner: GraphRecorder
    pinned: frozenset[int]  # operands that are leaves to which the nested graphs write
    opaque: str  # why gradients cannot pass, or ""
    create: bool
    doubts: list[Tensor | None] | None
    arrives: dict[int, Tensor]  # number of a result -> the condition under which it has a cotangent

    @property
    def outputs(self) -> int:  # type: ignore[override]
        return len(self.node.outputs)

    def name(self) -> str:
        return f"{self.node.op.name.capitalize()}Backward"

    def forward_name(self) -> str:
        return self.node.op.name

    def arriving(self, doubts: dict[int, Tensor]) -> None:
        self.arrives = doubts

    def frees(self) -> bool:
        return True

    def apply(
        self, g: Any, create: bool, keep: bool, wanted: tuple[bool, ...] | None
    ) -> Sequence[Any]:
        if self.operands is FREED:
            raise freed(self.name())
        asked = [
            edge is not None and (wanted is None or wanted[i]) for i, edge in enumerate(self.edges)
        ]
        self._check(asked)
        parts = [*g, *[None] * (self.outputs - len(g))]
        self.create = create
        self.doubts = None
        with enable_grad() if create else no_grad():
            given = [
                part if part is None or isinstance(part, Tensor) else wrap(as_array(part))
                for part in parts
            ]
            if innermost_level() is None:
                grads = self._backward(given, asked)
            else:
                grads, self.doubts = on_level(lambda: (self._backward(given, asked), self.doubts))
        self.arrives = {}
        if not keep:
            self.operands = FREED
        return [part if create else data_of(part) for part in grads]

    def _backward(self, g: list[Tensor | None], asked: list[bool]) -> list[Tensor | None]:
        here = graph_recorder()
        if here is None:
            raise CaptureError(
                "the graph that this was recorded in is no longer recorded", op=self.name()
            )
        return BACKWARD[self.node.op](self, here, g, asked)

    def _check(self, asked: Sequence[bool]) -> None:
        if self.opaque:
            raise CaptureGradientError(self.opaque, op=self.name())
        if any(asked[i] for i in self.pinned):
            raise CaptureGradientError(
                "a leaf is written to inside of this loop, and a gradient with respect to that "
                "leaf is asked for through the loop",
                op=self.name(),
                hint="detach the results of the loop, or carry the parameter instead of writing to "
                "it",
            )

    def operand(self, index: int) -> Tensor:
        """An operand, for the backward."""
        tensor: Tensor = self.operands[index]
        return tensor if self.create else wrap(tensor._data)

    def result(self, index: int) -> Tensor:
        """A result, for the backward; with its history if the backward is differentiated again."""
        value = self.node.outputs[index]
        data = SymbolicArray(value, self.owner)
        if not self.create or not is_smooth(value.type):
            return wrap(data)
        return tensor_of(data, part_of(self, index, data.shape))

    def extend(self, graphs: Sequence[Graph], kinds: Sequence[Type], **attrs: Any) -> None:
        """Replace the nested graphs of the node, and add results of these types."""
        node = self.node
        node.graphs = tuple(graphs)
        node.attrs = {**node.attrs, **attrs}
        first = len(node.outputs)
        more = [Value(kind, "", node, first + i) for i, kind in enumerate(kinds)]
        node.outputs = (*node.outputs, *more)


def attach(
    owner: GraphRecorder,
    node: Node,
    operands: Sequence[Tensor],
    results: Sequence[Tensor],
    pinned: frozenset[int] = frozenset(),
    opaque: str = "",
) -> None:
    """Give the results of a node their history, if an operand has one."""
    flags = [
        x._node is not None and is_smooth(value.type)
        for x, value in zip(operands, node.inputs, strict=True)
    ]
    if True not in flags and not has_leaves(node):
        return
    active = active_results(node, flags)
    if opaque:
        active = [is_smooth(value.type) for value in node.outputs]
    if True not in active:
        return
    history = ControlNode()
    history.edges = tuple([x._node if on else None for x, on in zip(operands, flags, strict=True)])
    history.node = node
    history.operands = tuple(operands)
    history.owner = owner
    history.pinned = pinned
    history.opaque = opaque
    history.create = False
    history.doubts = None
    history.arrives = {}
    history.extra = None
    history.shape = ()
    history.number = next(count)
    locate(history, node.location)
    for index, (result, on) in enumerate(zip(results, active, strict=True)):
        if on:
            result._node = part_of(history, index, result._data.shape)


def unfollowed(results: Sequence[Tensor], start: int) -> str:
    """Why the ops of a nested graph are not enough to differentiate its results, or "".

    `start` is the number of the first history node that was made in it.
    """
    seen: set[HistoryNode] = set()
    waiting = [x._node for x in results if x._node is not None]
    while waiting:
        node = waiting.pop()
        if node in seen or node.number < start:
            continue
        seen.add(node)
        if isinstance(node, ControlNode):
            if node.opaque:
                return node.opaque
        elif not isinstance(node, _FOLLOWED):
            return (
                f"a gradient would pass through {node.name()} inside of a branch or loop body: "
                "a Function with a custom backward, which the graph does not hold"
            )
        if node.extra is not None and (node.extra.prehooks or node.extra.hooks):
            return "a gradient would pass through a hook inside of a branch or loop body"
        waiting.extend(edge for edge in node.edges if edge is not None)
    return ""


#: Histories that follow from the ops of a graph; an argument of `grad` is an `identity` op.
_FOLLOWED = (OpNode, PartNode, Border, AccumulateGrad, Primal)


def emit(
    here: GraphRecorder,
    op: Op,
    operands: Sequence[Tensor],
    graphs: Sequence[Graph],
    attrs: dict[str, Any],
    pinned: frozenset[int] = frozenset(),
    opaque: str = "",
    location: SourceLocation | None = None,
) -> list[Tensor]:
    """Add a node of control flow; returns its results, with their history."""
    values = [here.value_of(x) for x in operands]
    try:
        types = infer_types(op, values, attrs, graphs)
    except WeftError as error:
        raise error.about(op.name, [value.type for value in values]) from None
    node = Node(op, values, attrs, types, graphs, location or user_location())
    here.graph.nodes.append(node)
    stand_ins = [
        tensor_of(SymbolicArray(value, here), x._node)
        for value, x in zip(values, operands, strict=True)
    ]
    results = [symbolic(value, here) for value in node.outputs]
    attach(here, node, stand_ins, results, pinned, opaque)
    return results


def replay(here: GraphRecorder, graph: Graph, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Record the nodes of a graph again, on other inputs of the same types; returns the outputs."""
    known = dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes:
        results = replay_node(here, node, [known[value] for value in node.inputs])
        known.update(zip(node.outputs, results, strict=True))
    return [known[value] for value in graph.outputs]


def replay_node(here: GraphRecorder, node: Node, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Record one node again, with the history of its results."""
    values = [here.value_of(x) for x in inputs]
    types = [value.type for value in node.outputs]
    graphs = [graph.clone() for graph in node.graphs]
    made = Node(node.op, values, node.attrs, types, graphs, node.location)
    here.graph.nodes.append(made)
    results = [symbolic(value, here) for value in made.outputs]
    kept = list(map(here._stand_in, inputs, values))
    if graphs:
        attach(here, made, kept, results)
    else:
        several = node.op.outputs > 1 or len(results) != 1
        out = tuple(results) if several else results[0]
        binding.tape(node.op, tuple(kept), node.attrs, out)
        locate_histories(results)
    return results


# --- graphs called while another is recorded ---------------------------------------------------


def call_node(node: Node, inputs: list[Tensor], attrs: Mapping[str, Any]) -> list[Tensor]:
    """Add a node of control flow of another graph to the graph that is recorded."""
    here = graph_recorder()
    assert here is not None
    return emit(here, node.op, inputs, specialized(node, inputs), dict(attrs))


def specialized(node: Node, inputs: Sequence[Tensor]) -> list[Graph]:
    """The nested graphs of a node, with symbolic sizes replaced by those of the given inputs."""
    sizes: dict[str, int] = {}
    for value, x in zip(node.inputs, inputs, strict=True):
        if isinstance(value.type, TensorType) and value.type.shape != x.shape:
            bind_dims(value.type.shape, x.shape, sizes)
    return [with_sizes(graph, sizes) for graph in node.graphs]


def with_sizes(graph: Graph, sizes: dict[str, int]) -> Graph:
    """A copy of a graph with these sizes in the place of names."""
    made = graph.clone()
    if sizes:
        _specialize(made, sizes)
    return made


def _specialize(graph: Graph, sizes: dict[str, int]) -> None:
    """Replace symbolic sizes by numbers everywhere in a graph."""
    for value in graph.values():
        value.type = _sized(value.type, sizes)
    for node in graph.nodes:
        node.attrs = _sized(node.attrs, sizes)
        for nested in node.graphs:
            _specialize(nested, sizes)


def _sized(tree: Any, sizes: dict[str, int]) -> Any:
    if isinstance(tree, Dim):
        return replaced(tree, sizes)
    if isinstance(tree, TensorType):
        return tree.like(shape=_sized(tree.shape, sizes))
    if isinstance(tree, StackType):
        return StackType(_sized(tree.element, sizes))
    if isinstance(tree, (tuple, list)):
        return type(tree)([_sized(part, sizes) for part in tree])
    if isinstance(tree, dict):
        return {key: _sized(part, sizes) for key, part in tree.items()}
    if isinstance(tree, slice):
        return slice(*[_sized(part, sizes) for part in (tree.start, tree.stop, tree.step)])
    return tree
