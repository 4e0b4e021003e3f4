"""The backward of a call's results, which is recorded before anybody asks for it.

Results may free parts of each other's history: `conflicts` says which.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from weft.autodiff import engine
from weft.autodiff.conditional_gradients import Doubts
from weft.autodiff.node import FreedError
from weft.autodiff.node import Node as HistoryNode
from weft.base.errors import CaptureError, CaptureGradientError, GradientError
from weft.capture.trace.new_leaves import unread_leaves
from weft.capture.trace.segments import Conflicts, PathBackward
from weft.capture.watch.origin import pinned
from weft.core.symbolic import SymbolicArray, symbolic
from weft.core.tensor import Tensor, type_of, wrap
from weft.ir.graph import Node, Value
from weft.record.control.node import ControlNode
from weft.record.recorder import Written

if TYPE_CHECKING:
    from weft.capture.trace.recorder import TraceRecorder


class NoNumbers(CaptureError):
    """A hook or rule asks for the value of a gradient that arrives after the call."""

    def __init__(self) -> None:
        super().__init__("the gradient of a result has no numbers in a recording")


#: Why a backward cannot go through the history of a result.
BARRED = (FreedError, CaptureGradientError)


def barred(
    roots: Sequence[Any], differentiate: Callable[[Sequence[Any]], Any]
) -> dict[int, GradientError]:
    """The results whose histories no backward can go through, with its error: one inside of the
    function has freed it, or a graph does not hold what it needs."""
    found: dict[int, GradientError] = {}
    for number, root in enumerate(roots):
        try:
            differentiate([root])
        except BARRED as error:
            found[number] = error
    return found


def needed(earlier: Sequence[Node], nodes: Sequence[Node], wanted: Sequence[Any]) -> list[Node]:
    """Of the nodes of earlier attempts, those whose results are used."""
    used = {*wanted, *[value for node in nodes for value in node.inputs]}
    found: list[Node] = []
    for node in reversed(earlier):
        if used.intersection(node.outputs):
            found.append(node)
            used.update(node.inputs)
    return found[::-1]


def conflicts(roots: Sequence[HistoryNode], ends: Collection[HistoryNode]) -> Conflicts:
    """For each result, those whose backward frees nodes of its history, so that it has none after.

    A result is among its own. Nodes behind a loop or branch do not count for other results: eagerly
    the loop is many nodes, and each result may have its own of them.
    """
    behind = [_freed_by(root, ends) for root in roots]
    found = []
    for i, (mine, own) in enumerate(behind):
        others = [j for j, (theirs, _) in enumerate(behind) if j != i and mine & theirs]
        found.append(frozenset([*others, i] if own else others))
    return tuple(found)


def _freed_by(root: HistoryNode, ends: Collection[HistoryNode]) -> tuple[set[HistoryNode], bool]:
    """The nodes up to loops and branches that a backward frees, and whether it frees any."""
    seen: set[HistoryNode] = set()
    stack = [root]
    frees = False
    while stack:
        node = stack.pop()
        if node in seen or node in ends:
            continue
        if isinstance(node, ControlNode):
            frees = True
            continue
        seen.add(node)
        stack += [edge for edge in node.edges if edge is not None]
    found = {node for node in seen if node.frees()}
    return found, frees or bool(found)


def record_backward(
    recorder: TraceRecorder, results: list[Tensor], forward: int, own: Sequence[Tensor] = ()
) -> PathBackward | None:
    """Run autograd on the symbolic results: the nodes that it records are the backward.

    None: it is not known in advance, and the call is no recording.
    """
    by_node = {_node_of(recorder, tensor): (tensor, value) for tensor, value in recorder.lifted()}
    lifted = [pair for node, pair in by_node.items() if node is not None]
    new = [(leaf, recorder.value_of(leaf)) for leaf in own]  # these come last
    unread = unread_leaves(recorder.written, recorder._lifted)
    cotangents = [Value(type_of(result), f"g{i}") for i, result in enumerate(results)]
    starts = [symbolic(value, recorder) for value in cotangents]
    roots = [(r._node, g) for r, g in zip(results, starts, strict=True)]
    targets = [_node_of(recorder, tensor) for tensor, _ in [*lifted, *new]]
    targets += [entry.node for entry in unread]
    doubts: Doubts = {}

    def differentiate(roots: Sequence[tuple[Any, Tensor]]) -> Any:
        doubts.clear()
        return engine.run(roots, keep=True, create=True, targets=targets, cut=True, doubts=doubts)

    freed: dict[int, GradientError] = {}
    attempts = forward
    try:
        with recorder.watch.reopened() as effects:
            try:
                caught = differentiate(roots)
            except BARRED:
                freed = barred(roots, differentiate)
                attempts = len(recorder.graph.nodes)
                left = [i for i in range(len(roots)) if i not in freed]
                results = [results[i] for i in left]
                cotangents = [cotangents[i] for i in left]
                caught = differentiate([roots[i] for i in left]) if left else {}
    except NoNumbers:
        recorder.refuse("a hook asks for the value of a gradient that arrives after the call")
        return None
    if not results:
        sources = [value for _, value in [*lifted, *new]]
        nothing: list[Value | None] = [None] * len(sources)
        return PathBackward([], sources, [], nothing, nothing, freed)
    if effects:
        recorder.refuse(
            "a hook or a backward of a Function writes to Python objects after the call"
        )
        return None
    lifted += [(x.tensor, _lift_old(recorder, x)) for x in unread if x.node in caught]
    lifted += new
    targets = [_node_of(recorder, tensor) for tensor, _ in lifted]
    found = [caught.get(node) for node in targets]
    gradients = [None if g is None else recorder.value_of(g) for g in found]
    conditions = [doubts.get(node) for node in targets]
    there = [None if c is None else recorder.value_of(c) for c in conditions]
    nodes = recorder.graph.nodes[attempts:]
    wanted = [*gradients, *there]
    nodes = [*needed(recorder.graph.nodes[forward:attempts], nodes, wanted), *nodes]
    sources = [value for _, value in lifted]
    shared = conflicts([result._node for result in results], frozenset(targets))
    return PathBackward(nodes, sources, cotangents, gradients, there, freed, shared)


def _lift_old(recorder: TraceRecorder, entry: Written) -> Value:
    """The input for the value of a leaf before a write: its gradient belongs to that."""
    if entry.data.__class__ is SymbolicArray:  # with symbolic sizes
        known: Value = entry.data.value
        recorder._lifted[id(entry.tensor)] = (entry.tensor, known)
        return known
    old = wrap(entry.data)
    origin = recorder.watch.origin_of(entry.tensor) or pinned(entry.tensor, "a tensor")
    value = recorder._input(type_of(old), origin, old)
    recorder._lifted[id(entry.tensor)] = (entry.tensor, value)
    return value


def _node_of(recorder: TraceRecorder, tensor: Tensor) -> Any:
    entry = recorder.written.get(id(tensor))
    return tensor._node if entry is None or id(tensor) in recorder.learns else entry.node
