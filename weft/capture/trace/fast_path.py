"""The fast path of calls that are one graph without questions, such as training steps.

One generated function checks the guards and fetches all inputs; a few plain loops store the
outputs. Nothing is looked up by name and nothing is done per layer: each parameter costs one
assignment to it and one to its gradient.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from operator import itemgetter
from typing import Any

from weft.autodiff.call import freed_node
from weft.base.dims import has_dims
from weft.base.pytree import LEAF, tree_unflatten
from weft.capture.trace.path_history import PathHistory, history_of
from weft.capture.trace.programs import Prepare
from weft.capture.trace.segments import Ending, Segment, acts
from weft.capture.watch.effects import replay
from weft.core.number import is_unknown
from weft.core.tensor import Tensor, wrap
from weft.ir.graph import Value, extract
from weft.ir.signature import NONE, Given, Made, OutputRouting
from weft.ir.size_inputs import with_tellers

#: (values fetched by `Segment.enter`, args, kwargs) -> the result of the call.
Run = Callable[[list[Any], tuple[Any, ...], dict[str, Any]], Any]


def has_fast_path(segment: Segment) -> bool:
    """Whether a path is one segment, and each new tensor is stored in only one place."""
    ending = segment.ending
    if ending is None or ending.signature.new_leaves or ending.learns:
        return False
    backward, signature = ending.backward, ending.signature
    if backward is not None and not backward.only_freed:
        if backward.freed:
            return False
        each = Counter(ending.made)  # one with a history is a tensor of its own
        if any(each[ending.made[i]] > 1 for i in signature.tracked):
            return False
    if any(write.history or isinstance(write.grad, Given) for write in signature.writes):
        return False
    # A tensor that is stored in two places must be one object: `return p.grad`.
    seen = Counter(leaf.output for leaf in signature.leaves if isinstance(leaf, Made))
    seen.update(write.grad for write in signature.writes if isinstance(write.grad, int))
    seen.update(place for place in ending.places.values() if isinstance(place, int))
    made = {value for node in segment.nodes for value in node.outputs}
    return max(seen.values(), default=1) == 1 and all(value in made for value in ending.made)


def fast_path(segment: Segment, name: str, prepare: Prepare) -> Run:
    """What a call does once the guards of the segment hold; see `has_fast_path`."""
    ending = segment.ending
    assert ending is not None
    signature = ending.signature
    fetched = segment.places()
    #: For each place of the signature: the position of its value among the fetched ones.
    at = [fetched.get(id(origin), -1) for origin in ending.origins]
    inputs = {value: fetched[id(origin)] for value, origin in segment.inputs}
    used = with_tellers(_used(segment, inputs), segment.nodes, segment.tellers)
    tracked_values = [ending.made[i] for i in signature.tracked]
    backward = ending.backward
    history = None
    if backward is not None and not backward.only_freed:
        history = history_of([segment], name, prepare)
    saved = [] if history is None else history.saved
    outputs = list(dict.fromkeys([*ending.made, *saved]))
    number = {value: i for i, value in enumerate(outputs)}
    holds = {inputs[value]: i for i, value in enumerate(used)}
    routing, others = _route(ending, at, holds, number, {*saved, *tracked_values})
    graph = extract(name, used, segment.nodes, outputs)
    execute: Any = _Nothing
    if outputs or acts(graph):
        execute = prepare(graph, routing)
    # The outputs that a call of the graph returns; it delivers the others itself.
    rest = [i for i in range(len(outputs)) if routing.is_listed(i)]
    found_at = {i: place for place, i in enumerate(rest)}
    #: For each output of the signature: its position among those.
    place = [found_at.get(number[value], -1) for value in ending.made]

    places = [inputs[value] for value in used]
    inputs_in = None if places == list(range(len(segment.fetched))) else picker(places)
    writes = [(at[target], place[output]) for target, output in others.values.items()]
    grads = [(at[target], place[output]) for target, output in others.gradients.items()]
    cleared = [at[write.place] for write in signature.writes if write.grad == NONE]
    sources = backward.sources if backward is not None else []
    sources_in = picker([inputs[value] for value in sources])
    tracked = [place[i] for i in signature.tracked]
    linking = None
    if history is not None:
        saved_at = [found_at[number[value]] for value in saved]
        linking = _linking(history, inputs, saved_at, tracked, {*place} - {*tracked})
    kinds = tuple([signature.outputs[i] for i in signature.tracked])
    freed = freed_node(name.capitalize(), kinds)
    if any(has_dims(kind.shape) for kind in kinds):
        freed = functools.partial(_freed, name.capitalize())
    tracked_in = picker(tracked)
    effects = ending.effects
    leaves: Sequence[Any] = signature.leaves
    only = _only(ending, place)
    plain = not (writes or grads or cleared)

    def run(given: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        past = None if linking is None else linking[0](given)
        found = execute.call(given if inputs_in is None else inputs_in(given))
        if not plain:
            for target, i in writes:
                given[target]._data = found[i]._data
            for target, i in grads:
                given[target]._grad = found[i]
            for target in cleared:
                given[target]._grad = None
        if linking is not None:
            linking[1](past, found)
        elif tracked:
            freed(sources_in(given), tracked_in(found))
        if only >= 0:
            return found[only]
        parts: list[Any] = []
        for leaf in leaves:
            if leaf.__class__ is Made:
                part = found[place[leaf.output]]
                parts.append(part.numpy().item() if leaf.is_number else part)
            else:
                parts.append(given[at[leaf.place]] if leaf.__class__ is Given else leaf.value)
        if effects:

            def this_call(recorded: Tensor) -> Any:
                where = ending.places[id(recorded)]
                part = found[place[where]] if isinstance(where, int) else given[at[where.place]]
                return part.numpy().item() if is_unknown(recorded) else part

            replay(effects, args, kwargs, this_call)
        return tree_unflatten(signature.result, parts)

    return run


def _linking(
    history: PathHistory,
    inputs: Mapping[Value, int],
    saved_at: Sequence[int],
    tracked: Sequence[int],
    others: Container[int],
) -> tuple[Callable[[list[Any]], Any], Callable[[Any, list[Any]], None]]:
    """What a call does before and after its graph runs, so that its results have a history.

    saved_at   the positions of saved values among what the graph returns
    tracked    those of the results with a history
    others     those of other results
    """
    arrays_at = [inputs[value] for value in history.inputs]
    sources_at = [inputs[value] for value in history.backward.sources]
    shared = [i for i, place in enumerate(saved_at) if place in others]

    def before(given: list[Any]) -> Any:  # the call may write to its inputs
        arrays = [given[i]._data for i in arrays_at]
        return arrays, tuple([given[i]._node for i in sources_at])

    def after(past: Any, found: list[Any]) -> None:
        saved = [found[i] for i in saved_at]
        for i in shared:
            saved[i] = wrap(saved[i]._data)
        results = []
        for i in tracked:
            # A tensor of its own: the program may use the one that it returned for a later call,
            # and would keep the history alive until then.
            found[i] = result = wrap(found[i]._data)
            results.append(result)
        arrays, edges = past
        history.link(arrays, edges, saved, results)

    return before, after


def _freed(label: str, sources: Sequence[Tensor], results: Sequence[Tensor]) -> None:
    """The same for results whose sizes are known in the call only."""
    freed_node(label, tuple([x.type for x in results]))(sources, results)


def _route(
    ending: Ending,
    at: Sequence[int],
    holds: Mapping[int, int],
    number: Mapping[Value, int],
    listed: Container[Value],
) -> tuple[OutputRouting, OutputRouting]:
    """The outputs that a call of the graph delivers to its inputs, and those that it cannot.

    Both are outputs of the signature by the places they go to. `holds` tells which fetched values
    are which inputs of the graph, `listed` which outputs the call must return.
    """
    routing, others = OutputRouting({}, {}), OutputRouting({}, {})
    seen = Counter(ending.made)
    for write in ending.signature.writes:
        to = holds.get(at[write.place])
        for side, output in (("values", write.value), ("gradients", write.grad)):
            if not isinstance(output, int):
                continue
            sent, other = getattr(routing, side), getattr(others, side)
            value = ending.made[output]
            alone = seen[value] == 1 and value not in listed
            if to is not None and alone and to not in sent.values():
                sent[number[value]] = to
            else:
                other[write.place] = output
    return routing, others


class _Nothing:
    """Runs a graph without outputs and effects."""

    @staticmethod
    def call(_inputs: list[Tensor]) -> list[Tensor]:
        return []


def _only(ending: Ending, place: Sequence[int]) -> int:
    """The number of the output if the result is a single new tensor; else -1."""
    signature = ending.signature
    leaf = signature.leaves[0] if signature.result == LEAF and not ending.effects else None
    return place[leaf.output] if isinstance(leaf, Made) and not leaf.is_number else -1


def _used(segment: Segment, inputs: dict[Value, int]) -> list[Value]:
    """The inputs that some node reads, in the order in which they are fetched."""
    read = {value for node in segment.nodes for value in node.inputs}
    return sorted((value for value in inputs if value in read), key=inputs.__getitem__)


def picker(places: Sequence[int]) -> Callable[[list[Any]], list[Any]]:
    """A function that picks elements of a list into a new list; programs take no tuples."""
    if list(places) == list(range(len(places))):
        return itemgetter(slice(len(places)))
    if len(places) == 1:
        return itemgetter(slice(places[0], places[0] + 1))
    pick = itemgetter(*places)
    return lambda given: [*pick(given)]
