"""The hooks of source capture: what control flow does is decided here, when the code runs.

A condition that is a Python value is Python's own business. One that is a tensor is recorded: see
`branches.py` and `repeat.py`.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base.errors import CaptureError
from weft.base.source import user_location
from weft.capture import operators, repeat
from weft.capture.branches import record_if
from weft.capture.control import truth
from weft.capture.effects import TextParts
from weft.capture.follow import LIBRARY, module_of, policy
from weft.capture.grown import grown_of, settle
from weft.capture.hooks import Hooks
from weft.capture.journal import Globals
from weft.capture.merge import Maybe, undefined
from weft.capture.nested import graph_recorder, known_number
from weft.capture.origin import MISSING
from weft.capture.source_builtins import BUILTINS
from weft.capture.source_flow import Flow, standing_for
from weft.capture.structured import Structured
from weft.capture.tokens import effect, py_call_like, templated
from weft.capture.values import CONTAINERS
from weft.capture.watch import Watch
from weft.core.number import HELD_AS, Number, as_held, kind_of, plain
from weft.core.tensor import Tensor
from weft.ops.effects import CHECK, Message, Raised
from weft.ops.elementwise import logical_and, logical_not, logical_or

if TYPE_CHECKING:
    from weft.capture.recorder import GraphRecorder

#: Methods of containers that change them.
WRITING = frozenset(
    {
        *("append", "appendleft", "extend", "extendleft", "insert", "pop", "popleft", "popitem"),
        *("remove", "clear", "sort", "reverse", "rotate", "add", "discard", "update", "setdefault"),
        *("__setitem__", "__delitem__", "__iadd__", "__imul__", "__ior__", "__iand__", "__isub__"),
        *("__ixor__", "difference_update", "intersection_update", "symmetric_difference_update"),
        *("move_to_end", "fill", "put", "resize", "partition", "itemset"),
    }
)


class SourceWatch(Watch):
    """One run, whose control flow may become part of the graph."""

    def __init__(self, tensors: Any = None) -> None:
        super().__init__(tensors)
        self.flow = Flow(self)

    def touch(self, obj: Any) -> None:
        if not isinstance(obj, (Tensor, type, types.ModuleType)):
            self.flow.touch(obj)


class SourceHooks(Hooks):
    """The hooks of one function in one run."""

    transformer = Structured
    watch: SourceWatch

    @property
    def flow(self) -> Flow:
        return self.watch.flow

    def asks(self, value: Any) -> bool:
        """Whether a condition becomes part of the graph: it is a tensor, and a graph is made."""
        return isinstance(value, Tensor) and self.watch.active and graph_recorder() is not None

    # --- names --------------------------------------------------------------------------------

    def value(self, value: Any) -> Any:
        """A name is read that has a value for certain."""
        if value.__class__ is Maybe:
            if value.value is MISSING:
                raise undefined("a name", value.why)
            return value.value
        return value

    def defined(self, value: Any, name: str) -> Any:
        """A name is read that some ways leave without a value."""
        if value.__class__ is not Maybe:
            return value
        if value.flag is None or not self.asks(value.flag):
            raise undefined(f"the variable {name!r}", value.why)
        error = Raised(UnboundLocalError(f"the variable {name!r} has no value {value.why}"))
        effect(CHECK, [self.predicate(value.flag)], {"message": error})
        return value.value

    def setcell(self, value: Any, cell: Callable[[], Any]) -> Any:
        """A variable of a converted function around is about to get a value."""
        closure = cell.__closure__ or ()
        for name, held in zip(cell.__code__.co_freevars, closure, strict=True):
            self.flow.touch_variable(held, name)
        return value

    def setfree(self, name: str, value: Any) -> Any:
        self.flow.touch_variable(self._cells[name][0], name, self)
        return super().setfree(name, value)

    def setglobal(self, name: str, value: Any) -> Any:
        self.flow.touch_entry(Globals(self.globals, self))
        return super().setglobal(name, value)

    def delglobal(self, name: str) -> None:
        self.flow.touch_entry(Globals(self.globals, self))
        super().delglobal(name)

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

    def if_(
        self,
        test: Any,
        then: Callable[[], Any],
        otherwise: Callable[[], Any] | None,
        variables: Callable[[], Any] | None,
        live: Sequence[str],
    ) -> None:
        if not self.asks(test):
            if self.test(test):
                then()
            elif otherwise is not None:
                otherwise()
            return
        state = self.cells(variables)
        sides = [self._side(function, state) for function in (then, otherwise or _nothing)]
        cells = frozenset(id(cell) for _, cell, _ in state)
        record_if(self, self.predicate(test), sides, live, cells)

    def _side(self, function: Callable[[], Any], state: list[tuple[str, Any, Any]]) -> Any:
        def run() -> None:
            for name, cell, outside in state:
                self.flow.touch_variable(cell, name, outside)
            function()

        return standing_for(run, function)

    def predicate(self, test: Tensor) -> Tensor:
        made: Tensor = truth(as_held(test, test.dtype) if isinstance(test, Number) else test, "if")
        return made

    def choose(self, test: Any, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
        """yes if test else no"""
        if not self.asks(test):
            return yes() if self.test(test) else no()
        return record_if(self, self.predicate(test), [yes, no], ())

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
        return record_if(self, self.predicate(value), sides, ())

    def all_of(self, first: Any, *rest: Callable[[], Any]) -> Any:
        """a and b, of which only the truth is asked."""
        return self._truths(first, rest, True)

    def any_of(self, first: Any, *rest: Callable[[], Any]) -> Any:
        return self._truths(first, rest, False)

    def _truths(self, value: Any, rest: Sequence[Callable[[], Any]], all_of: bool) -> Any:
        for i, more in enumerate(rest):
            if self.asks(value):
                here = self.predicate(value)
                later = standing_for(lambda: self._truth_of(rest[i:], all_of), more)
                fixed = standing_for(lambda: not all_of, more)
                sides = [later, fixed] if all_of else [fixed, later]
                return record_if(self, here, sides, ())
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
        return self.and_(first, standing_for(lambda: self._chained(symbols[1:], right, rest), rest[0]))

    def _chained(self, symbols: Sequence[str], left: Any, rest: Sequence[Any]) -> Any:
        return self.chain(symbols, left, rest[0](), *rest[1:])

    def compare(self, symbol: str, a: Any, b: Any) -> Any:
        if symbol in ("in", "not in"):
            found = self._contains(a, b)
            if found is not None:
                return found if symbol == "in" else self.not_(found)
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

    # --- reads and writes ---------------------------------------------------------------------

    def attr(self, obj: Any, name: str) -> Any:
        if self.flow.poisoned:
            self.flow.check(obj)
        found = super().attr(obj, name)
        if found.__class__ is Maybe:
            raise undefined(f"the attribute {name!r}", found.why)
        return found

    def key(self, value: Any) -> Any:
        if value.__class__ is Number:
            return value_of(value)
        return super().key(value)

    def item(self, obj: Any, key: Any) -> Any:
        if self.flow.poisoned:
            self.flow.check(obj)
        if key.__class__ is Number and isinstance(obj, dict):
            key = value_of(key)
        grown = grown_of(obj)
        if grown is not None:
            if isinstance(key, (int, Tensor)):
                return grown.item(key)
            self.settled(obj)
        return super().item(obj, key)

    def settled(self, items: list[Any]) -> None:
        """Python needs a list itself, whose length the graph decides: it asks for that."""
        self.flow.touch(items)
        settle(items)

    def setitem(self, value: Any, obj: Any, key: Any) -> None:
        if grown_of(obj) is not None:
            self.settled(obj)
        if key.__class__ is Number and isinstance(obj, dict):
            key = value_of(key)
        if isinstance(obj, (*CONTAINERS, np.ndarray)):
            self.flow.touch(obj)
        super().setitem(value, obj, key)

    def delitem(self, obj: Any, key: Any) -> None:
        if grown_of(obj) is not None:
            self.settled(obj)
        if isinstance(obj, CONTAINERS):
            self.flow.touch(obj)
        super().delitem(obj, key)

    def inplace(self, symbol: str, a: Any, b: Any) -> Any:
        for part in (a, b):
            if grown_of(part) is not None:
                self.settled(part)
        if isinstance(a, (*CONTAINERS, np.ndarray)):
            self.flow.touch(a)
        return super().inplace(symbol, a, b)

    def iter(self, value: Any) -> Any:
        if self.flow.poisoned:
            self.flow.check(value)
        if grown_of(value) is not None:
            self.settled(value)
        return super().iter(value)

    def binary(self, symbol: str, a: Any, b: Any) -> Any:
        for part in (a, b):
            if grown_of(part) is not None:
                self.settled(part)
        return super().binary(symbol, a, b)

    def call(self, /, function: Any, *args: Any, **kwargs: Any) -> Any:
        handler = BUILTINS.get(function) if function.__hash__ is not None else None
        if handler is not None:
            made = handler(self, args, kwargs)
            if made is not NotImplemented:
                return made
        holder = getattr(function, "__self__", None)
        if isinstance(holder, (*CONTAINERS, np.ndarray)) and isinstance(
            function, (types.BuiltinMethodType, types.MethodWrapperType)
        ):
            if self.flow.poisoned:
                self.flow.check(holder)
            grown = grown_of(holder)
            if grown is not None:
                if function.__name__ in ("append", "pop") and len(args) == (
                    function.__name__ == "append"
                ):
                    self.flow.touch(grown)
                    return grown.push(*args) if args else grown.pop()
                self.settled(holder)
            if function.__name__ in WRITING:
                self.flow.touch(holder)
        for value in args:
            if grown_of(value) is not None:
                self.settled(value)
        if is_foreign(function) and any(map(self.asks, (*args, *kwargs.values()))):
            return self.foreign(function, args, kwargs)
        return super().call(function, *args, **kwargs)


    def foreign(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Other people's code is called on tensors."""
        if self.flow.fallback == "python":
            return py_call_like(function, args, kwargs)
        name = f"{module_of(function).partition('.')[0]}.{getattr(function, '__name__', '?')}"
        raise CaptureError(
            f"{name} is called on tensors of the graph, which have no numbers yet",
            op=name,
            hint=f"use the function of Weft; or weft.py_call({name}, weft.spec(...), x), or "
            'weft.compile(..., fallback="python"), which call back into Python',
        )


#: Modules of the library whose functions do not look at tensors, or look as Python itself does.
_HARMLESS = frozenset(
    {
        *("builtins", "operator", "_operator", "functools", "_functools", "itertools", "copy"),
        *("collections", "_collections", "typing", "types", "dataclasses", "contextlib", "enum"),
        *("abc", "_abc", "logging", "warnings", "inspect", "weakref", "threading", "heapq"),
        *("_heapq", "bisect", "_bisect", "", "weft"),
    }
)


def is_foreign(function: Any) -> bool:
    """Whether a function is of the library, and made for numbers."""
    if isinstance(function, types.FunctionType):
        if policy(function.__code__.co_filename) != LIBRARY:
            return False
    elif not isinstance(function, (types.BuiltinFunctionType, np.ufunc, _NUMPY_FUNCTION)):
        return False
    holder = getattr(function, "__self__", None)
    if holder is not None and not isinstance(holder, types.ModuleType):
        return False
    if isinstance(function, np.ufunc):
        return True
    return module_of(function).partition(".")[0] not in _HARMLESS


_NUMPY_FUNCTION = type(np.sum)
SourceWatch.hooks_class = SourceHooks


def value_of(value: Number) -> Any:
    """A number as Python's own: this asks for its value."""
    return plain(value).item()


def _nothing() -> None:
    pass


def _settled(value: Any) -> Any:
    return str(value) if isinstance(value, TextParts) else value


def _bool(value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        return as_held(bool(value), HELD_AS["bool"])
    made: Tensor = truth(as_held(value, value.dtype) if isinstance(value, Number) else value, "in")
    return made


__all__ = ["GraphRecorder", "SourceHooks", "SourceWatch", "kind_of", "operators"]
