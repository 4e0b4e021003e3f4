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

from weft.autodiff.call import freed_node
from weft.base.pytree import LEAF, tree_unflatten
from weft.capture.trace.path_results import Prepare
from weft.capture.trace.segments import Ending, Given, Made, Segment, Write, acts
from weft.capture.watch.effects import replay
from weft.core.number import Number
from weft.core.tensor import Tensor
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
    inputs = {value: at[id(origin)] for value, origin in segment.inputs}
    used = _used(segment, inputs)
    outputs = list(dict.fromkeys(ending.made))
    number = {value: i for i, value in enumerate(outputs)}
    sent = _Sent(ending, at, {inputs[value]: i for i, value in enumerate(used)}, number)
    graph = extract(name, used, segment.nodes, outputs)
    execute: Any = _Nothing
    if outputs or acts(graph):
        execute = prepare(graph, sent.values, sent.gradients)
    # What a call of the graph gives back: the outputs that it does not put anywhere itself.
    rest = [i for i in range(len(outputs)) if i not in sent.values and i not in sent.gradients]
    found_at = {i: place for place, i in enumerate(rest)}
    place = {value: found_at[i] for value, i in number.items() if i in found_at}

    places = [inputs[value] for value in used]
    inputs_in = None if places == list(range(len(segment.fetched))) else picker(places)
    writes = [(at[id(write.target)], place[value]) for write, value in sent.other_values]
    grads = [(at[id(write.target)], place[value]) for write, value in sent.other_gradients]
    cleared = [at[id(write.target)] for write in ending.writes if write.grad == "none"]
    sources_in = picker(_all(inputs, ending.backward.sources if ending.backward else []))
    tracked = [place[ending.made[i]] for i in ending.tracked]
    kinds = tuple([ending.made[i].tensor_type for i in ending.tracked])
    freed = freed_node(name.capitalize(), kinds)
    tracked_in = picker(tracked)
    leaves, effects = ending.leaves, ending.effects
    only = _only(ending, place)
    plain = not (writes or grads or cleared)

    def run(given: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        found = execute.call(given if inputs_in is None else inputs_in(given))
        if not plain:
            for target, i in writes:
                given[target]._data = found[i]._data
            for target, i in grads:
                given[target]._grad = found[i]
            for target in cleared:
                given[target]._grad = None
        if tracked:
            freed(sources_in(given), tracked_in(found))
        if only >= 0:
            return found[only]

        def tensor(index: int) -> Tensor:
            result: Tensor = found[place[ending.made[index]]]
            return result

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


class _Sent:
    """Which outputs a call of the graph puts into tensors that it reads, and which it cannot."""

    def __init__(
        self, ending: Ending, at: dict[int, int], holds: dict[int, int], number: dict[Value, int]
    ) -> None:
        """`holds`: which of the fetched things are which inputs of the graph."""
        self.values: dict[int, int] = {}
        self.gradients: dict[int, int] = {}
        self.other_values: list[tuple[Write, Value]] = []
        self.other_gradients: list[tuple[Write, Value]] = []
        seen = Counter(ending.made)
        sides = (
            (self.values, self.other_values, "value"),
            (self.gradients, self.other_gradients, "grad"),
        )
        for write in ending.writes:
            to = holds.get(at[id(write.target)])
            for sent, others, side in sides:
                index = getattr(write, side)
                if not isinstance(index, int):
                    continue
                value = ending.made[index]
                if to is not None and seen[value] == 1 and to not in sent.values():
                    sent[number[value]] = to
                else:
                    others.append((write, value))


class _Nothing:
    """Runs a graph that neither gives nor does anything."""

    @staticmethod
    def call(_inputs: list[Tensor]) -> list[Tensor]:
        return []


def _only(ending: Ending, place: dict[Value, int]) -> int:
    """Where the result is found if it is one tensor that was made, and that is all; else -1."""
    leaf = ending.leaves[0] if ending.result == LEAF and not ending.effects else None
    if leaf.__class__ is not Made or leaf.is_number:
        return -1
    return place[ending.made[leaf.index]]


def _all(place: dict[Value, int], values: Sequence[Value]) -> list[int]:
    return [place[value] for value in values]


def _used(segment: Segment, inputs: dict[Value, int]) -> list[Value]:
    """The inputs that some node reads, in the order in which they are fetched."""
    read = {value for node in segment.nodes for value in node.inputs}
    return sorted((value for value in inputs if value in read), key=inputs.__getitem__)


def picker(places: Sequence[int]) -> Callable[[list[Any]], list[Any]]:
    """A function that picks some elements of a list: a new list, as programs take no tuples."""
    if list(places) == list(range(len(places))):
        return itemgetter(slice(len(places)))
    if len(places) == 1:
        return itemgetter(slice(places[0], places[0] + 1))
    pick = itemgetter(*places)
    return lambda given: [*pick(given)]
