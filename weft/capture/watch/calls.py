"""Calls: decides which callees are followed into their source, for each kind of callable."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import types
import typing
from typing import TYPE_CHECKING, Any

from weft.autodiff.function import Function
from weft.base.source import is_own
from weft.capture.watch import library
from weft.capture.watch.attributes import class_attribute, is_python_function
from weft.capture.watch.deferred_calls import defer, is_unprepared, prepare
from weft.capture.watch.follow import COMPOSITE, FOLLOW, TRANSFORMS, WEFT, WRAPPERS, Wrapper, policy
from weft.capture.watch.origin import static_lookup
from weft.capture.watch.settled_numbers import settled_call
from weft.capture.watch.values import is_plain
from weft.convert.convert import (
    HOOKS,
    NoSource,
    Unconvertible,
    convert,
    is_converted,
    rebuild,
)
from weft.core.quiet import quietly

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks

#: Wrappers of functools and contextlib, recognised by their shared code.
_CONTEXT = contextlib.contextmanager(lambda: iter(())).__code__
_SINGLE_DISPATCH = functools.singledispatch(lambda x: x).__code__  # type: ignore[attr-defined]
_REPLACE = collections.namedtuple("_REPLACE", ())._replace.__code__  # type: ignore[attr-defined]
_CACHED = type(functools.lru_cache(lambda: None))
_ALIASES = (types.GenericAlias, type(typing.List[int]))  # noqa: UP006
_APPLY = Function.apply.__func__  # type: ignore[attr-defined]


def call(hooks: Hooks, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    kind = type(function)
    if kind is types.FunctionType:
        return call_function(hooks, function, args, kwargs)
    if kind is types.MethodType:
        return call(hooks, function.__func__, (function.__self__, *args), kwargs)
    if isinstance(function, type):
        return construct(hooks, function, args, kwargs)
    if kind is functools.partial:
        return _call_partial(hooks, function, args, kwargs)
    if kind is _CACHED:
        return hooks.call(function.__wrapped__, *args, **kwargs)
    if kind in _ALIASES:  # Table[int](...)
        return hooks.call(function.__origin__, *args, **kwargs)
    if isinstance(function, Wrapper):
        inner = function.function
        if not isinstance(inner, types.FunctionType):  # a module: what it holds is read there
            inner = hooks.attr(function, "function")
        return call(hooks, inner, args, kwargs)
    if kind in library.BUILTIN_CALLABLES or isinstance(function, types.BuiltinFunctionType):
        return library.call_builtin(hooks, function, args, kwargs)
    method = static_lookup(kind, "__call__")
    if is_python_function(method):
        class_attribute(hooks.watch, kind, "__call__", method)
        return call(hooks, method, (function, *args), kwargs)
    return library.call_object(hooks, function, args, kwargs)


def takes_texts(function: Any) -> bool:
    """Whether it is a function or a class of the user's: those take texts that are made by each
    call."""
    plain = function.__func__ if isinstance(function, types.MethodType) else function
    if isinstance(plain, types.FunctionType):
        file = plain.__code__.co_filename
        return policy(file) == FOLLOW and not is_own(file)
    if not isinstance(plain, type) or issubclass(plain, BaseException):  # which leave the run
        return False
    return is_followed_class(plain) or dataclasses.is_dataclass(plain)


def _call_partial(hooks: Hooks, bound: Any, args: Any, kwargs: Any) -> Any:
    function = hooks.attr(bound, "func")
    first = tuple(hooks.iter(hooks.attr(bound, "args")))
    named = hooks.mapping(hooks.attr(bound, "keywords"))
    return hooks.call(function, *first, *args, **{**named, **kwargs})


def call_function(
    hooks: Hooks, function: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    code = function.__code__
    if function.__dict__.get("deferred") and defer(hooks, function, args, kwargs):
        return None
    if args and not is_unprepared(function):
        prepare(hooks, function, args)
    if is_converted(function):
        cell = dict(zip(code.co_freevars, function.__closure__ or (), strict=True)).get(HOOKS)
        if cell is not None and cell.cell_contents.watch is not hooks.watch:
            hooks.watch.refuse(f"{function.__qualname__} was made by an earlier recording")
        return function(*args, **kwargs)
    kind = policy(code.co_filename)
    if kind == WEFT and code not in WRAPPERS:
        if code is quietly.__code__:  # it only calls what it is given
            return hooks.call(*args, **kwargs)
        if code is COMPOSITE:
            return hooks.call(function.__wrapped__, *args, **kwargs)  # type: ignore[attr-defined]
        if code is _APPLY.__code__:
            return function(_with_followed_rules(hooks, args[0]), *args[1:], **kwargs)
        if str(function.__module__).startswith(TRANSFORMS) and args and not function.__dict__:
            # A module is as good as a function.
            args = (hooks.for_transform(callable_for(hooks, args[0])), *args[1:])
        return library.call_weft(hooks, followed(hooks, function), args, kwargs)
    if kind not in (FOLLOW, WEFT):
        if code is _CONTEXT:
            inner = followed(hooks, function.__wrapped__)  # type: ignore[attr-defined]
            return contextlib._GeneratorContextManager(inner, args, kwargs)
        if code is _REPLACE and len(args) == 1 and set(kwargs) <= set(args[0]._fields):
            fields = [kwargs[k] if k in kwargs else hooks.attr(args[0], k) for k in args[0]._fields]
            return args[0]._make(fields)
        if code is _SINGLE_DISPATCH and args:
            chosen = function.dispatch(type(args[0]))  # type: ignore[attr-defined]
            return call(hooks, chosen, args, kwargs)
        return library.call_library(hooks, function, args, kwargs)
    if code.co_filename == "<string>" and args and _is_generated(function, type(args[0])):
        hooks.deep_all(args, kwargs, function.__qualname__, calls=False)
        return function(*args, **kwargs)
    made = followed(hooks, function)
    if made is function:  # it has no source, and the reason is noted
        hooks.deep_all(args, kwargs, function.__qualname__, calls=False)
        return function(*args, **kwargs)
    hooks.watch.notes.follow(code)
    return made(*args, **kwargs)


_GENERATED = frozenset(
    {
        *("__repr__", "__eq__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__"),
        *("__setattr__", "__delattr__"),
    }
)


def _is_generated(function: types.FunctionType, cls: type) -> bool:
    """Whether `dataclass` generated a function: it reads only the fields."""
    name = function.__name__
    if not dataclasses.is_dataclass(cls) or name not in _GENERATED:
        return False
    return any(base.__dict__.get(name) is function for base in cls.__mro__)


def followed(hooks: Hooks, function: Any) -> Any:
    """The rewritten function, whose reads and calls are watched, or the function itself."""
    if isinstance(function, types.MethodType):
        return types.MethodType(followed(hooks, function.__func__), function.__self__)
    if not isinstance(function, types.FunctionType) or is_converted(function):
        return function
    if function.__code__ is COMPOSITE:
        return followed(hooks, function.__wrapped__)  # type: ignore[attr-defined]
    remake = function.__dict__.get("remake")
    if remake is not None:  # a transform of a function, as weft.grad(f): that of the followed one
        inner = callable_for(hooks, hooks.attr(function, "transformed"))
        return remake(hooks.for_transform(inner))
    if policy(function.__code__.co_filename) != FOLLOW and function.__code__ not in WRAPPERS:
        return function
    known = hooks.rebuilt.get(id(function))
    if known is not None and known[0].__code__ is known[2]:
        return known[1]
    try:
        code = convert(function)
    except (NoSource, Unconvertible) as reason:
        hooks.watch.unconvertible(function.__qualname__, reason)
        return function
    made = rebuild(function, code, hooks.of(function))
    hooks.rebuilt[id(function)] = (function, made, function.__code__)
    _note_function(hooks, function, made)
    return made


def callable_for(hooks: Hooks, function: Any) -> Any:
    """A function that makes a watched call of any callable."""
    if isinstance(function, (types.FunctionType, types.MethodType)) or not callable(function):
        return followed(hooks, function)
    return lambda *args, **kwargs: hooks.call(function, *args, **kwargs)


def _note_function(hooks: Hooks, function: types.FunctionType, made: types.FunctionType) -> None:
    """Guard what a function itself holds: its code and its default values, of which those that
    change from call to call become numbers of the followed one."""
    watch = hooks.watch
    known = watch.know_again(function)
    place = known.origin
    own = is_own(function.__code__.co_filename)
    if known.pinned and not own:
        watch.guard("identity", place.attr("__code__"), function.__code__)
    if function.__defaults__:
        if known.pinned and not own:
            watch.guard("identity", place.attr("__defaults__"), function.__defaults__)
        elif not known.pinned:
            watch.guard("length", place.attr("__defaults__"), len(function.__defaults__))
        made.__defaults__ = tuple(
            [
                value
                if known.pinned and is_plain(value)
                else watch.read(value, place.attr("__defaults__").item(i))
                for i, value in enumerate(function.__defaults__)
            ]
        )
    if function.__kwdefaults__:
        made.__kwdefaults__ = {
            name: value
            if own and is_plain(value)
            else watch.read(value, place.attr("__kwdefaults__").item(name))
            for name, value in function.__kwdefaults__.items()
        }


def _with_followed_rules(hooks: Hooks, cls: Any) -> Any:
    """A subclass of the user's `weft.Function` with watched forward and backward."""
    if not isinstance(cls, type):
        return cls
    rules: dict[str, Any] = {}
    for name in ("forward", "backward"):
        rule = static_lookup(cls, name)
        inner = rule.__func__ if isinstance(rule, staticmethod) else None
        if isinstance(inner, types.FunctionType):
            class_attribute(hooks.watch, cls, name, rule)
            rules[name] = staticmethod(followed(hooks, inner))
    made = type(cls.__name__, (cls,), rules)
    hooks.watch.inside_classes[id(made)] = made
    return made


# --- classes -------------------------------------------------------------------------------------


def construct(hooks: Hooks, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """cls(*args, **kwargs)"""
    meta = type(cls)
    maker = static_lookup(meta, "__call__")
    if is_python_function(maker) and not issubclass(meta, enum.EnumMeta):
        class_attribute(hooks.watch, meta, "__call__", maker)
        return call(hooks, maker, (cls, *args), kwargs)
    if issubclass(cls, BaseException) and not hooks.flow.depth:  # which leaves the run
        args, kwargs = settled_call(args, kwargs)
    if not is_followed_class(cls):
        return library.call_class(hooks, cls, args, kwargs)
    return construct_as_type(hooks, cls, args, kwargs)


def is_followed_class(cls: type) -> bool:
    """Whether an instantiation runs code that is followed: `__new__` or `__init__` in Python."""
    if issubclass(cls, enum.Enum):
        return False
    for name in ("__new__", "__init__"):
        found = static_lookup(cls, name)
        function = found.__func__ if isinstance(found, staticmethod) else found
        if isinstance(function, types.FunctionType):
            kind = policy(function.__code__.co_filename)
            if kind == FOLLOW and not _is_generated_tuple(cls):
                return True
    return False


def _is_generated_tuple(cls: type) -> bool:
    found = static_lookup(cls, "__new__")
    function = found.__func__ if isinstance(found, staticmethod) else found
    code = getattr(function, "__code__", None)
    return issubclass(cls, tuple) and code is not None and code.co_filename.startswith("<")


def construct_as_type(
    hooks: Hooks, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """What `type.__call__` does: `__new__`, then `__init__` if that made an instance."""
    maker: Any = static_lookup(cls, "__new__")
    starter: Any = static_lookup(cls, "__init__")
    function = maker.__func__ if isinstance(maker, staticmethod) else maker
    if is_python_function(function):
        class_attribute(hooks.watch, cls, "__new__", maker)
        obj = call(hooks, function, (cls, *args), kwargs)
    elif maker is object.__dict__["__new__"]:
        if (args or kwargs) and not is_python_function(starter):
            return cls(*args, **kwargs)  # for its error
        obj = object.__new__(cls)
    else:
        hooks.deep_all(args, kwargs, cls.__name__, calls=False)
        obj = cls.__new__(cls, *args, **kwargs)
    if isinstance(obj, cls):
        hooks.watch.created(obj)
        start(hooks, obj, args, kwargs)
    return obj


def start(hooks: Hooks, obj: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    cls = type(obj)
    starter: Any = static_lookup(cls, "__init__")
    if not is_python_function(starter):
        starter.__get__(obj, cls)(*args, **kwargs)
        return
    class_attribute(hooks.watch, cls, "__init__", starter)
    if starter.__code__.co_filename == "<string>" and dataclasses.is_dataclass(cls):
        _start_dataclass(hooks, obj, cls, starter, args, kwargs)
        return
    result = call(hooks, starter, (obj, *args), kwargs)
    if result is not None:
        raise TypeError(f"__init__() should return None, not '{type(result).__name__}'")


def _start_dataclass(
    hooks: Hooks, obj: Any, cls: type, starter: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """The generated `__init__` runs as it is; factories and `__post_init__` are followed."""
    names = [f.name for f in dataclasses.fields(cls) if f.init and not f.kw_only]
    passed = {*names[: len(args)], *kwargs}
    kwargs = dict(kwargs)
    for field in dataclasses.fields(cls):
        factory = field.default_factory
        if field.init and field.name not in passed and factory is not dataclasses.MISSING:
            kwargs[field.name] = hooks.call(factory)
    after = static_lookup(cls, "__post_init__")
    if not is_python_function(after):
        starter(obj, *args, **kwargs)
        return
    class_attribute(hooks.watch, cls, "__post_init__", after)
    # The generated code calls self.__post_init__(…) last: that is skipped, and done here.
    later: list[tuple[Any, ...]] = []
    namespace = {
        "__slots__": (),
        "__post_init__": lambda _self, *values: later.append(values),
        "__setattr__": object.__setattr__,
    }
    stand_in: Any
    try:
        stand_in = type(cls.__name__, (cls,), namespace)
        object.__setattr__(obj, "__class__", stand_in)
    except TypeError:
        hooks.watch.refuse(f"{cls.__qualname__}.__post_init__ cannot be watched")
        starter(obj, *args, **kwargs)
        return
    try:
        starter(obj, *args, **kwargs)
    finally:
        object.__setattr__(obj, "__class__", cls)
    for values in later:
        call(hooks, after, (obj, *values), {})
