"""The reference interpreter: runs a graph node by node, through the cards.

It is the oracle for every other executor, so it is simple: no reordering, no fusion, no reuse of
memory. It does release a value after its last use, as `Graph.memory` counts it. What an op does is
what its card says. The caller chooses how ops are called (`call`): with the `bind` of `weft.core`,
the interpreter takes and returns tensors. Two kinds of ops are not called: control flow, whose
evaluation runs the nested graphs, and ops on stacks, which are not arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.base.dim_algebra import Dim
from weft.base.dims import bind_dims, substitute
from weft.base.errors import GraphError, WeftError
from weft.base.frames import through
from weft.ir.graph import Graph, Node, Value
from weft.ir.op import Trait
from weft.ir.types import TensorType

#: op, *inputs, **attributes -> result, or a tuple of results where the op has several.
Call = Callable[..., Any]
#: node, inputs, attributes -> results: how nodes with nested graphs are run.
Control = Callable[[Node, list[Any], Mapping[str, Any]], Any]
Bindings = dict[str, int]


class RunObserver:
    """Is told of each step of a run: for a stepper, or a search for NaN. Slots stay filled.

    It may read and change the slots: `PreparedGraph.place` has the slot of each value.
    """

    def begin(self, program: PreparedGraph, slots: list[Any]) -> None:
        """A graph, perhaps a nested one, begins; the slots hold its inputs."""

    def before(self, node: Node, slots: list[Any]) -> None:
        """A node is about to run; its nested graphs begin after this."""

    def after(self, node: Node, slots: list[Any]) -> None:
        """A node has run; its results are the last slots."""

    def end(self, program: PreparedGraph, slots: list[Any]) -> None:
        """A graph has ended."""

    def failed(self, node: Node, error: Exception) -> None:
        """A node raised."""


class Runner:
    """What evaluates control flow and ops on stacks: `run(graph, inputs)`, `run.call`.

    call     how ops are called
    sizes    the symbolic sizes in this run
    watch    is told of each step
    """

    __slots__ = ("call", "sizes", "watch")

    def __init__(self, call: Call, sizes: Bindings, watch: RunObserver | None = None) -> None:
        self.call = call
        self.sizes = sizes
        self.watch = watch

    def __call__(self, program: PreparedGraph, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of a nested graph, which has its own symbolic sizes."""
        slots = program.run(inputs, self.call, dict(self.sizes), watch=self.watch)
        return [slots[i] for i in program.outputs]


class PreparedGraph:
    """A graph prepared for many runs: the slot of each value is computed once.

    Values live in one list of slots: the inputs first, then the results of the nodes. A slot is
    cleared after its last use, unless it holds an output of the graph.
    """

    __slots__ = ("count", "graph", "outputs", "place", "steps", "symbolic")

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        place: dict[Value, int] = {value: i for i, value in enumerate(graph.values())}
        self.place = place
        self.count = len(place)
        self.outputs = tuple([place[value] for value in graph.outputs])
        dying = _last_uses(graph, place, self.outputs)
        self.steps = [
            (
                node,
                node.op,
                tuple([place[value] for value in node.inputs]),
                _has_dims(node.attrs),
                any(_is_symbolic(value) for value in node.outputs),
                tuple([PreparedGraph(nested) for nested in node.graphs]) if node.graphs else (),
                Trait.STACK in node.op.traits,
                dies,
            )
            for node, dies in zip(graph.nodes, dying, strict=True)
        ]
        self.symbolic = any(map(_is_symbolic, graph.inputs))

    def run(
        self,
        inputs: Sequence[Any],
        call: Call,
        bindings: Bindings | None = None,
        control: Control | None = None,
        watch: RunObserver | None = None,
    ) -> list[Any]:
        """The slots after the run: `outputs` tells those of the outputs; others may be empty.

        `control`, if given, runs nodes with nested graphs; then ops on stacks are called, too.
        """
        sizes = {} if bindings is None else bindings
        if self.symbolic:
            _fit_all(self.graph.inputs, inputs, sizes)
        slots = list(inputs)
        del inputs  # so that a list which only this call holds keeps no inputs alive
        if watch is not None:
            watch.begin(self, slots)
        for node, op, places, has_dims, symbolic, nested, stacks, dies in self.steps:
            attrs: Mapping[str, Any] = node.attrs
            if watch is not None:
                watch.before(node, slots)
            try:
                evaluate: Any = op.eval
                if has_dims and (not stacks or control is not None):
                    # A stack may be made before anybody knows the sizes of what will lie on it.
                    attrs = substitute(attrs, sizes, partly=stacks)
                if nested:
                    given = [slots[i] for i in places]
                    if control is None:
                        out = evaluate(Runner(call, sizes, watch), *given, graphs=nested, **attrs)
                    else:
                        out = control(node, given, attrs)
                    del given
                elif stacks and control is None:
                    out = evaluate(Runner(call, sizes), *[slots[i] for i in places], **attrs)
                elif len(places) == 1:
                    out = call(op, slots[places[0]], **attrs)
                else:
                    out = call(op, *[slots[i] for i in places], **attrs)
            except WeftError as error:
                if nested:  # the error is about a node in a nested graph
                    raise
                error = located(error, node)
                through(error, node.location)
                if watch is not None:
                    watch.failed(node, error)
                raise error from error.__cause__
            except Exception as error:
                if not nested:
                    through(error, node.location)
                    if watch is not None:
                        watch.failed(node, error)
                raise
            if len(node.outputs) == 1 and not isinstance(out, (tuple, list)):
                slots.append(out)
            else:
                slots.extend(out)
            if symbolic:
                _fit_all(node.outputs, slots[-len(node.outputs) :], sizes, partly=stacks)
            if watch is not None:
                watch.after(node, slots)
                continue
            for i in dies:
                slots[i] = None
        if watch is not None:
            watch.end(self, slots)
        return slots


def run_node(
    node: Node, inputs: Sequence[Any], call: Call, sizes: Mapping[str, int] | None = None
) -> list[Any]:
    """The results of one node, for these symbolic sizes."""
    evaluate: Any = node.op.eval
    stacks = Trait.STACK in node.op.traits
    attrs = substitute(node.attrs, sizes, partly=stacks) if sizes else node.attrs
    if node.graphs:
        graphs = [PreparedGraph(nested) for nested in node.graphs]
        return list(evaluate(Runner(call, dict(sizes or {})), *inputs, graphs=graphs, **attrs))
    if stacks:
        return list(evaluate(Runner(call, dict(sizes or {})), *inputs, **attrs))
    out = call(node.op, *inputs, **attrs)
    return list(out) if isinstance(out, tuple) else [out]


def interpret(
    graph: Graph,
    inputs: Sequence[Any],
    call: Call,
    bindings: Bindings | None = None,
    control: Control | None = None,
) -> list[Any]:
    """The outputs of the graph for these inputs; for `control` see `PreparedGraph.run`."""
    if len(inputs) != len(graph.inputs):
        raise GraphError(
            f"graph @{graph.name} has {len(graph.inputs)} inputs, and {len(inputs)} were given"
        )
    program = PreparedGraph(graph)
    slots = program.run(inputs, call, bindings, control)
    return [slots[i] for i in program.outputs]


def sizes_of(graph: Graph, inputs: Sequence[Any]) -> Bindings:
    """The symbolic sizes of a graph for these inputs."""
    sizes: Bindings = {}
    _fit_all(graph.inputs, inputs, sizes)
    return sizes


def located(error: WeftError, node: Node) -> WeftError:
    """The error of a node, with the line of the user's code that the node came from."""
    error = error.about(node.op.name, [value.type for value in node.inputs])
    if node.location is not None:
        error.location = node.location
    return error


def _last_uses(
    graph: Graph, place: Mapping[Value, int], outputs: tuple[int, ...]
) -> list[tuple[int, ...]]:
    """For each node, the slots that are not used after it."""
    known = set(outputs)
    dying: list[tuple[int, ...]] = []
    for node in reversed(graph.nodes):
        seen = {place[value] for value in (*node.outputs, *node.inputs)} - known
        known |= seen
        dying.append(tuple(sorted(seen)))
    return dying[::-1]


def _is_symbolic(value: Value) -> bool:
    kind = value.type
    return isinstance(kind, TensorType) and Dim in map(type, kind.shape)


def _has_dims(tree: Any) -> bool:
    if isinstance(tree, Dim):
        return True
    if isinstance(tree, (tuple, list)):
        return any(map(_has_dims, tree))
    if isinstance(tree, dict):
        return any(map(_has_dims, tree.values()))
    return isinstance(tree, slice) and _has_dims((tree.start, tree.stop, tree.step))


def _fit_all(
    values: Sequence[Value], given: Sequence[Any], sizes: Bindings, partly: bool = False
) -> None:
    pairs = [pair for pair in zip(values, given, strict=True) if _is_symbolic(pair[0])]
    if not partly and len(pairs) > 1:  # min(B,3) may be told by a later value
        for value, part in pairs:
            _fit(value, part, sizes, True)
    for value, part in pairs:
        _fit(value, part, sizes, partly)


def _fit(value: Value, given: Any, sizes: Bindings, partly: bool) -> None:
    """Note the symbolic sizes of a value in this run; a contradiction is an error.

    With `partly`, names in a sum may be told by later values: stacks have no order.
    """
    if isinstance(value.type, TensorType) and _is_symbolic(value):
        try:
            bind_dims(value.type.shape, tuple(given.shape), sizes, partly=partly)
        except WeftError as error:
            made = value.node
            where = f"input %{value.name or value.index}" if made is None else made.op.name
            error.message = f"{where} is {value.type} in the graph: {error.message}"
            raise
