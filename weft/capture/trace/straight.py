"""A call that is one graph without questions, made ready: the steady state of training.

What the graph reads comes from one generated function, which checks the guards, too; what it gives
is put where it belongs by a few plain loops. Nothing is looked up by name, and nothing is done for
each layer: a further parameter costs one assignment to it, and one to its gradient.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from weft.autodiff.call import link_freed
from weft.base.pytree import LEAF, tree_unflatten
from weft.capture.trace.endings import Prepare
from weft.capture.trace.segments import Given, Made, Segment, acts
from weft.capture.watch.effects import replay
from weft.core.grad_mode import mode
from weft.core.number import Number
from weft.core.tensor import Tensor, wrap
from weft.ir.graph import Value, extract

#: What `Segment.enter` fetched, and the arguments of the call -> the result of the call.
Run = Callable[[list[Any], tuple[Any, ...], dict[str, Any]], Any]


def is_straight(segment: Segment) -> bool:
    """Whether a first segment is all there is, and each tensor that it makes is for one place."""
    ending = segment.ending
    if ending is None or ending.new_leaves:
        return False
    if ending.backward is not None and not ending.backward.freed:
        return False
    if any(write.history or not isinstance(write.grad, (int, str)) for write in ending.writes):
        return False
    # A tensor that is seen in two places is one object there: `return p.grad`.
    seen = Counter(leaf.index for leaf in ending.leaves if leaf.__class__ is Made)
    seen.update(write.grad for write in ending.writes if isinstance(write.grad, int))
    seen.update(place for place in ending.places.values() if isinstance(place, int))
    made = {value for node in segment.nodes for value in node.outputs}
    return max(seen.values(), default=1) == 1 and all(value in made for value in ending.made)


def straight(segment: Segment, name: str, prepare: Prepare) -> Run:
    """What is done in each call once the guards of the segment hold; see `is_straight`."""
    ending = segment.ending
    assert ending is not None
    at = segment.places()
    writes = [write for write in ending.writes if write.value is not None]
    grads = [write for write in ending.writes if isinstance(write.grad, int)]
    cleared = [write for write in ending.writes if write.grad == "none"]
    # The results of the graph: the new values first, then the gradients, then all others.
    new = [ending.made[write.value] for write in writes if write.value is not None]
    slopes = [ending.made[write.grad] for write in grads if isinstance(write.grad, int)]
    outputs = list(dict.fromkeys([*new, *slopes, *ending.made]))
    place = {value: i for i, value in enumerate(outputs)}
    inputs = {value: at[id(origin)] for value, origin in segment.inputs}
    used = _used(segment, inputs)
    graph = extract(name, used, segment.nodes, outputs)
    holds = {inputs[value]: number for number, value in enumerate(used)}
    written = {
        place[value]: holds[at[id(write.target)]]
        for write, value in zip(writes, new, strict=True)
        if at[id(write.target)] in holds
    }
    execute: Any = prepare(graph, written) if outputs or acts(graph) else _Nothing

    inputs_in = picker([inputs[value] for value in used])
    targets_in, numbers_in = picker([at[id(w.target)] for w in writes]), picker(_all(place, new))
    learners_in, slopes_in = picker([at[id(w.target)] for w in grads]), picker(_all(place, slopes))
    cleared_in = picker([at[id(w.target)] for w in cleared])
    sources_in = picker(_all(inputs, ending.backward.sources if ending.backward else []))
    tracked = [(i, place[ending.made[i]]) for i in ending.tracked]
    types = [ending.made[i].tensor_type for i in ending.tracked]
    label = name.capitalize()
    leaves, effects = ending.leaves, ending.effects
    only = _only(leaves[0]) if ending.result == LEAF and not effects else -1

    def run(given: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        before = mode.enabled
        mode.enabled = False
        try:
            found = execute.call([*inputs_in(given)])
        finally:
            mode.enabled = before
        for target, number in zip(targets_in(given), numbers_in(found), strict=True):
            target._data = number._data
        for target, slope in zip(learners_in(given), slopes_in(found), strict=True):
            target._grad = grad = Tensor()
            grad._data = slope._data
            grad._node = None
        for target in cleared_in(given):
            target._grad = None
        made = {index: wrap(found[i]._data) for index, i in tracked}
        if made:
            link_freed(label, sources_in(given), list(made.values()), types)

        def tensor(index: int) -> Tensor:
            if index not in made:
                made[index] = wrap(found[place[ending.made[index]]]._data)
            return made[index]

        if only >= 0:
            return tensor(only)

        parts: list[Any] = []
        for leaf in leaves:
            if leaf.__class__ is Made:
                part = tensor(leaf.index)
                parts.append(part.numpy().item() if leaf.is_number else part)
            else:
                parts.append(given[at[id(leaf.origin)]] if leaf.__class__ is Given else leaf)
        if effects:

            def this_call(recorded: Tensor) -> Any:
                where = ending.places[id(recorded)]
                part = tensor(where) if isinstance(where, int) else given[at[id(where)]]
                return part.numpy().item() if recorded.__class__ is Number else part

            replay(effects, args, kwargs, this_call)
        return tree_unflatten(ending.result, parts)

    return run


class _Nothing:
    """Runs a graph that neither gives nor does anything."""

    @staticmethod
    def call(_inputs: list[Tensor]) -> list[Tensor]:
        return []


def _only(leaf: Any) -> int:
    """Which of the tensors that were made a leaf is; -1 where it is something else."""
    return leaf.index if leaf.__class__ is Made and not leaf.is_number else -1


def _all(place: dict[Value, int], values: Sequence[Value]) -> list[int]:
    return [place[value] for value in values]


def _used(segment: Segment, inputs: dict[Value, int]) -> list[Value]:
    """The inputs that some node reads, in the order in which they are fetched."""
    read = {value for node in segment.nodes for value in node.inputs}
    return sorted((value for value in inputs if value in read), key=inputs.__getitem__)


def picker(places: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """A function that picks some elements of a list, in C."""
    if list(places) == list(range(len(places))):
        return itemgetter(slice(len(places)))
    if len(places) == 1:
        return itemgetter(slice(places[0], places[0] + 1))
    return itemgetter(*places)
