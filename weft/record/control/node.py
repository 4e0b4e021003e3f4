"""The history of control flow: what made the results of a node with nested graphs.

Backward through such a node is another such node. It is made when it is asked for, and the forward
node is then extended in place (it belongs to a graph that is still being recorded): it also gives
what the backward needs. Both are ordinary nodes with a history of their own, so gradients can be
taken of any order.
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
#: By the name of the op; the modules that define them put them here.
BACKWARD: dict[Op, Backward] = {}


class ControlNode(HistoryNode):
    """What made the results of a node of control flow."""

    __slots__ = ("arrives", "create", "doubts", "node", "opaque", "operands", "owner", "pinned")

    node: Node
    operands: Any  # the tensors that it was given, in the graph of `owner`
    owner: GraphRecorder
    pinned: frozenset[int]  # operands that are leaves which the nested graphs write to
    opaque: str  # why gradients cannot pass, if they cannot
    create: bool
    doubts: list[Tensor | None] | None
    arrives: dict[int, Tensor]  # by number of a result: when its cotangent is there

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
                "a leaf is written to inside of this loop, and its gradient is asked for through "
                "the loop",
                op=self.name(),
                hint="detach what the loop gives, or carry the parameter instead of writing to it",
            )

    def operand(self, index: int) -> Tensor:
        """An operand, for the backward."""
        tensor: Tensor = self.operands[index]
        return tensor if self.create else wrap(tensor._data)

    def result(self, index: int) -> Tensor:
        """A result, for the backward; if it is to be differentiated again, with its history."""
        value = self.node.outputs[index]
        data = SymbolicArray(value, self.owner)
        if not self.create or not is_smooth(value.type):
            return wrap(data)
        return tensor_of(data, part_of(self, index, data.shape))

    def extend(self, graphs: Sequence[Graph], kinds: Sequence[Type], **attrs: Any) -> None:
        """Let the node have other nested graphs, and further results of these types."""
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
    """Give the results of a node their history, where an operand has one."""
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
    """Why gradients of results of a nested graph cannot be found by its ops alone, if so.

    `start` is the number of the first history in it.
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
                f"a gradient is to pass through {node.name()} inside of a branch or loop body: "
                "a Function with a backward of its own, which the graph does not hold"
            )
        if node.extra is not None and (node.extra.prehooks or node.extra.hooks):
            return "a gradient is to pass through a hook inside of a branch or loop body"
        waiting.extend(edge for edge in node.edges if edge is not None)
    return ""


#: Histories that the ops of a graph tell by themselves: an argument of `grad` is an `identity`.
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
    """Add a node of control flow, and give its results, with their history."""
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
    """Record the nodes of a graph anew, on other inputs of the same types; gives its outputs."""
    known = dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes:
        results = replay_node(here, node, [known[value] for value in node.inputs])
        known.update(zip(node.outputs, results, strict=True))
    return [known[value] for value in graph.outputs]


def replay_node(here: GraphRecorder, node: Node, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Record one node anew, with the history of its results."""
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


# --- graphs called where another is recorded ---------------------------------------------------


def call_node(node: Node, inputs: list[Tensor], attrs: Mapping[str, Any]) -> list[Tensor]:
    """A node of control flow of another graph becomes one of the graph that is recorded."""
    here = graph_recorder()
    assert here is not None
    return emit(here, node.op, inputs, specialized(node, inputs), dict(attrs))


def specialized(node: Node, inputs: Sequence[Tensor]) -> list[Graph]:
    """The nested graphs of a node, for inputs whose sizes are numbers where theirs are symbolic."""
    sizes: dict[str, int] = {}
    for value, x in zip(node.inputs, inputs, strict=True):
        if isinstance(value.type, TensorType) and value.type.shape != x.shape:
            bind_dims(value.type.shape, x.shape, sizes)
    graphs = [graph.clone() for graph in node.graphs]
    if sizes:
        for graph in graphs:
            _specialize(graph, sizes)
    return graphs


def _specialize(graph: Graph, sizes: dict[str, int]) -> None:
    """Put numbers in the place of symbolic sizes, everywhere in a graph."""
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
