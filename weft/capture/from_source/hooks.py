"""The hooks of source capture: what control flow does is decided here, when the code runs.

A condition that is a Python value is Python's own business. One that is a tensor is recorded: see
`branches.py` and `repeat.py`.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft.base.errors import CaptureError
from weft.base.source import SourceLocation, user_location
from weft.capture.control.branches import truth
from weft.capture.control.nested import graph_recorder, known_number
from weft.capture.convert.structured import Structured
from weft.capture.from_source import repeat
from weft.capture.from_source.access import Access
from weft.capture.from_source.branches import record_if
from weft.capture.from_source.endless_recursion import endless_recursion
from weft.capture.from_source.merge import Maybe, undefined
from weft.capture.from_source.run import Flow, Unreachable, is_own, standing_for
from weft.capture.from_source.tokens import effect, templated, token_of
from weft.capture.from_source.under_transforms import leveled
from weft.capture.watch.effects import TextParts
from weft.capture.watch.origin import MISSING
from weft.capture.watch.watch import Watch
from weft.core.number import HELD_AS, Number, as_held
from weft.core.tensor import Tensor
from weft.ops.effects import CHECK, Message, Raised
from weft.ops.elementwise import logical_and, logical_not, logical_or

#: What records branches and loops.
_RECORDS = (record_if.__code__, repeat.record_while.__code__)


class SourceWatch(Watch):
    """One run, whose control flow may become part of the graph."""

    def __init__(self, tensors: Any = None) -> None:
        super().__init__(tensors)
        self.flow = Flow(self)

    def run(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return super().run(fn, args, kwargs)
        except Unreachable:
            return None  # the graph raises before it comes to the end
        except CaptureError:
            raise
        except RecursionError as error:
            endless = endless_recursion(error, _RECORDS)
            if endless is None:
                raise
            raise endless from None
        except Exception as error:
            here = graph_recorder()
            if here is None or token_of(here) is None or is_own(error):
                raise
            self.flow.fail(error)  # after the effects that come before it
            return None

    def refuse(self, reason: str) -> None:
        if " cannot be watched: " in reason:  # it has no source, or holds what cannot be converted
            raise CaptureError(
                reason.replace("watched", "converted"),
                hint="define it in a file, in plain Python; or call it through weft.py_call",
            )
        super().refuse(reason)

    def touch(self, obj: Any) -> None:
        if not isinstance(obj, (Tensor, type, types.ModuleType)):
            self.flow.touch(obj)

    def born(self, obj: Any) -> None:
        self.flow.born(obj)


class SourceHooks(Access):
    """The hooks of one function in one run."""

    transformer = Structured

    # --- names --------------------------------------------------------------------------------

    def value(self, value: Any, _name: str = "") -> Any:
        """A name is read that has a value for certain."""
        if value.__class__ is Maybe:
            if value.value is MISSING:
                raise undefined("a name", value.why)
            return value.value
        return value

    def local(self, read: Callable[[], Any], name: str) -> Any:
        """A variable of the function itself is read, which may not have been given a value."""
        try:
            return read()
        except NameError:
            message = (
                f"cannot access local variable {name!r} where it is not associated with a value"
            )
            raise UnboundLocalError(message) from None

    def defined(self, value: Any, name: str) -> Any:
        """A name is read that some ways leave without a value."""
        if value.__class__ is not Maybe:
            return value
        if value.flag is None or not self.asks(value.flag):
            raise undefined(f"the variable {name!r}", value.why)
        error = Raised(UnboundLocalError(f"the variable {name!r} has no value {value.why}"))
        effect(CHECK, [self.predicate(value.flag)], {"message": error})
        return value.value

    def cells(self, cells: Callable[[], Any] | None) -> list[tuple[str, Any, Any]]:
        """The variables that some generated functions share: name, cell, hooks if from outside."""
        if cells is None:
            return []
        found = []
        for name, cell in zip(cells.__code__.co_freevars, cells.__closure__ or (), strict=True):
            known = self._cells.get(name)
            found.append((name, cell, self if known is not None and known[0] is cell else None))
        return found

    # --- control flow -------------------------------------------------------------------------

    def for_transform(self, function: Any) -> Any:
        return leveled(self, function) if callable(function) else function

    def if_(
        self,
        test: Any,
        then: Callable[[], Any],
        otherwise: Callable[[], Any] | None,
        variables: Callable[[], Any] | None,
        live: Sequence[str],
    ) -> None:
        if not self.asks(test):
            holds = self.test(test)
            self.watch.notes.decide(holds)
            if holds:
                then()
            elif otherwise is not None:
                otherwise()
            return
        state = self.cells(variables)
        other = otherwise or _nothing_at(user_location(), then)
        sides = [self._side(function, state) for function in (then, other)]
        cells = frozenset(id(cell) for _, cell, _ in state)
        record_if(self, self.predicate(test), sides, live, cells)

    def _side(self, function: Callable[[], Any], state: list[tuple[str, Any, Any]]) -> Any:
        def run() -> Any:
            for name, cell, outside in state:
                self.flow.touch_variable(cell, name, outside)
            return function()

        return standing_for(run, function)

    def predicate(self, test: Tensor) -> Tensor:
        made: Tensor = truth(as_held(test, test.dtype) if isinstance(test, Number) else test, "if")
        return made

    def choose(self, test: Any, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
        """yes if test else no"""
        if not self.asks(test):
            holds = self.test(test)
            self.watch.notes.decide(holds)
            return yes() if holds else no()
        return self._chosen(self.predicate(test), [yes, no], (yes, no))

    def _chosen(self, predicate: Tensor, sides: Sequence[Any], parts: Sequence[Any]) -> Any:
        """What one of two expressions gives, with the variables that `:=` in `parts` binds."""
        state = [entry for part in parts for entry in self._bound_by(part)]
        if not state:
            return record_if(self, predicate, sides, ())
        cells = frozenset(id(cell) for _, cell, _ in state)
        names = tuple(name for name, _, _ in state)
        whole = [self._side(side, state) for side in sides]
        return record_if(self, predicate, whole, names, cells)

    def _bound_by(self, part: Any) -> list[tuple[str, Any, Any]]:
        return self.cells(part) if ".__weft_part_" in part.__code__.co_qualname else []

    def and_(self, first: Any, *rest: Callable[[], Any]) -> Any:
        value = first
        for i, more in enumerate(rest):
            if self.asks(value):
                return self._joined(value, rest[i:], all_of=True)
            if not self.test(value):
                return value
            value = more()
        return value

    def or_(self, first: Any, *rest: Callable[[], Any]) -> Any:
        value = first
        for i, more in enumerate(rest):
            if self.asks(value):
                return self._joined(value, rest[i:], all_of=False)
            if self.test(value):
                return value
            value = more()
        return value

    def _joined(self, value: Any, rest: Sequence[Callable[[], Any]], all_of: bool) -> Any:
        """a and b: b where a is true, otherwise a itself."""
        join = self.and_ if all_of else self.or_
        more = standing_for(lambda: join(rest[0](), *rest[1:]), rest[0])
        kept = standing_for(lambda: value, rest[0])
        sides = [more, kept] if all_of else [kept, more]
        return self._chosen(self.predicate(value), sides, rest)

    def all_of(self, first: Any, *rest: Callable[[], Any]) -> Any:
        """a and b, of which only the truth is asked."""
        return self._truths(first, rest, True)

    def any_of(self, first: Any, *rest: Callable[[], Any]) -> Any:
        return self._truths(first, rest, False)

    def _truths(self, value: Any, rest: Sequence[Callable[[], Any]], all_of: bool) -> Any:
        for i, more in enumerate(rest):
            if self.asks(value):
                here = self.predicate(value)
                left = rest[i:]
                later = standing_for(lambda: self._truth_of(left, all_of), more)  # noqa: B023
                fixed = standing_for(lambda: not all_of, more)
                sides = [later, fixed] if all_of else [fixed, later]
                return self._chosen(here, sides, rest)
            if self.test(value) is not all_of:
                return not all_of
            value = more()
        return value

    def _truth_of(self, rest: Sequence[Callable[[], Any]], all_of: bool) -> Any:
        value = self._truths(rest[0](), rest[1:], all_of)
        if self.asks(value):
            return known_number(self.predicate(value))
        return self.test(value)

    def not_(self, value: Any) -> Any:
        if not self.asks(value):
            return not self.test(value)
        return known_number(logical_not(self.predicate(value)))

    def chain(self, symbols: Sequence[str], left: Any, right: Any, *rest: Any) -> Any:
        """a < b < c, where c is evaluated only if a < b"""
        first = self.compare(symbols[0], left, right)
        if not rest:
            return first
        more = standing_for(lambda: self._chained(symbols[1:], right, rest), rest[0])
        return self.and_(first, more)

    def _chained(self, symbols: Sequence[str], left: Any, rest: Sequence[Any]) -> Any:
        return self.chain(symbols, left, rest[0](), *rest[1:])

    def compare(self, symbol: str, a: Any, b: Any) -> Any:
        if symbol in ("in", "not in"):
            found = self._contains(a, b)
            if found is not None:
                return found if symbol == "in" else self.not_(found)
        if symbol in ("is", "is not"):
            return self.flow.mixed.same(a, b) is (symbol == "is")
        return super().compare(symbol, a, b)

    def _contains(self, value: Any, container: Any) -> Any:
        if self.asks(container):
            return known_number((container == value).any())
        hashed = isinstance(container, (set, frozenset, dict))
        if not self.asks(value) or (hashed and not isinstance(value, Number)):
            return None  # sets find tensors by their identity
        if not hashed and not isinstance(container, (list, tuple, range)):
            return None
        if isinstance(container, range):
            ahead = value >= container.start, value < container.stop
            if container.step != 1:
                return None
            return self._both(*ahead)
        found: Any = False
        for part in self.iter(container):
            if part is value:
                return True
            equal = self.compare("==", part, value)
            found = equal if found is False else logical_or(_bool(found), _bool(equal))
        return found if found is False else known_number(_bool(found))

    def _both(self, a: Any, b: Any) -> Any:
        return known_number(logical_and(_bool(a), _bool(b)))

    def while_(
        self,
        test: Callable[[], Any],
        body: Callable[[], Any],
        cells: Callable[[], Any] | None,
        head: Sequence[str],
        after: Sequence[str],
    ) -> None:
        repeat.while_(self, test, body, self.cells(cells), head, after)

    def for_(
        self,
        iterable: Any,
        body: Callable[[Any], Any],
        going: Callable[[], Any] | None,
        cells: Callable[[], Any] | None,
        head: Sequence[str],
        after: Sequence[str],
    ) -> None:
        repeat.for_(self, iterable, body, going, self.cells(cells), head, after)

    def assert_(self, test: Any, message: Callable[[], Any] | None) -> None:
        if not self.asks(test):
            if not self.test(test):
                raise AssertionError(*(() if message is None else (_settled(message()),)))
            return
        tensors: list[Tensor] = []
        parts = () if message is None else (message(),)
        build = templated(parts, tensors)
        predicate = self.predicate(test)
        effect(CHECK, [predicate, *tensors], {"message": Message(build, user_location())})

    @contextlib.contextmanager
    def trying(self) -> Iterator[None]:
        self.flow.tries += 1
        try:
            yield
        finally:
            self.flow.tries -= 1


SourceWatch.hooks_class = SourceHooks


def _nothing_at(place: SourceLocation | None, like: Any) -> Callable[[], None]:
    """The side of an `if` that is not there: errors name the line of the `if`."""

    def nothing() -> None:
        pass

    made: Callable[[], None] = standing_for(nothing, like)
    if place is not None:
        nothing.__code__ = nothing.__code__.replace(co_firstlineno=place.line)
    return made


def _settled(value: Any) -> Any:
    return str(value) if isinstance(value, TextParts) else value


def _bool(value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        return as_held(bool(value), HELD_AS["bool"])
    made: Tensor = truth(as_held(value, value.dtype) if isinstance(value, Number) else value, "in")
    return made
