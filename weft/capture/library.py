"""Calls that are not followed: builtins, the standard library, NumPy and Weft itself.

What such code is handed is guarded in full, unless the function is known to look at less. Functions
that depend on more than their arguments make a run that cannot be used again.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import logging
import operator
import re
import types
import warnings
from collections import defaultdict, deque
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base.source import PACKAGE, user_frame
from weft.capture import attributes, methods, operators, stores
from weft.capture.effects import TextParts
from weft.capture.follow import INERT, LOGGER_METHODS, PURE_WEFT, SHOWS, WARN, why_impure
from weft.capture.values import CONTAINERS, is_plain
from weft.core.tensor import Tensor
from weft.ops.generator import Generator

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks
    from weft.capture.watch import Known

Handler = Callable[["Hooks", tuple[Any, ...], dict[str, Any]], Any]

BUILTIN_CALLABLES = frozenset(
    {
        types.BuiltinFunctionType,
        types.MethodWrapperType,
        types.MethodDescriptorType,
        types.WrapperDescriptorType,
        types.ClassMethodDescriptorType,
        np.ufunc,
        type(np.sum),  # functions of NumPy that dispatch on their arguments
        operator.itemgetter,
        operator.attrgetter,
    }
)
#: Methods of arrays that write to them.
ARRAY_WRITES = frozenset(
    {"sort", "fill", "put", "resize", "partition", "itemset", "setfield", "setflags", "byteswap"}
)


def settled(value: Any) -> Any:
    """An argument as code that is not print sees it: f-strings are text."""
    return str(value) if isinstance(value, TextParts) else value


# --- builtins and their methods --------------------------------------------------------------------


def call_builtin(hooks: Hooks, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    handler = _handler(function)
    if handler is not None:
        return handler(hooks, args, kwargs)
    if function in SHOWS:
        return show(hooks, function, args, kwargs)
    args = tuple(map(settled, args))
    kwargs = {key: settled(value) for key, value in kwargs.items()}
    if isinstance(function, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        if args and isinstance(args[0], function.__objclass__):  # list.append(x, 1)
            return hooks.call(function.__get__(args[0]), *args[1:], **kwargs)
    holder = getattr(function, "__self__", None)
    if holder is None or isinstance(holder, types.ModuleType):
        return call_library(hooks, function, args, kwargs)
    return _call_method(hooks, function, holder, args, kwargs)


def _handler(function: Any) -> Handler | None:
    try:
        return HANDLERS.get(function)
    except TypeError:  # a method of something that cannot be hashed
        return None


def _call_method(
    hooks: Hooks, function: Any, holder: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A method written in C."""
    name = function.__name__
    known = hooks.watch.known(holder)
    if isinstance(function, types.MethodWrapperType) or name in _OBJECT_METHODS:
        special = _OBJECT_METHODS.get(name)
        if special is not None and getattr(object, name, None) is not None:
            owner = getattr(function, "__objclass__", None)
            if owner in (None, object):
                return special(hooks, holder, args)
    if isinstance(holder, CONTAINERS):
        if known is not None:
            return methods.call_method(hooks, known, name, args, kwargs)
        if name in ("append", "add", "insert", "appendleft", "setdefault"):
            return function(*args, **kwargs)
        if isinstance(holder, dict) and name in ("get", "pop", "__getitem__", "__contains__"):
            hooks.key(args[0] if args else None)
            return function(*args, **kwargs)
        if name in ("extend", "update", "extendleft", "union", "join", "__iadd__"):
            return function(*(hooks.iter(value) for value in args), **kwargs)
        if name == "sort" or name in ("index", "count", "remove"):
            hooks.deep(holder, name)
    elif isinstance(holder, np.ndarray) and known is not None:
        if name in ARRAY_WRITES:
            return hooks.write_array(known, lambda: function(*args, **kwargs), f".{name}")
        hooks.watch.content(known)
    elif isinstance(holder, type):
        return call_library(hooks, function, args, kwargs)  # dict.fromkeys, object.__new__
    elif known is not None and not is_plain(holder):
        hooks.watch.refuse(
            f"{known.origin.text}.{name} of a {type(holder).__name__} is called, "
            "which may depend on more than is watched"
        )
    return _run(hooks, function, args, kwargs, name)


def call_library(hooks: Hooks, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function of the standard library or of NumPy."""
    handler = _handler(function)
    if handler is not None:
        return handler(hooks, args, kwargs)
    if function is WARN:
        return _warn(hooks, *args, **kwargs)
    if _is_logging(function, args):
        return show(hooks, function, args, kwargs)
    args = tuple(map(settled, args))
    kwargs = {key: settled(value) for key, value in kwargs.items()}
    if function not in INERT:
        reason = why_impure(function)
        if reason:
            hooks.watch.refuse(reason)
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", "a builtin")
    return _run(hooks, function, args, kwargs, str(name))


def _run(
    hooks: Hooks, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str
) -> Any:
    """Call, with guards on all that is handed over, and see whether any of it was changed."""
    if all(map(is_plain, args)) and not kwargs:
        return function(*args)
    if _calls_back(function):
        args = tuple(map(hooks.callback, args))
        kwargs = {key: hooks.callback(value) for key, value in kwargs.items()}
        args = tuple(hooks.iter(a) if not callable(a) else a for a in args)
    seen = hooks.deep_all(args, kwargs, name)
    before = [_contents(known) for known in seen]
    result = function(*args, **kwargs)
    for known, old in zip(seen, before, strict=True):
        if not _is_same(_contents(known), old):
            _undo_contents(hooks, known, old)
            hooks.watch.refuse(f"{name} changes {known.origin.text}")
    return result


def _contents(known: Known) -> Any:
    return known.obj.copy() if isinstance(known.obj, np.ndarray) else stores.copy_of(known.obj)


def _is_same(now: Any, before: Any) -> bool:
    if isinstance(now, np.ndarray):
        return bool(now.dtype == object or now.tobytes() == before.tobytes())
    if isinstance(now, dict):
        return _is_same(list(now), list(before)) and _is_same(
            list(now.values()), list(before.values())
        )
    mine, theirs = list(now), list(before)
    return len(mine) == len(theirs) and all(map(operator.is_, mine, theirs))


def _undo_contents(hooks: Hooks, known: Known, old: Any) -> None:
    if isinstance(known.obj, np.ndarray):
        hooks.watch.undo(lambda: np.copyto(known.obj, old))
    else:
        hooks.watch.undo(lambda: stores.put_back(known.obj, old))


def _calls_back(function: Any) -> bool:
    try:
        return function in CALLS_BACK
    except TypeError:
        return getattr(function, "__name__", "") == "sort"


def call_object(hooks: Hooks, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An object with a `__call__` written in C, or none at all."""
    kind = type(function)
    if callable(function) and hooks.watch.known(function) is not None:
        hooks.watch.refuse(f"a {kind.__name__} is called, of which nothing is known")
    hooks.deep_all(args, kwargs, kind.__name__)
    return function(*args, **kwargs)


def call_class(hooks: Hooks, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A class whose instances are made by code that is not followed."""
    args = tuple(map(settled, args))
    kwargs = {key: settled(value) for key, value in kwargs.items()}
    handler = _handler(cls)
    if handler is not None:
        return handler(hooks, args, kwargs)
    if cls is Generator and (args or (kwargs.get("seed"),))[0] is None:
        hooks.watch.refuse("a random seed is asked of the operating system")
    if str(cls.__module__).startswith("weft."):
        return call_weft(hooks, cls, args, kwargs)
    reason = "" if cls in INERT or hooks.watch.inside_classes.get(id(cls)) else _class_reason(cls)
    if reason:
        hooks.watch.refuse(reason)
    return _run(hooks, cls, args, kwargs, cls.__name__)


def _class_reason(cls: type) -> str:
    if issubclass(cls, (BaseException, tuple)) or not _is_library_class(cls):
        return ""
    return why_impure(cls)


def _is_library_class(cls: type) -> bool:
    return attributes._is_of_library(cls) or not cls.__flags__ & (1 << 9)


# --- Weft ----------------------------------------------------------------------------------------

_IMPURE_WEFT = frozenset({"Generator.seed", "set_default_dtype", "register_dtype"})


def call_weft(hooks: Hooks, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function of Weft's own that is not followed."""
    if function in SHOWS:
        return show(hooks, function, args, kwargs)
    args = tuple(hooks.callback(settled(value)) for value in args)
    kwargs = {key: hooks.callback(settled(value)) for key, value in kwargs.items()}
    parts = str(function.__module__).split(".")
    if len(parts) > 1 and parts[1] not in PURE_WEFT:
        hooks.watch.refuse(f"{function.__module__}.{function.__qualname__} is not watched")
    if function.__qualname__ in _IMPURE_WEFT:
        hooks.watch.refuse(f"{function.__qualname__} depends on or changes more than its arguments")
    for value in (*args, *kwargs.values()):
        if isinstance(value, np.ndarray):
            known = hooks.watch.known(value)
            if known is not None and not taken(hooks, known, function):
                hooks.watch.content(known)
        elif not isinstance(value, Tensor):
            hooks.deep(value, function.__qualname__)
    return function(*args, **kwargs)


def taken(hooks: Hooks, known: Known, function: Any) -> bool:
    """Whether the recorder makes an outside array an input, so that its elements are no guard."""
    tensors = hooks.watch.tensors
    return tensors is not None and tensors.takes_array(known.obj, known.origin, function)


# --- what shows something --------------------------------------------------------------------------


def _is_logging(function: Any, args: tuple[Any, ...]) -> bool:
    if function in SHOWS:
        return True
    name = getattr(function, "__name__", "")
    return name in LOGGER_METHODS and bool(args) and isinstance(args[0], logging.Logger)


def show(hooks: Hooks, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """print and its like: done by each replay, with the values of that call.

    Where ops are recorded, this call too is finished by a replay; else it is done now.
    """
    name = getattr(function, "__name__", "call")
    kept = tuple(_shown(hooks, value) for value in args)
    fixed = {key: settled(value) for key, value in kwargs.items()}

    def again(*values: Any) -> None:
        function(*values, **fixed)

    effect = hooks.watch.effect(f"{name}(…)", again, None, *kept)
    if hooks.watch.active:
        effect.finish(hooks.watch.origin_of)  # what is shown is what it is now
        if hooks.watch.tensors is not None:
            return None
    return function(*map(settled, kept), **fixed)


def _shown(hooks: Hooks, value: Any) -> Any:
    if is_plain(value) or isinstance(value, (Tensor, TextParts, logging.Logger)):
        return value
    if isinstance(value, CONTAINERS) and type(value) in _PLAIN_CONTAINERS:
        hooks.deep(value, "print")
        return _copied(value) if shows_tensors(value) else str(value)
    return text_of(hooks, value, "__str__", str)


_PLAIN_CONTAINERS = frozenset({list, tuple, dict, set, frozenset, deque, defaultdict})


def _copied(value: Any) -> Any:
    """A container as it is now, made again at each replay."""
    kind = type(value)
    if kind in (list, tuple, set, frozenset):
        return kind(_copied(part) for part in value)
    if kind is dict:
        return {_copied(key): _copied(part) for key, part in value.items()}
    return value


def shows_tensors(value: Any) -> bool:
    if isinstance(value, Tensor):
        return True
    if type(value) in _PLAIN_CONTAINERS:
        parts = value.values() if isinstance(value, dict) else value
        return any(map(shows_tensors, parts))
    return False


def text_of(hooks: Hooks, value: Any, name: str, function: Callable[[Any], str]) -> str:
    """str(value) or repr(value), with a user's method followed."""
    cls = type(value)
    if isinstance(value, TextParts):
        return str(value)
    for method in (name, "__repr__"):
        found = operators.special(cls, method)
        if found is not None:
            attributes.class_attribute(hooks.watch, cls, method, found)
            result = hooks.call(found, value)
            if not isinstance(result, str):
                raise TypeError(f"{method} returned non-string (type {type(result).__name__})")
            return result
        if method in cls.__dict__:
            break
    if not isinstance(value, Tensor):
        hooks.deep(value, function.__name__, calls=isinstance(value, CONTAINERS))
        if cls.__repr__ is object.__repr__ and not isinstance(value, (type, types.ModuleType)):
            _note_address(hooks, value)
    return function(value)


def _note_address(hooks: Hooks, value: Any) -> None:
    if hooks.watch.known(value) is None and cls_str_is_plain(type(value)):
        hooks.watch.refuse(f"the address of a {type(value).__name__} is shown")
    else:
        hooks.watch.identity(value)


def cls_str_is_plain(cls: type) -> bool:
    return cls.__str__ is object.__str__


def formatted(hooks: Hooks, value: Any, spec: str) -> str:
    """format(value, spec)"""
    cls = type(value)
    if cls is str or is_plain(value):
        return format(value, spec)
    found = operators.special(cls, "__format__")
    if found is not None:
        attributes.class_attribute(hooks.watch, cls, "__format__", found)
        result: str = hooks.call(found, value, spec)
        return result
    if not spec and cls.__format__ is object.__format__:
        return text_of(hooks, value, "__str__", str)
    hooks.deep(value, "format")
    return format(value, spec)


def _warn(
    hooks: Hooks,
    message: Any,
    category: type[Warning] | None = None,
    stacklevel: int = 1,
    source: Any = None,
    **_more: Any,
) -> None:
    """A warning belongs to the user's line, also when it is shown again."""
    frame = user_frame()
    for _ in range(stacklevel - 1):
        frame = frame.f_back if frame is not None else None
        while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
            frame = frame.f_back
    file, line, names = ("sys", 1, {}) if frame is None else _place(frame)
    kind = type(message) if isinstance(message, Warning) else category or UserWarning
    registry = names.setdefault("__warningregistry__", {})
    module = names.get("__name__") or "<unknown>"

    def again(text: Any) -> None:
        warnings.warn_explicit(text, kind, file, line, module, registry, names)

    effect = hooks.watch.effect("warnings.warn(…)", again, None, settled_text(message))
    if hooks.watch.active:
        effect.finish(hooks.watch.origin_of)
        if hooks.watch.tensors is not None:
            return
    again(settled(message))


def settled_text(message: Any) -> Any:
    return str(message) if isinstance(message, Warning) else message


def _place(frame: types.FrameType) -> tuple[str, int, dict[str, Any]]:
    return frame.f_code.co_filename, frame.f_lineno, frame.f_globals


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
        cls = type(self.manager)
        found = getattr(cls, name)
        attributes.class_attribute(self.hooks.watch, cls, name, found)
        return self.hooks.call(found, self.manager, *args)


# --- builtin functions that are known one by one ----------------------------------------------------


def _getattr(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) != 3:
        return hooks.attr(*args)
    try:
        return hooks.attr(args[0], args[1])
    except AttributeError:
        return args[2]


def _hasattr(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    try:
        hooks.attr(*args)
    except AttributeError:
        return False
    return True


def _setattr(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    obj, name, value = args
    attributes.store(hooks, obj, name, value)


def _delattr(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    attributes.delete(hooks, *args)


def _iter(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) == 2:
        return iter(lambda: hooks.call(args[0]), args[1])
    return iter(hooks.iter(*args))


def _next(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    iterator = args[0]
    cls = type(iterator)
    known = hooks.watch.known(iterator)
    method = operators.special(cls, "__next__")
    if method is not None:
        attributes.class_attribute(hooks.watch, cls, "__next__", method)
        try:
            return hooks.call(method, iterator)
        except StopIteration:
            if len(args) > 1:
                return args[1]
            raise
    if known is not None:
        hooks.watch.refuse(f"the iterator {known.origin.text} from outside is advanced")
    return next(*args)


def _shallow(function: Any) -> Handler:
    """A function that goes through its iterables and hands the elements on."""

    def handle(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        values = [hooks.iter(value) if not callable(value) else value for value in args]
        return function(*values, **kwargs)

    return handle


def _with_callback(function: Any) -> Handler:
    """The same, with functions among the arguments that are to be followed."""

    def handle(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        values = [_callable(hooks, a) if callable(a) else hooks.iter(a) for a in args]
        named = {k: _callable(hooks, v) if callable(v) else v for k, v in kwargs.items()}
        return function(*values, **named)

    return handle


def _callable(hooks: Hooks, function: Any) -> Any:
    if isinstance(function, (types.FunctionType, types.MethodType)):
        return hooks.callback(function)
    return functools.partial(hooks.call, function)


def _comparing(function: Any) -> Handler:
    """sorted, min, max: the elements are compared, or what `key` makes of them."""

    def handle(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not args:
            return function(*args, **kwargs)
        values = list(hooks.iter(args[0])) if len(args) == 1 else list(args)
        given = kwargs.get("key")
        key = None if given is None else _callable(hooks, given)
        if key is not None or any(map(_has_order, values)):
            kwargs = {**kwargs, "key": lambda v: _Compared(hooks, v if key is None else key(v))}
        else:
            hooks.deep(values, function.__name__)
        return function(values, **kwargs)

    return handle


def _has_order(value: Any) -> bool:
    return any(operators.special(type(value), name) is not None for name in ("__lt__", "__gt__"))


class _Compared:
    """A value whose comparisons are watched, for code that compares by itself."""

    __slots__ = ("hooks", "value")

    def __init__(self, hooks: Hooks, value: Any) -> None:
        self.hooks = hooks
        self.value = value

    def __lt__(self, other: _Compared) -> Any:
        return self.hooks.test(self.hooks.compare("<", self.value, other.value))

    def __gt__(self, other: _Compared) -> Any:
        return self.hooks.test(self.hooks.compare(">", self.value, other.value))


def _sum(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    start = args[1] if len(args) > 1 else kwargs.get("start", 0)
    total = start
    for value in hooks.iter(args[0]):
        total = operators.binary(hooks, "+", total, value)
    return total


def _quantifier(wanted: bool) -> Handler:
    def handle(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return any(hooks.test(v) is wanted for v in hooks.iter(args[0])) is wanted

    return handle


def _len(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    return operators.length(hooks, *args)


def _bool(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return hooks.test(*args) if len(args) == 1 else bool(*args)


def _str(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    if len(args) != 1 or kwargs:
        return str(*args, **kwargs)
    return text_of(hooks, args[0], "__str__", str)


def _repr(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    return text_of(hooks, args[0], "__repr__", repr)


def _format(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    return formatted(hooks, args[0], args[1] if len(args) > 1 else "")


def _by_method(function: Any, *names: str) -> Handler:
    """abs, int, float, hash…: a user's method where there is one."""

    def handle(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        value = settled(args[0]) if args else None
        for name in names:
            method = operators.special(type(value), name)
            if method is not None:
                attributes.class_attribute(hooks.watch, type(value), name, method)
                made = hooks.call(method, value, *args[1:])
                # The builtin checks what comes back; abs and its like take anything.
                return made if function in (abs, round) else function(made)
        hooks.deep_all(args, kwargs, function.__name__)
        return function(*map(settled, args), **kwargs)

    return handle


def _hash(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    value = args[0]
    method = operators.special(type(value), "__hash__")
    if method is not None:
        attributes.class_attribute(hooks.watch, type(value), "__hash__", method)
        return hash(hooks.call(method, value))
    if not is_plain(value):
        _identity_seen(hooks, value, "hash")
    return hash(value)


def _id(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    _identity_seen(hooks, args[0], "id")
    return id(args[0])


def _identity_seen(hooks: Hooks, value: Any, name: str) -> None:
    if hooks.watch.origin_of(value) is not None:
        hooks.watch.identity(value)
    elif not isinstance(value, Tensor) and type(value) is not tuple:
        hooks.watch.refuse(f"{name}() of a {type(value).__name__} that the run made is asked for")


def _type(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) == 1:
        return type(args[0])
    made = type(*args, **kwargs)
    hooks.watch.inside_classes[id(made)] = made  # type: ignore[assignment]
    return made


def _isinstance(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    wanted = args[1]
    if isinstance(wanted, tuple):
        hooks.shallow(wanted)
    check = operators.special(type(wanted), "__instancecheck__")
    if check is not None:
        return hooks.test(hooks.call(check, wanted, args[0]))
    return isinstance(*args)


def _vars(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return hooks.attr(args[0], "__dict__")


def _dir(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    hooks.watch.refuse("dir() is asked")
    return dir(*args)


def _plain_call(function: Any) -> Handler:
    return lambda hooks, args, kwargs: function(*args, **kwargs)


def _object_getattribute(hooks: Hooks, holder: Any, args: tuple[Any, ...]) -> Any:
    cls = type(holder)
    own = stores.instance_dict(holder)
    if (
        (own is None or args[0] not in own)
        and operators.static_lookup(cls, args[0]) is operators.MISSING
        and operators.special(cls, "__getattr__") is not None
    ):
        return object.__getattribute__(holder, args[0])  # for its error: __getattr__ comes later
    return attributes.load_as_object(hooks, holder, args[0])


def _object_setattr(hooks: Hooks, holder: Any, args: tuple[Any, ...]) -> None:
    attributes.store_as_object(hooks, holder, *args)


def _object_delattr(hooks: Hooks, holder: Any, args: tuple[Any, ...]) -> None:
    attributes.delete_as_object(hooks, holder, *args)


_OBJECT_METHODS: dict[str, Callable[..., Any]] = {
    "__getattribute__": _object_getattribute,
    "__setattr__": _object_setattr,
    "__delattr__": _object_delattr,
}

HANDLERS: dict[Any, Handler] = {
    getattr: _getattr,
    hasattr: _hasattr,
    setattr: _setattr,
    delattr: _delattr,
    iter: _iter,
    next: _next,
    len: _len,
    bool: _bool,
    str: _str,
    repr: _repr,
    ascii: _by_method(ascii, "__repr__"),
    format: _format,
    hash: _hash,
    id: _id,
    type: _type,
    isinstance: _isinstance,
    vars: _vars,
    dir: _dir,
    sum: _sum,
    any: _quantifier(True),
    all: _quantifier(False),
    int: _by_method(int, "__int__", "__index__", "__trunc__"),
    float: _by_method(float, "__float__", "__index__"),
    complex: _by_method(complex, "__complex__", "__float__"),
    abs: _by_method(abs, "__abs__"),
    round: _by_method(round, "__round__"),
    operator.index: _by_method(operator.index, "__index__"),
    **{f: _comparing(f) for f in (sorted, min, max)},
    **{f: _shallow(f) for f in (list, tuple, zip, enumerate, reversed, itertools.chain)},
    **{f: _shallow(f) for f in (itertools.product, itertools.zip_longest, itertools.islice)},
    **{f: _shallow(f) for f in (itertools.cycle, itertools.repeat, itertools.pairwise)},
    **{f: _shallow(f) for f in (itertools.chain.from_iterable, itertools.combinations)},
    **{f: _shallow(f) for f in (itertools.permutations, deque)},
    **{f: _with_callback(f) for f in (map, filter, functools.reduce, itertools.accumulate)},
    **{f: _with_callback(f) for f in (itertools.starmap, itertools.takewhile)},
    **{f: _with_callback(f) for f in (itertools.dropwhile, itertools.filterfalse)},
    **{f: _with_callback(f) for f in (itertools.groupby, functools.cmp_to_key)},
    **{f: _plain_call(f) for f in (callable, issubclass, object, super, property)},
    **{f: _plain_call(f) for f in (staticmethod, classmethod, functools.partial)},
    **{f: _plain_call(f) for f in (functools.wraps, functools.update_wrapper)},
    **{f: _plain_call(f) for f in (functools.lru_cache, functools.cache)},
}

#: Further functions of the library that call what they are handed.
CALLS_BACK: frozenset[Any] = frozenset(
    {
        *(heapq.nlargest, heapq.nsmallest, heapq.merge, re.sub, re.subn, defaultdict),
        *(np.vectorize, np.apply_along_axis, np.fromfunction, np.piecewise),
    }
)
