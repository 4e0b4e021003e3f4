"""The cards of effects: what a graph does besides computing results, in program order.

The first operand and the first result of an effect are tokens. `token` makes the first token.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from weft.base.errors import DTypeError
from weft.base.pytree import TreeSpec, tree_flatten
from weft.base.source import SourceLocation
from weft.core.tensor import Tensor, wrap
from weft.ir.attributes import attr_key
from weft.ir.op import Op, Trait
from weft.ir.types import TOKEN, TensorType, TokenType

__all__: list[str] = []


class Done(threading.local):
    """Which effects of a call have been done already: its beginning may run more than once.

    A call that finds on the way that nothing is recorded for it is recorded, and then run from the
    start. Effects are ordered, so each is identified by its number.

    given     their results, by number; None outside of such a call, where all effects are done
    next      the number of the next one
    calls     the results of calls back into Python, in order
    again     those that a call has made already, where it is run by Python after all
    waiting   whether effects that only show or check are skipped, while a recording computes a
              value that Python asks for
    back      what sets back the generators of Python's that a call has drawn from
    later     what is to be shown as soon as the call is sure to have a path; None: it is shown
              at once
    """

    given: dict[int, Any] | None = None
    next = 0
    calls: Sequence[Any] = ()
    again: Sequence[Any] = ()
    back: dict[Any, Callable[[], object]] | None = None
    waiting = False
    later: list[tuple[int, Callable[[], None]]] | None = None


done = Done()


def begin_call() -> Any:
    """From now on no effect is done twice; a run that starts again sets `done.next` to 0."""
    outer = done.given, done.next, done.calls, done.back
    done.given, done.next, done.calls, done.back = {}, 0, [], {}
    return outer


def end_call(outer: Any) -> tuple[Sequence[Any], Iterable[Callable[[], object]]]:
    """End the call; `outer` is what `begin_call` returned. Gives what Python was called for, and
    what sets back the generators that it drew from."""
    made = done.calls, [*(done.back or {}).values()]
    done.given, done.next, done.calls, done.back = outer
    return made


def set_back(state: Callable[[], Callable[[], object]]) -> None:
    """Note the state of a generator before a call draws from it: `state` returns what sets it
    back."""
    if done.back is not None and state not in done.back:
        done.back[state] = state()


@contextlib.contextmanager
def called_before(calls: Sequence[Any]) -> Iterator[None]:
    """A context in which the first calls back into Python give what they have given."""
    before, done.again = done.again, calls
    try:
        yield
    finally:
        done.again = before


def call_once(call: Callable[[], Any]) -> Any:
    """A call back into Python where nothing is recorded."""
    if not done.again:
        return call()
    first, *done.again = done.again
    return first


@contextlib.contextmanager
def silently() -> Iterator[None]:
    """A context in which effects show, check and raise nothing."""
    before, done.waiting = done.waiting, True
    try:
        yield
    finally:
        done.waiting = before


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """A context in which effects are done without being counted."""
    given, done.given = done.given, None
    try:
        yield
    finally:
        done.given = given


@contextlib.contextmanager
def showing_later() -> Iterator[None]:
    """A context that shows nothing before `show_now`, an error, or a call of Python; what is never
    shown does not count as done."""
    before, done.later = done.later, []
    try:
        yield
    except Exception:
        show_now()
        raise
    finally:
        done.later = before


def show_now() -> None:
    """Show what was to be shown later."""
    acts, done.later = done.later, None
    for number, act in acts or ():
        act()
        if done.given is not None:
            done.given[number] = None


def _once(
    act: Callable[[], Any], *, may_wait: bool = True, shows: bool = False, silent: bool = False
) -> Any:
    """Do the next effect, or return its earlier result.

    may_wait   whether it only shows or checks something
    shows      whether it may be done later, but in order
    silent     whether nobody can see it, so that it may be done before those
    """
    given = done.given
    if given is None:
        return None if done.waiting and may_wait else act()
    number = done.next
    done.next = number + 1
    if number in given:
        return given[number]
    if done.waiting and may_wait:
        return None
    if shows and done.later is not None:
        done.later.append((number, act))
        return None
    if not silent:
        show_now()
    waiting, done.waiting = done.waiting, False
    try:
        with apart():  # graphs that it runs have effects of their own
            made = given[number] = act()
    finally:
        done.waiting, done.next = waiting, number + 1
    return made


def _token_type() -> TokenType:
    return TOKEN


def _shown_type(token: Any, *values: TensorType, show: Any) -> TokenType:
    return TOKEN


def _show(_run: Any, token: Any, *values: Any, show: Callable[..., None]) -> Any:
    kept = values if done.later is None else _kept(values)
    _once(lambda: show(*kept), shows=True)
    return ((),)


def _checked_type(
    token: Any, predicate: TensorType, *values: TensorType, message: Any
) -> TokenType:
    return TOKEN


def _check(_run: Any, token: Any, predicate: Any, *values: Any, message: Any) -> Any:
    def check() -> None:
        if not bool(predicate):
            raise message(*values)

    _once(check, silent=done.later is not None and bool(predicate))
    return ((),)


def _failed_type(token: Any, *values: TensorType, error: Any) -> TokenType:
    return TOKEN


def _fail(_run: Any, token: Any, *values: Any, error: Callable[..., BaseException]) -> Any:
    def fail() -> None:
        raise error(*values)

    _once(fail)
    return ((),)


def _called_type(
    token: Any, *values: TensorType, function: Any, results: Sequence[TensorType]
) -> tuple[Any, ...]:
    return (TOKEN, *results)


def _call(_run: Any, token: Any, *values: Any, function: Any, results: Any) -> Any:
    counts = done.given is not None

    def call() -> Any:
        made = function(*values)
        if counts:
            done.calls = [*done.calls, made]
        return made

    return ((), *_once(call, may_wait=False))


_EFFECT = Trait.EFFECT | Trait.STACK | Trait.PYTHON

FIRST_TOKEN = Op("token", _token_type, lambda run: ((),), traits=Trait.STACK)
SHOW = Op("print", _shown_type, _show, traits=_EFFECT, says="prints")
CHECK = Op("assert", _checked_type, _check, traits=_EFFECT, says="raises where it does not hold")
FAIL = Op("raise", _failed_type, _fail, traits=_EFFECT, says="raises")
PY_CALL = Op("py_call", _called_type, _call, vjp=(), traits=_EFFECT, says="calls {name}")


def value_key(value: Any, depth: int = 2) -> Hashable:
    """A key by which the Python values in effects of two recordings are compared.

    Immutable values are compared by value, functions by their code and closure (some levels deep),
    everything else by identity. Whoever makes a key keeps the value alive.
    """
    kind = type(value)
    if kind in _PLAIN:
        return attr_key(value)
    if kind is tuple:
        return kind, tuple([value_key(part, depth) for part in value])
    if kind is FunctionType and depth:
        named = value.__kwdefaults__ or {}
        given = (_closed_over(value), value.__defaults__, tuple(named.items()))
        return kind, value.__code__, value_key(given, depth - 1)
    return value if isinstance(value, Same) else ("at", id(value))


_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})


def _closed_over(function: FunctionType) -> tuple[Any, ...]:
    """The closure of a function, without what a capture puts there anew each time."""
    held: list[Any] = []
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if not name.startswith("__weft"):
            with contextlib.suppress(ValueError):  # it has no value yet
                held += [name, cell.cell_contents]
    return tuple(held)


class Same:
    """An attribute of an effect; equal to one that does the same in another recording."""

    def __init__(self, *parts: Any) -> None:
        self.key = parts

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)


class Template(Same):
    """Rebuilds a Python value with tensors in it from the values of these.

    key   says what it makes
    """

    def __init__(self, build: Callable[[Sequence[Tensor]], Any], key: Hashable) -> None:
        super().__init__(key)
        self.build = build

    def __call__(self, values: Sequence[Tensor]) -> Any:
        return self.build(values)


class Shown(Same):
    """print(...) with tensors in it, made anew from their values."""

    def __init__(self, function: Any, build: Callable[..., Any], kwargs: dict[str, Any]) -> None:
        super().__init__(value_key(function), build, value_key(tuple(kwargs.items())))
        self.function = function
        self.build = build
        self.kwargs = kwargs

    def __call__(self, *values: Tensor) -> None:
        self.function(*self.build(_kept(values)), **self.kwargs)

    def __repr__(self) -> str:
        return f"<{getattr(self.function, '__name__', 'call')}>"


def _kept(values: Sequence[Tensor]) -> list[Tensor]:
    """Values that the user's code may keep: those in the memory of a native run are copied."""
    return [
        wrap(x._data.copy()) if isinstance(x._data, np.ndarray) and x._data.base is not None else x
        for x in values
    ]


class Raised(Same):
    """An error that a branch of the graph raises when it is taken."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(type(error), value_key(error.args))
        self.error = error

    def __call__(self, *values: Tensor) -> BaseException:
        error = self.error
        try:
            made: BaseException = type(error)(*error.args)
            made.__dict__.update(error.__dict__)
        except Exception:
            made = error
        return made.with_traceback(None)

    def __repr__(self) -> str:
        return f"<{type(self.error).__name__}>"


class Message(Same):
    """The error of an assert that does not hold, with the values of the run."""

    def __init__(self, build: Callable[..., Any], location: SourceLocation | None) -> None:
        super().__init__(build, location)
        self.build = build
        self.location = location

    def __call__(self, *values: Tensor) -> AssertionError:
        error = AssertionError(*self.build(values))
        error.add_note(f"  at {self.location}")
        return error

    def __repr__(self) -> str:
        return "<message>"


class Called(Same):
    """A call back into Python; its results are checked against the declared types."""

    def __init__(
        self,
        function: Callable[..., Any],
        build: Callable[..., Any],
        kinds: tuple[TensorType, ...],
        structure: TreeSpec,
        asarray: Callable[..., Tensor],
    ) -> None:
        super().__init__(value_key(function), build, kinds, structure)
        self.function = function
        self.build = build
        self.kinds = kinds
        self.structure = structure
        self.asarray = asarray

    def __call__(self, *values: Tensor) -> list[Tensor]:
        leaves, structure = tree_flatten(self.function(*self.build(_kept(values))))
        if structure != self.structure:
            raise DTypeError(
                f"{self!r} gave {structure}, and {self.structure} was said", op="py_call"
            )
        made: list[Tensor] = []
        for leaf, kind in zip(leaves, self.kinds, strict=True):
            known = isinstance(leaf, (Tensor, np.ndarray, np.generic))
            tensor = self.asarray(leaf) if known else self.asarray(leaf, dtype=kind.dtype)
            if tensor.type != kind:
                raise DTypeError(f"{self!r} gave {tensor.type}, and {kind} was said", op="py_call")
            made.append(wrap(tensor._data))
        return made

    def __repr__(self) -> str:
        return f"<{getattr(self.function, '__name__', 'function')}>"


class Drawn(Called):
    """A call that gives another number each time: of a clock, or a random one.

    name    how the function is called in errors
    clock   its operands only say what comes before
    """

    def __init__(self, name: str, clock: bool, *called: Any) -> None:
        super().__init__(*called)
        self.name = name
        self.clock = clock

    def __call__(self, *values: Tensor) -> list[Tensor]:
        return super().__call__(*(() if self.clock else values))


def drawn_by(value: Any) -> str:
    """The name of a function whose numbers a value of a graph is computed of; "" if there is none:
    see `Drawn`."""
    seen, waiting = set(), [value]
    while waiting:
        node = waiting.pop().node
        if node is None or node in seen:
            continue
        seen.add(node)
        function = node.attrs.get("function")
        if isinstance(function, Drawn):
            return function.name
        if node.op is not PY_CALL:
            waiting += node.inputs
    return ""
