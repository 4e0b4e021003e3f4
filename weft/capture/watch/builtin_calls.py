"""Builtin functions in watched code whose reads and calls are known exactly.

The table is `weft.capture.builtin_table`.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import types
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from weft.base.dim_algebra import Dim
from weft.capture.watch import library, operators
from weft.capture.watch.operators import COMPARING
from weft.capture.watch.origin import MISSING
from weft.capture.watch.settled_numbers import settled, settled_call
from weft.capture.watch.values import is_plain
from weft.core.private_state import class_of
from weft.core.tensor import Tensor

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks

#: Called with the hooks and the arguments of the builtin.
Handler = Callable[..., Any]
_NONE: Any = object()  # an argument that was not given


# --- attributes and identity ---------------------------------------------------------------------


def get_attribute(hooks: Hooks, obj: Any, name: str, default: Any = _NONE) -> Any:
    try:
        return hooks.attr(obj, name)
    except AttributeError:
        if default is _NONE:
            raise
        return default


def has_attribute(hooks: Hooks, obj: Any, name: str) -> bool:
    return get_attribute(hooks, obj, name, MISSING) is not MISSING


def variables(hooks: Hooks, obj: Any) -> Any:
    """vars(obj)"""
    return hooks.attr(obj, "__dict__")


def names(hooks: Hooks, *obj: Any) -> list[str]:
    """dir(obj)"""
    hooks.watch.refuse("dir() is asked")
    return dir(*obj)


def hash_of(hooks: Hooks, value: Any) -> int:
    value = settled(value)
    if operators.special(type(value), "__hash__") is not None:
        return hash(operators.call_special(hooks, value, "__hash__"))
    if not is_plain(value):
        _identity_seen(hooks, value, "hash")
    return hash(value)


def id_of(hooks: Hooks, value: Any) -> int:
    _identity_seen(hooks, value, "id")
    return id(value)


def _identity_seen(hooks: Hooks, value: Any, name: str) -> None:
    if hooks.watch.origin_of(value) is not None:
        hooks.watch.identity(value)
    elif not isinstance(value, Tensor) and type(value) is not tuple:
        hooks.watch.refuse(f"{name}() of a {type(value).__name__} that the run made is asked for")


def type_of(hooks: Hooks, *args: Any, **kwargs: Any) -> Any:
    if len(args) == 1 and not kwargs:
        return int if args[0].__class__ is Dim else class_of(args[0])
    made = type(*args, **kwargs)
    hooks.watch.inside_classes[id(made)] = made
    return made


def is_instance(hooks: Hooks, value: Any, wanted: Any) -> bool:
    if isinstance(wanted, tuple):
        hooks.shallow(wanted)
    if operators.special(type(wanted), "__instancecheck__") is not None:
        return hooks.test(operators.call_special(hooks, wanted, "__instancecheck__", value))
    return isinstance(value, wanted)


def replaced(hooks: Hooks, obj: Any, /, **changes: Any) -> Any:
    """dataclasses.replace(obj, **changes)"""
    cls = type(obj)
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    names = [field.name for field in fields if field.init]
    if not names or len(names) < len(fields) or not set(changes) <= set(names):
        return library.run(hooks, dataclasses.replace, (obj,), changes, "replace")
    values = {k: changes[k] if k in changes else hooks.attr(obj, k) for k in names}
    return hooks.call(cls, **values)


# --- values --------------------------------------------------------------------------------------


def truth(hooks: Hooks, value: Any = False) -> bool:
    return hooks.test(value)


def by_method(function: Any, *names: str) -> Handler:
    """abs, int, float…: a method of the user's class where it has one."""

    def handle(hooks: Hooks, *args: Any, **kwargs: Any) -> Any:
        value = args[0] if args else None
        for name in names:
            if operators.special(type(value), name) is not None:
                made = operators.call_special(hooks, value, name, *args[1:])
                # The builtin checks what comes back; abs and round take anything.
                return made if function in (abs, round) else function(made)
        hooks.deep_all(args, kwargs, function.__name__)
        if function is not abs:  # which numbers of a graph have
            args, kwargs = settled_call(args, kwargs)
        return function(*args, **kwargs)

    return handle


def total(hooks: Hooks, values: Iterable[Any], start: Any = 0) -> Any:
    """sum(values, start)"""
    listed = list(hooks.iter(values))
    if not any(map(_adds, (start, *listed))):
        hooks.deep(listed, "sum", ("__add__", "__radd__"))
        return sum(listed, start)  # which adds floats more exactly than a loop does
    for value in listed:
        start = operators.binary(hooks, "+", start, value)
    return start


def _adds(value: Any) -> bool:
    cls = type(value)
    return any(operators.special(cls, name) is not None for name in ("__add__", "__radd__"))


def quantifier(wanted: bool) -> Handler:
    """any: whether one is true; all: that none is false"""
    return lambda hooks, values: any(hooks.test(v) is wanted for v in hooks.iter(values)) is wanted


def comparing(function: Any) -> Handler:
    """sorted, min, max: compare the elements, or their keys."""

    def handle(hooks: Hooks, *args: Any, **kwargs: Any) -> Any:
        if not args:
            return function(*args, **kwargs)
        values = list(hooks.iter(args[0])) if len(args) == 1 else list(args)
        given = kwargs.get("key")
        key = None if given is None else _callable(hooks, given)
        if key is not None or any(map(_has_order, values)):
            kwargs = {**kwargs, "key": lambda v: _Compared(hooks, v if key is None else key(v))}
        else:
            hooks.deep(values, function.__name__, COMPARING)
        return function(values, **kwargs)

    return handle


def _has_order(value: Any) -> bool:
    return any(operators.special(type(value), name) is not None for name in ("__lt__", "__gt__"))


class _Compared:
    """A value whose comparisons are watched, for code that is not rewritten."""

    __slots__ = ("hooks", "value")

    def __init__(self, hooks: Hooks, value: Any) -> None:
        self.hooks = hooks
        self.value = value

    def __lt__(self, other: _Compared) -> Any:
        return self.hooks.test(self.hooks.compare("<", self.value, other.value))

    def __gt__(self, other: _Compared) -> Any:
        return self.hooks.test(self.hooks.compare(">", self.value, other.value))


# --- iteration and calls back --------------------------------------------------------------------


def iterator(hooks: Hooks, value: Any, end: Any = _NONE) -> Any:
    if end is not _NONE:
        return iter(lambda: hooks.call(value), end)
    return iter(hooks.iter(value))


def advance(hooks: Hooks, iterator: Any, *default: Any) -> Any:
    """next(iterator, default)"""
    if operators.special(type(iterator), "__next__") is not None:
        try:
            return operators.call_special(hooks, iterator, "__next__")
        except StopIteration:
            if default:
                return default[0]
            raise
    known = hooks.watch.known(iterator)
    if known is not None:
        hooks.watch.refuse(f"the iterator {known.origin.text} from outside is advanced")
    return next(iterator, *default)


def through(function: Any) -> Handler:
    """A function that iterates over its arguments and passes the elements on."""

    def handle(hooks: Hooks, *args: Any, **kwargs: Any) -> Any:
        values = [hooks.iter(value) if _is_iterable(value) else value for value in args]
        return function(*values, **kwargs)

    return handle


def _is_iterable(value: Any) -> bool:
    """Whether an argument is iterated over: modules that hold others are callable, too."""
    return not callable(value) or hasattr(type(value), "__iter__")


def calling(function: Any, place: int = 0, name: str = "") -> Handler:
    """The same, with a function among the arguments, whose calls are followed."""

    def handle(hooks: Hooks, *args: Any, **kwargs: Any) -> Any:
        values = list(args)
        for i, value in enumerate(args):
            if i == place:
                values[i] = value if value is None else _callable(hooks, value)
            elif function is not functools.reduce or i == 1:
                values[i] = hooks.iter(value)
        named = {k: _callable(hooks, v) if k == name and v else v for k, v in kwargs.items()}
        return function(*values, **named)

    return handle


def calling_back(function: Any) -> Handler:
    """A library function that may call any of its arguments, and iterates over the others."""

    def handle(hooks: Hooks, *args: Any, **kwargs: Any) -> Any:
        if not all(map(is_plain, args)) or kwargs:
            args = tuple(map(hooks.callback, args))
            args = tuple(a if callable(a) else hooks.iter(a) for a in args)
            kwargs = {key: hooks.callback(value) for key, value in kwargs.items()}
        return library.run(hooks, function, args, kwargs, function.__name__)

    return handle


def _callable(hooks: Hooks, function: Any) -> Any:
    if isinstance(function, (types.FunctionType, types.MethodType)):
        return hooks.callback(function)
    return functools.partial(hooks.call, function)


def filtered(hooks: Hooks, function: Any, values: Any) -> Any:
    """filter(function, values)"""
    keeps = hooks.test if function is None else _callable(hooks, function)
    return filter(lambda value: hooks.test(keeps(value)), hooks.iter(values))


def flattened(hooks: Hooks, values: Any) -> Any:
    """itertools.chain.from_iterable(values)"""
    return itertools.chain.from_iterable(hooks.iter(part) for part in hooks.iter(values))


def backwards(hooks: Hooks, value: Any) -> Any:
    """reversed(value)"""
    if operators.special(type(value), "__reversed__") is not None:
        return hooks.iter(operators.call_special(hooks, value, "__reversed__"))
    if operators.special(type(value), "__getitem__") is not None:
        size = operators.length(hooks, value)
        return (hooks.item(value, i) for i in range(size - 1, -1, -1))
    return reversed(hooks.iter(value))


def as_it_is(function: Any) -> Handler:
    """A function that does not read its arguments."""
    return lambda hooks, *args, **kwargs: function(*args, **kwargs)


# --- contexts ------------------------------------------------------------------------------------


class FollowedContext:
    """A context manager of a user's class, entered and left by followed calls."""

    def __init__(self, hooks: Hooks, manager: Any) -> None:
        self.hooks = hooks
        self.manager = manager
        cls = type(manager)
        if not hasattr(cls, "__enter__") or not hasattr(cls, "__exit__"):
            raise TypeError(
                f"'{cls.__name__}' object does not support the context manager protocol"
            )

    def __enter__(self) -> Any:
        return self._call("__enter__")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Any:
        return self.hooks.test(self._call("__exit__", kind, error, trace))

    def _call(self, name: str, *args: Any) -> Any:
        return operators.call_special(self.hooks, self.manager, name, *args)
