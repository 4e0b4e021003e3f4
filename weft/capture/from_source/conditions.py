"""Conditions of captured code: `if`, `and`, `or`, `not`, `in`, comparisons in a chain, `assert`.

Python decides a condition that is a Python value. One that is a tensor is recorded, if the capture
records control flow: see `branches.py` and `repeat.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from weft.base.source import SourceLocation, user_location
from weft.capture.from_source.attempt import State
from weft.capture.from_source.branches import record_if
from weft.capture.from_source.dynamic_list import dynamic_list_of
from weft.capture.from_source.run import standing_for
from weft.capture.watch.texts import TextParts
from weft.core.number import HELD_AS, Number, as_held
from weft.core.tensor import Tensor
from weft.ops.effects import CHECK, Message
from weft.ops.elementwise import logical_and, logical_or
from weft.record.control.branches import truth
from weft.record.control.nested import known_number
from weft.record.effects import effect, templated

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks

Part = Callable[[], Any]


def predicate(test: Any, name: str = "if") -> Tensor:
    """The truth of a tensor or number, or of a list of the graph, as a tensor."""
    dynamic = dynamic_list_of(test)
    if dynamic is not None:
        test = dynamic.length() > 0
    made: Tensor = truth(as_held(test, test.dtype) if isinstance(test, Number) else test, name)
    return made


def if_(
    hooks: Hooks,
    test: Any,
    then: Part,
    otherwise: Part | None,
    variables: Part | None,
    live: Sequence[str],
) -> None:
    if not hooks.decides(test):
        holds = hooks.test(test)
        hooks.watch.notes.decide(holds)
        if holds:
            then()
        elif otherwise is not None:
            otherwise()
        return
    state = hooks.cells(variables)
    other = otherwise or _nothing_at(user_location(), then)
    sides = [side(hooks, function, state) for function in (then, other)]
    cells = frozenset(id(cell) for _, cell, _ in state)
    record_if(hooks, predicate(test), sides, live, cells, may_ask=test.__class__ is Number)


def side(hooks: Hooks, function: Part, state: State) -> Any:
    """One side of an `if`; its shared variables are noted in the journal first."""

    def run() -> Any:
        for name, cell, outside in state:
            hooks.flow.save_variable(cell, name, outside)
        return function()

    return standing_for(run, function)


def choose(hooks: Hooks, test: Any, yes: Part, no: Part) -> Any:
    """yes if test else no"""
    if not hooks.decides(test):
        holds = hooks.test(test)
        hooks.watch.notes.decide(holds)
        return yes() if holds else no()
    return _chosen(hooks, test, [yes, no], (yes, no))


def _chosen(hooks: Hooks, value: Any, sides: Sequence[Any], parts: Sequence[Any]) -> Any:
    """The value of one of two expressions, with the variables that `:=` in `parts` binds."""
    state = [entry for part in parts for entry in _bound_by(hooks, part)]
    test, may_ask = predicate(value), value.__class__ is Number
    if not state:
        return record_if(hooks, test, sides, (), may_ask=may_ask)
    cells = frozenset(id(cell) for _, cell, _ in state)
    names = tuple(name for name, _, _ in state)
    sides = [side(hooks, part, state) for part in sides]
    return record_if(hooks, test, sides, names, cells, may_ask=may_ask)


def _bound_by(hooks: Hooks, part: Any) -> State:
    return hooks.cells(part) if ".__weft_part_" in part.__code__.co_qualname else []


def join(
    hooks: Hooks, value: Any, rest: Sequence[Part], all_of: bool, only_truth: bool = False
) -> Any:
    """a and b, a or b: the value, or only its truth, as a condition."""
    for i, more in enumerate(rest):
        if hooks.decides(value):
            return _joined(hooks, value, rest[i:], all_of, only_truth)
        if hooks.test(value) is not all_of:
            return not all_of if only_truth else value
        value = more()
    return value


def _joined(hooks: Hooks, value: Any, rest: Sequence[Part], all_of: bool, only_truth: bool) -> Any:
    """The same where the graph decides whether the rest is evaluated."""

    def goes_on() -> Any:
        last = join(hooks, rest[0](), rest[1:], all_of, only_truth)
        if not only_truth:
            return last
        return known_number(predicate(last)) if hooks.decides(last) else hooks.test(last)

    sides = [goes_on, lambda: not all_of if only_truth else value]
    sides = [standing_for(part, rest[0]) for part in (sides if all_of else sides[::-1])]
    return _chosen(hooks, value, sides, rest)


def chain(hooks: Hooks, symbols: Sequence[str], left: Any, right: Any, *rest: Part) -> Any:
    """a < b < c, where c is evaluated only if a < b"""
    first = hooks.compare(symbols[0], left, right)
    if not rest:
        return first
    more = standing_for(lambda: chain(hooks, symbols[1:], right, rest[0](), *rest[1:]), rest[0])
    return join(hooks, first, [more], True)


def contains(hooks: Hooks, value: Any, container: Any) -> Any:
    """value in container, if the graph decides it; None if Python does."""
    if hooks.asks(container):
        return known_number((container == value).any())
    hashed = isinstance(container, (set, frozenset, dict))
    if not hooks.asks(value) or (hashed and not isinstance(value, Number)):
        return None  # sets find tensors by their identity
    if not hashed and not isinstance(container, (list, tuple, range)):
        return None
    if isinstance(container, range):
        if container.step != 1:
            return None
        above, below = value >= container.start, value < container.stop
        return known_number(logical_and(_bool(above), _bool(below)))
    found: Any = False
    for part in hooks.iter(container):
        if part is value:
            return True
        equal = hooks.compare("==", part, value)
        found = equal if found is False else logical_or(_bool(found), _bool(equal))
    return found if found is False else known_number(_bool(found))


def _bool(value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        return as_held(bool(value), HELD_AS["bool"])
    return predicate(value, "in")


def check(hooks: Hooks, test: Any, message: Part | None) -> None:
    if not hooks.decides(test):
        if not hooks.test(test):
            raise AssertionError(*(() if message is None else (_settled(message()),)))
        return
    tensors: list[Tensor] = []
    parts = () if message is None else (message(),)
    build = templated(parts, tensors)
    effect(CHECK, [predicate(test), *tensors], {"message": Message(build, user_location())})


def _nothing_at(place: SourceLocation | None, like: Any) -> Part:
    """An empty `else`; errors name the line of the `if`."""

    def nothing() -> None:
        pass

    made: Part = standing_for(nothing, like)
    if place is not None:
        nothing.__code__ = nothing.__code__.replace(co_firstlineno=place.line)
    return made


def _settled(value: Any) -> Any:
    return str(value) if isinstance(value, TextParts) else value
