"""The results of a replayed path: its return value with its history, and its writes outside."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from weft.autodiff.call import freed_node, link
from weft.autodiff.node import FreedError, tensor_of
from weft.base.pytree import tree_unflatten
from weft.capture.trace.new_leaves import make_leaves
from weft.capture.trace.segments import Ending, Segment
from weft.capture.trace.size_inputs import with_tellers
from weft.capture.trace.tree import backward_inputs
from weft.capture.watch.effects import replay
from weft.core.bind import bind
from weft.core.number import is_unknown
from weft.core.parts import Parts
from weft.core.tensor import Tensor, wrap
from weft.ir.graph import Graph, Node, Value, copy_nodes, extract
from weft.ir.interpret import PreparedGraph
from weft.ir.signature import NONE, SAME, Given, Made
from weft.ir.types import TensorType
from weft.ops.creation import zeros
from weft.record.control.absent_cotangents import without_cotangents

Numbers = dict[Value, Tensor]


class Execute(Protocol):
    """An executable graph; see `weft.runtime.executable.Executable`."""

    recording: int  # the number of the recording that it belongs to

    @property
    def call(self) -> Callable[[list[Tensor]], Sequence[Tensor]]:
        """Computes the outputs, without histories. Look it up for each run: tools that observe runs
        replace it."""
        ...

    def graph(self, stage: str) -> Graph:
        """The graph as it was "captured", "optimized", or "scheduled" into kernels."""
        ...


#: Makes a graph executable; an `OutputRouting` says which outputs a call delivers to which inputs.
Prepare = Callable[..., Execute]


def finish(
    path: list[Segment],
    numbers: Numbers,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    name: str,
    prepare: Prepare,
) -> Any:
    """The result of a path that was run; also does its writes."""
    ending = path[-1].ending
    assert ending is not None
    signature = ending.signature

    def outside(place: int) -> Any:
        return ending.origins[place].evaluate(args, kwargs)

    made = [wrap(numbers[value]._data) for value in ending.made]
    make_leaves(signature.new_leaves, made, outside)
    for place in ending.learns:
        outside(place).requires_grad = True
    if ending.backward is not None:
        _link(ending, path, numbers, made, name, prepare)
    leaves: list[Any] = []
    for leaf in signature.leaves:
        if isinstance(leaf, Made):
            found = made[leaf.output]
            leaves.append(found.numpy().item() if leaf.is_number else found)
        else:
            leaves.append(outside(leaf.place) if isinstance(leaf, Given) else leaf.value)
    if signature.writes or ending.effects:
        _write(ending, made, outside, args, kwargs)
    return tree_unflatten(signature.result, leaves)


def _write(
    ending: Ending,
    made: list[Tensor],
    outside: Callable[[int], Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    writes = ending.signature.writes
    targets = [outside(write.place) for write in writes]
    grads = [
        outside(write.grad.place) if isinstance(write.grad, Given) else write.grad
        for write in writes
    ]
    for write, target, grad in zip(writes, targets, grads, strict=True):
        if write.value is not None:
            target._data = made[write.value]._data
            if write.history:
                target._node = made[write.value]._node
        if grad != SAME:
            target._grad = None if grad == NONE else made[grad] if isinstance(grad, int) else grad

    def this_call(tensor: Tensor) -> Any:
        place = ending.places[id(tensor)]
        found = made[place] if isinstance(place, int) else outside(place.place)
        return found.numpy().item() if is_unknown(tensor) else found

    replay(ending.effects, args, kwargs, this_call)


def _link(
    ending: Ending,
    path: list[Segment],
    numbers: Numbers,
    made: list[Tensor],
    name: str,
    prepare: Prepare,
) -> None:
    """Make the call one node of the dynamic graph."""
    backward = ending.backward
    assert backward is not None
    signature = ending.signature
    own = [made[leaf.output] for leaf in signature.new_leaves if leaf.learns]
    inner = backward.sources[: len(backward.sources) - len(own)]
    sources = [numbers[value] for value in inner] + own
    tracked = [made[i] for i in signature.tracked]
    gone = [tracked[i] for i, error in backward.freed.items() if isinstance(error, FreedError)]
    if gone:
        freed_node(name.capitalize(), tuple([x.type for x in gone]))(sources, gone)
    for i, error in backward.freed.items():
        if not isinstance(error, FreedError):
            freed_node(name.capitalize(), (tracked[i].type,), error)(sources, [tracked[i]])
    if backward.all_freed:
        return
    results = [x for i, x in enumerate(tracked) if i not in backward.freed]
    kinds = [x.type for x in results]
    saved = backward_inputs(backward)
    told = [*saved, *backward.cotangents]
    saved += with_tellers(told, backward.nodes, path[-1].tellers)[len(told) :]
    kept = [_plain(numbers[value]) for value in saved]
    places = [i for i, value in enumerate(backward.gradients) if value is not None]
    open_ = [i for i in places if backward.there[i] is not None]
    wanted = [backward.gradients[i] for i in places] + [backward.there[i] for i in open_]

    def spread(found: Sequence[Tensor], kept: Sequence[int]) -> list[Tensor | None]:
        by_output = dict(zip(kept, found, strict=True))
        grads: list[Tensor | None] = [None] * len(sources)
        for number, i in enumerate(places):
            grads[i] = by_output.get(number)
        arrived = [i for i in places if grads[i] is not None]
        flags = [(i, by_output[len(places) + number]) for number, i in enumerate(open_)]
        missing = [i for i, there in flags if i in arrived and not there]
        if len(missing) < len(arrived):  # else all cotangents are absent: gradients are zeros
            for i in missing:
                grads[i] = None
        return grads

    def run_backward(
        cotangents: Sequence[Tensor | None], release: bool = False
    ) -> Sequence[Tensor | None]:
        absent = tuple([i for i, g in enumerate(cotangents) if g is None])
        if absent not in backward.ready:
            inputs = [*saved, *backward.cotangents]
            graph = extract(f"{name}_backward", inputs, backward.nodes, wanted)  # type: ignore[arg-type]
            _lay_out(graph, [*kept, *cotangents])
            graph, outputs, fill = _partial(graph, len(saved), absent)
            backward.ready[absent] = prepare(graph), outputs, fill
        program, outputs, fill = backward.ready[absent]
        given = _cotangents(cotangents, kinds, fill)
        return spread(program.call(_given(kept, given, release)), outputs)

    # Leaves that the run made are inputs, too: their own computation has no gradients.
    inputs = [value for segment in path for value, _ in segment.inputs]
    inputs += backward.sources[len(inner) :]
    edges = dict(zip(backward.sources, [x._node for x in sources], strict=True))
    given = [(numbers[value]._data, edges.get(value)) for value in inputs]

    def differentiable(cotangents: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        again = set() if backward.split is None else set(backward.split.recomputed)
        nodes = [node for segment in path for node in segment.nodes]
        nodes += [node for node in backward.nodes if node not in again]
        graph = _behind(name, [*inputs, *backward.cotangents], nodes, wanted)
        absent = [i for i, g in enumerate(cotangents) if g is None]
        graph, outputs, fill = _partial(graph, len(inputs), absent)
        program = PreparedGraph(graph)
        tensors = [tensor_of(data, node) for data, node in given]
        slots = program.run([*tensors, *_cotangents(cotangents, kinds, fill)], bind)
        return spread([slots[i] for i in program.outputs], outputs)

    release = functools.partial(run_backward, release=True)
    differentiates = run_backward, differentiable, release
    link(name.capitalize(), sources, results, *differentiates, backward.conflicts)


def _lay_out(graph: Graph, given: Sequence[Any]) -> None:
    """Note in the inputs of a new graph how what is given lies over a mesh."""
    for value, x in zip(graph.inputs, given, strict=True):
        if isinstance(x, Tensor) and x._data.__class__ is Parts:
            value.type = x.type


def _partial(graph: Graph, before: int, absent: Sequence[int]) -> tuple[Graph, Sequence[int], bool]:
    """The graph of a backward without the absent cotangents, the numbers of its outputs in the
    whole one, and whether absent cotangents are zeros. `before`: the number of inputs before the
    cotangents."""
    cotangents = range(before, len(graph.inputs))
    found = without_cotangents(graph, cotangents, {before + i for i in absent}) if absent else None
    if found is None:
        return graph, range(len(graph.outputs)), True
    return *found, False


def _cotangents(
    given: Sequence[Tensor | None], kinds: Sequence[TensorType], fill: bool
) -> list[Tensor]:
    return [
        zeros(kind.shape, dtype=kind.dtype, device=kind.device) if g is None else g
        for g, kind in zip(given, kinds, strict=True)
        if fill or g is not None
    ]


def _behind(name: str, inputs: Sequence[Value], nodes: Sequence[Node], wanted: Any) -> Graph:
    """A graph of some nodes. An input is used as given, even if one of the nodes computes it."""
    graph = Graph(name)
    graph.set_inputs([value.type for value in inputs], [""] * len(inputs))
    given = dict(zip(inputs, graph.inputs, strict=True))
    known = dict(given)
    for node in nodes:
        copy_nodes(graph, [node], known)
        known.update((value, given[value]) for value in node.outputs if value in given)
    graph.outputs = tuple([known[value] for value in wanted])
    return graph


def _given(kept: list[Any], cotangents: Sequence[Tensor], release: bool) -> list[Any]:
    """The inputs of a backward; with `release`, the last references to saved values."""
    given = [*kept, *cotangents]
    if release:
        kept.clear()
    return given


def _plain(value: Any) -> Any:
    """A value saved for backward, without its history; a stack of tensors is saved unchanged."""
    return wrap(value._data) if isinstance(value, Tensor) else value
