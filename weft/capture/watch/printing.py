"""print, logging, warnings, and the text of values: effects that every replay repeats."""

from __future__ import annotations

import sys
import types
import warnings
from collections import defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.base.asked_sizes import numbers_of
from weft.base.source import PACKAGE, user_frame
from weft.capture.watch import operators
from weft.capture.watch.read_back import caught_file, has_own_handler
from weft.capture.watch.settled_numbers import settled, settled_call
from weft.capture.watch.texts import LeafNow, TextPart, TextParts, as_string
from weft.capture.watch.values import CONTAINERS, is_plain
from weft.core.number import Number
from weft.core.tensor import Tensor
from weft.record.control.nested import graph_recorder, in_nested_graph, stand_in

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks


LOGGER_METHODS = frozenset(
    {"debug", "info", "warning", "error", "critical", "exception", "log", "warn", "fatal"}
)


def is_logger(value: Any) -> bool:
    """Whether it is a `logging.Logger`, without importing `logging`."""
    logging = sys.modules.get("logging")
    return logging is not None and isinstance(value, logging.Logger)


def is_logging(function: Any, args: tuple[Any, ...] = ()) -> bool:
    """Whether a function is one of `logging`, or a method of a logger, which is the first argument.

    It prints its arguments at each replay: f-strings among them are kept in parts.
    """
    if isinstance(function, types.MethodType):
        function, args = function.__func__, (function.__self__,)
    name = getattr(function, "__name__", "")
    if name not in LOGGER_METHODS or getattr(function, "__module__", "") != "logging":
        return False
    return getattr(sys.modules["logging"], name, None) is function or (
        bool(args) and is_logger(args[0])
    )


def showing(function: Any) -> Callable[..., Any]:
    """The row of a function that prints its arguments."""
    return lambda hooks, *args, **kwargs: show(hooks, function, args, kwargs)


def show(hooks: Hooks, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """print and the like: run by each replay, with the values of that call.

    If ops are recorded, a replay also finishes this call; else it runs now.
    """
    name = getattr(function, "__name__", "call")
    if function is print:
        file = caught_file(hooks, kwargs.get("file"))
        if file is not None:  # no effect outside
            if in_nested_graph():
                hooks.watch.refuse("print writes to an object that the function made")
            texts = numbers_of(tuple(map(as_string, args)))
            hooks.deep_all(texts, {}, name)
            return function(*texts, **{**kwargs, "file": file})
    elif is_logging(function, args):
        handler = has_own_handler(function, args)
        if handler:
            hooks.watch.refuse(f"a record is logged by {handler}, which is not watched")
            args, kwargs = settled_call(args, kwargs, as_string)
            return function(*numbers_of(args), **kwargs)
    kept = tuple(_shown(hooks, value) for value in args)
    named = {key: as_string(value) for key, value in kwargs.items()}

    def again(*values: Any) -> None:
        function(*values[: len(kept)], **dict(zip(named, values[len(kept) :], strict=True)))

    effect = hooks.watch.effect(f"{name}(…)", again, None, *kept, *named.values())
    if hooks.watch.active:
        effect.finish(hooks.watch.origin_of)  # print the current contents
        if hooks.watch.tensors is not None:
            return None
    return function(*map(as_string, kept), **named)


def _shown(hooks: Hooks, value: Any) -> Any:
    value = numbers_of(value)
    if isinstance(value, Tensor):
        return _tensor_as_it_is(value)
    if is_plain(value) or isinstance(value, TextParts) or is_logger(value):
        return value
    if isinstance(value, CONTAINERS) and type(value) in _PLAIN_CONTAINERS:
        hooks.deep(value, "print")
        return as_it_is(value) if shows_tensors(value) else str(value)
    return text_of(hooks, value, "__str__", str)


_PLAIN_CONTAINERS = frozenset({list, tuple, dict, set, frozenset, deque, defaultdict})


def _tensor_as_it_is(tensor: Tensor) -> Tensor | LeafNow:
    """A tensor with its value of now, which a write to it will not change."""
    here = graph_recorder()
    if here is None or isinstance(tensor, Number):
        return tensor
    if tensor._node is not None and tensor._node.is_leaf:
        return LeafNow(stand_in(here, tensor.detach()))
    return stand_in(here, tensor)


def as_it_is(value: Any) -> Any:
    """A container with its current contents, built again at each replay."""
    if isinstance(value, Tensor):
        return _tensor_as_it_is(value)
    kind = type(value)
    if kind in (list, tuple, set, frozenset):
        return kind(as_it_is(part) for part in value)
    if kind is dict:
        return {as_it_is(key): as_it_is(part) for key, part in value.items()}
    return value


def shows_tensors(value: Any) -> bool:
    if isinstance(value, Tensor):
        return True
    if type(value) in _PLAIN_CONTAINERS:
        parts = value.values() if isinstance(value, dict) else value
        return any(map(shows_tensors, parts))
    return False


def string(hooks: Hooks, *args: Any, **kwargs: Any) -> Any:
    """str(value)"""
    if len(args) != 1 or kwargs:
        return str(*args, **kwargs)
    if _waits(hooks, args[0]):
        return TextParts([TextPart(args[0], ord("s"), "")])
    return text_of(hooks, args[0], "__str__", str)


def _waits(hooks: Hooks, value: Any) -> bool:
    """Whether each call makes the text of a value."""
    return not hooks.flow.depth and value.__class__ in (Number, TextParts)


def representation(hooks: Hooks, value: Any) -> Any:
    """repr(value)"""
    if _waits(hooks, value):
        return TextParts([TextPart(value, ord("r"), "")])
    return text_of(hooks, value, "__repr__", repr)


def text_of(hooks: Hooks, value: Any, name: str, function: Callable[[Any], str]) -> str:
    """str(value) or repr(value), with a user's method followed."""
    value = numbers_of(value)
    if isinstance(value, TextParts):
        return str(value)
    value = settled(value)
    cls: Any = type(value)
    for method in (name, "__repr__"):
        if operators.special(cls, method) is not None:
            result = operators.call_special(hooks, value, method)
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
    if hooks.watch.known(value) is None and _shows_address(type(value)):
        hooks.watch.refuse(f"the address of a {type(value).__name__} is shown")
    else:
        hooks.watch.identity(value)


def _shows_address(cls: Any) -> bool:
    return cls.__str__ is object.__str__


def format_of(hooks: Hooks, value: Any, spec: Any = "") -> Any:
    """format(value, spec)"""
    if _waits(hooks, value):
        return TextParts([TextPart(value, -1, str(spec))])
    return formatted(hooks, value, spec)


def formatted(hooks: Hooks, value: Any, spec: str = "") -> str:
    value = numbers_of(value)
    cls: Any = type(value)
    if cls is str or is_plain(value):
        return format(value, spec)
    if operators.special(cls, "__format__") is not None:
        result: str = operators.call_special(hooks, value, "__format__", spec)
        return result
    if not spec and cls.__format__ is object.__format__:
        return text_of(hooks, value, "__str__", str)
    hooks.deep(value, "format")
    return format(value, spec)


def warner(
    message: Any,
    category: type[Warning] | None = None,
    stacklevel: int = 1,
    source: Any = None,
    **_more: Any,
) -> Callable[[Any], None]:
    """What gives a warning, with the user's line also at replays."""
    frame = user_frame()
    for _ in range(stacklevel - 1):
        frame = frame.f_back if frame is not None else None
        while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
            frame = frame.f_back
    file, line, names = ("sys", 1, {}) if frame is None else _place(frame)
    kind = type(message) if isinstance(message, Warning) else category or UserWarning
    registry = names.setdefault("__warningregistry__", {})
    module = names.get("__name__") or "<unknown>"

    def again(message: Any) -> None:
        warnings.warn_explicit(message, kind, file, line, module, registry, names)

    return again


def warn(hooks: Hooks, message: Any, *args: Any, **kwargs: Any) -> None:
    """warnings.warn"""
    again = warner(message, *args, **kwargs)
    if hooks.watch.outputs.catches_warnings():
        hooks.watch.refuse("a warning is given where warnings are caught")
        return again(as_string(message))
    effect = hooks.watch.effect("warnings.warn(…)", again, None, settled_text(message))
    if hooks.watch.active:
        effect.finish(hooks.watch.origin_of)
        if hooks.watch.tensors is not None:
            return
    again(as_string(message))


def settled_text(message: Any) -> Any:
    return str(message) if isinstance(message, Warning) else message


def _place(frame: types.FrameType) -> tuple[str, int, dict[str, Any]]:
    return frame.f_code.co_filename, frame.f_lineno, frame.f_globals
