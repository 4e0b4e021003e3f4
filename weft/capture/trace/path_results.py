"""The results of a replayed path: its return value with its history, and its writes outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.autodiff.call import freed_node
from weft.autodiff.node import FreedError
from weft.capture.trace.new_leaves import make_leaves
from weft.capture.trace.path_history import history_of
from weft.capture.trace.programs import Prepare
from weft.capture.trace.result_leaves import python_number_of, result_of
from weft.capture.trace.segments import Ending, Segment
from weft.capture.watch.effects import replay
from weft.core.number import is_unknown
from weft.core.tensor import Tensor, wrap
from weft.ir.graph import Value
from weft.ir.signature import NONE, SAME, Given

Numbers = dict[Value, Tensor]


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
    result = result_of(signature, made, outside)  # before the writes
    if signature.writes or ending.effects:
        _write(ending, made, outside, args, kwargs)
    return result


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
        return python_number_of(found) if is_unknown(tensor) else found

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
    history = history_of(path, name, prepare)
    history.link(
        [numbers[value]._data for value in history.inputs],
        tuple([x._node for x in sources]),
        [_plain(numbers[value]) for value in history.saved],
        [tracked[i] for i in history.results],
    )


def _plain(value: Any) -> Any:
    """A value saved for backward, without its history; a stack of tensors is saved unchanged."""
    return wrap(value._data) if isinstance(value, Tensor) else value
