"""The history of a call's results: one node of the dynamic graph, whose backward is one call of a
program.

A `PathHistory` has what all calls of a path share. A call adds a `PathNode` with its own arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.autodiff.call import CallNode, attach
from weft.autodiff.node import FREED, count, freed, tensor_of
from weft.base.dims import has_dims
from weft.capture.trace.programs import Execute, Prepare
from weft.capture.trace.segments import Segment
from weft.capture.trace.tree import backward_inputs
from weft.core.bind import bind
from weft.core.grad_mode import mode
from weft.core.parts import Parts
from weft.core.tensor import Tensor, wrap
from weft.ir.graph import Graph, Node, Value, copy_nodes, extract
from weft.ir.interpret import PreparedGraph
from weft.ir.size_inputs import with_tellers
from weft.ir.types import TensorType
from weft.ops.creation import zeros
from weft.record.control.absent_cotangents import without_cotangents

__all__ = ["PathHistory", "PathNode", "history_of"]

Gradients = list[Tensor | None]
ndarray = np.ndarray


class _Ready(NamedTuple):
    """What computes gradients when some cotangents are absent.

    program   an executable, or a graph that is run op by op
    outputs   the numbers of its outputs in the whole graph
    fill      whether absent cotangents are zeros
    direct    for each source, the output that is its gradient, or -1; None if that depends on data
    """

    program: Any
    outputs: Sequence[int]
    fill: bool
    direct: Sequence[int] | None = None


class PathHistory:
    """What the histories of all calls of a path share.

    inputs    values from outside, and new leaves: a node keeps the arrays of all of them
    read      those that the backward program reads, by number
    saved     the computed values that it reads
    results   the tracked results that a backward can go through, by number
    types     their types on the CPU; None if sizes are known in a call only
    frees     whether a backward through the only result frees the history
    programs  by the numbers of absent cotangents, what computes the gradients
    """

    def __init__(self, path: Sequence[Segment], name: str, prepare: Prepare) -> None:
        ending = path[-1].ending
        assert ending is not None
        assert ending.backward is not None
        self.backward = backward = ending.backward
        self.path, self.name, self.label = path, name, name.capitalize()
        self._prepare = prepare
        signature = ending.signature
        own = sum(leaf.learns for leaf in signature.new_leaves)
        sources = backward.sources
        self.inputs = [value for segment in path for value, _ in segment.inputs]
        # New leaves are inputs, too: their own computation has no gradients.
        self.inputs += sources[len(sources) - own :]
        at = {value: i for i, value in enumerate(self.inputs)}
        used = backward_inputs(backward)
        told = [*used, *backward.cotangents]
        used += with_tellers(told, backward.nodes, path[-1].tellers)[len(told) :]
        self.read = [at[value] for value in used if value in at]
        self.saved = [value for value in used if value not in at]
        self._given = [self.inputs[i] for i in self.read] + self.saved
        edge_of = {value: i for i, value in enumerate(sources)}
        #: For each input: the number of its edge, or -1.
        self._edges = [edge_of.get(value, -1) for value in self.inputs]
        self._places = [i for i, value in enumerate(backward.gradients) if value is not None]
        self._open = [i for i in self._places if backward.there[i] is not None]
        self.results = [i for i in range(len(signature.tracked)) if i not in backward.freed]
        types = tuple([signature.outputs[signature.tracked[i]] for i in self.results])
        self.types = None if any(has_dims(kind.shape) for kind in types) else types
        self.frees = len(self.results) == 1 and bool(backward.conflicts[0])
        #: The program for an only result whose outputs are the gradients of all sources, if made.
        self.quick: Execute | None = None
        self.programs: dict[tuple[int, ...], _Ready] = {}
        self._by_ops: dict[tuple[int, ...], _Ready] = {}

    def link(
        self,
        arrays: Sequence[Any],
        edges: tuple[Any, ...],
        saved: list[Any],
        results: Sequence[Tensor],
    ) -> None:
        """Give the results of a call their history.

        arrays    of `inputs`, before the call wrote to anything
        edges     the nodes of the sources
        saved     the values of `saved`, in tensors that nobody else has
        """
        node = PathNode()
        node.history = self
        node.arrays = arrays
        node.edges = edges
        node.saved = saved
        node.spent = _NONE
        node.extra = None
        kinds = self.types
        if kinds is None or results[0]._data.__class__ is not ndarray:
            kinds = tuple([x.type for x in results])
        node.types = kinds
        node.number = next(count)
        if len(results) == 1:
            node.shape = kinds[0].shape
            results[0]._node = node
        else:
            node.shape = ()
            attach(node, results)

    def run(self, node: PathNode, cotangents: Sequence[Tensor | None], last: bool) -> Gradients:
        """The gradients of the sources; if it is the last time, the node is freed."""
        absent = tuple([i for i, g in enumerate(cotangents) if g is None])
        ready = self.programs.get(absent)
        if ready is None:
            inputs = [*self._given, *self.backward.cotangents]
            graph = extract(f"{self.name}_backward", inputs, self.backward.nodes, self._wanted())
            _lay_out(graph, [*[wrap(node.arrays[i]) for i in self.read], *node.saved, *cotangents])
            graph, outputs, fill = _partial(graph, len(self._given), absent)
            direct = None
            if not self._open and not (fill and absent):
                at = {self._places[number]: i for i, number in enumerate(outputs)}
                direct = [at.get(i, -1) for i in range(len(self.backward.sources))]
            ready = self.programs[absent] = _Ready(self._prepare(graph), outputs, fill, direct)
            if len(cotangents) == 1 and direct == [*range(len(outputs))]:
                self.quick = ready.program
        there = _cotangents(cotangents, node.types, ready.fill)
        # No name for what is given: only the program holds it, and may release it while it runs.
        return self._spread(ready.program.call(node.given(self.read, there, last)), ready.outputs)

    def run_by_ops(self, node: PathNode, cotangents: Sequence[Tensor | None]) -> Gradients:
        """The same by ops on the tape."""
        absent = tuple([i for i, g in enumerate(cotangents) if g is None])
        ready = self._by_ops.get(absent)
        if ready is None:
            backward, inputs = self.backward, self.inputs
            again = set() if backward.split is None else set(backward.split.recomputed)
            nodes = [part for segment in self.path for part in segment.nodes]
            nodes += [part for part in backward.nodes if part not in again]
            graph = _behind(self.name, [*inputs, *backward.cotangents], nodes, self._wanted())
            graph, outputs, fill = _partial(graph, len(inputs), absent)
            ready = self._by_ops[absent] = _Ready(PreparedGraph(graph), outputs, fill)
        edges = node.edges
        tensors = [
            tensor_of(data, None if edge < 0 else edges[edge])
            for data, edge in zip(node.arrays, self._edges, strict=True)
        ]
        program = ready.program
        slots = program.run([*tensors, *_cotangents(cotangents, node.types, ready.fill)], bind)
        return self._spread([slots[i] for i in program.outputs], ready.outputs)

    def _wanted(self) -> Any:
        """The outputs of the whole graph: gradients, then conditions under which they exist."""
        backward = self.backward
        wanted = [backward.gradients[i] for i in self._places]
        return wanted + [backward.there[i] for i in self._open]

    def _spread(self, found: Sequence[Tensor], outputs: Sequence[int]) -> Gradients:
        """One gradient per source, None where there is none."""
        by_output = dict(zip(outputs, found, strict=True))
        places, open_ = self._places, self._open
        grads: Gradients = [None] * len(self.backward.sources)
        for number, i in enumerate(places):
            grads[i] = by_output.get(number)
        arrived = [i for i in places if grads[i] is not None]
        flags = [(i, by_output[len(places) + number]) for number, i in enumerate(open_)]
        missing = [i for i, there in flags if i in arrived and not there]
        if len(missing) < len(arrived):  # else all cotangents are absent: gradients are zeros
            for i in missing:
                grads[i] = None
        return grads


_NONE: frozenset[int] = frozenset()


class PathNode(CallNode):
    """The history of the results of one call.

    arrays   those of the inputs: to be differentiated again, the whole is run by ops on the tape
    saved    computed values that the backward program reads, in tensors; or FREED
    """

    __slots__ = ("arrays", "history", "saved")

    only_leaves = True
    arrays: Sequence[Any]
    history: PathHistory
    saved: Any

    @property
    def label(self) -> str:  # type: ignore[override]
        return self.history.label

    @property
    def conflicts(self) -> Sequence[frozenset[int]]:  # type: ignore[override]
        return self.history.backward.conflicts

    def apply(
        self, g: Any, create: bool, keep: bool, wanted: tuple[bool, ...] | None
    ) -> Sequence[Any]:
        history = self.history
        quick = history.quick
        if create:
            pass
        elif quick is not None and g.__class__ is ndarray:
            last = history.frees and not keep
            before, mode.enabled = mode.enabled, False
            try:
                return [x._data for x in quick.call(self.given(history.read, [wrap(g)], last))]
            finally:
                mode.enabled = before
        elif g.__class__ is tuple and self.saved is not FREED:
            absent = tuple([i for i, part in enumerate(g) if part is None])
            there = [wrap(part) for part in g if part.__class__ is ndarray]
            ready = history.programs.get(absent)
            if (
                ready is not None
                and ready.direct is not None
                and len(there) + len(absent) == len(g)
            ):
                return self._directly(ready, g, there, keep)
        return super().apply(g, create, keep, wanted)

    def _directly(
        self, ready: _Ready, g: tuple[Any, ...], there: list[Tensor], keep: bool
    ) -> Sequence[Any]:
        """The gradients by a program whose outputs they are, from the cotangents that are there."""
        direct = ready.direct
        assert direct is not None
        last = self._goes_back(g, keep) and not keep
        before, mode.enabled = mode.enabled, False
        try:
            found = ready.program.call(self.given(self.history.read, there, last))
        finally:
            mode.enabled = before
        return [None if i < 0 else found[i]._data for i in direct]

    def given(self, read: Sequence[int], cotangents: Sequence[Tensor], last: bool) -> list[Any]:
        """What the backward program reads; if it is the last time, the node keeps nothing."""
        arrays, saved = self.arrays, self.saved
        if saved is FREED:
            raise freed(self.name())
        if last:
            self.free()
        return [*[wrap(arrays[i]) for i in read], *saved, *cotangents]

    def is_freed(self) -> bool:
        return self.saved is FREED

    def free(self) -> None:
        self.saved, self.arrays = FREED, ()

    def run(
        self, cotangents: Sequence[Tensor | None], by_ops: bool, last: bool
    ) -> Sequence[Tensor | None]:
        if by_ops:
            return self.history.run_by_ops(self, cotangents)
        return self.history.run(self, cotangents, last)


def history_of(path: Sequence[Segment], name: str, prepare: Prepare) -> PathHistory:
    """What the calls of a path share of their history; made once."""
    ending = path[-1].ending
    assert ending is not None
    assert ending.backward is not None
    found: PathHistory | None = ending.backward.history
    if found is None:
        found = ending.backward.history = PathHistory(path, name, prepare)
    return found


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
