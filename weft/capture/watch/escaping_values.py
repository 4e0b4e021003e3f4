"""Values that leave the watched code: as text, keys, operands and arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base.asked_sizes import numbers_of
from weft.capture.result_numbers import of_tensor
from weft.capture.watch import guard_recursively, library, operators, printing, stores
from weft.capture.watch.guard_recursively import Calls
from weft.capture.watch.texts import TextPart, TextParts, filled, join, written
from weft.capture.watch.unseen_changes import bases_of
from weft.capture.watch.values import CONTAINERS
from weft.core.number import Number, is_unknown, python_number
from weft.core.tensor import Tensor

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks
    from weft.capture.watch.watch import Known


# --- arrays --------------------------------------------------------------------------------------


def write_view(hooks: Hooks, array: Any, write: Callable[[], Any]) -> Any:
    """Write to an array of the run, which may be a view of one from outside."""
    bases = bases_of(hooks.watch, array)
    before = [known.obj.copy() for known in bases]
    result = write()
    for known, old in zip(bases, before, strict=True):
        reason = f"a view of {known.origin.text} is written to"
        hooks.watch.unseen.add(hooks.watch, known, old, reason)
    return result


def write_array(hooks: Hooks, known: Known, write: Callable[[], Any], text: str) -> Any:
    """Write to elements of an array from outside; a replay assigns the new elements."""
    array = known.obj
    kept = stores.store_of(known)
    if kept.original is None:
        kept.original = array.copy()
        original = kept.original
        hooks.watch.undo(lambda: np.copyto(array, original))
    hooks.watch.content(known)
    result = write()
    hooks.watch.effect(f"{known.origin.text}{text} …", np.copyto, known.origin, array.copy())
    return result


# --- keys ----------------------------------------------------------------------------------------


def key(hooks: Hooks, value: Any) -> Any:
    """A value is hashed: guard its identity, unless it is plain or has its own `__hash__`."""
    value = numbers_of(value)
    cls = type(value)
    if cls in operators.SIMPLE:
        return value
    if cls is TextParts:
        return str(value)
    if cls is Number:  # the Python number is hashed, so this asks for its value
        return python_number(value)
    if operators.special(cls, "__hash__") is not None or (
        operators.special(cls, "__eq__") is not None
    ):
        hooks.watch.refuse(f"{cls.__name__} is hashed by a rule of its own, which is not watched")
    elif type(value) is tuple:
        for part in value:
            hooks.key(part)
    elif not isinstance(value, Tensor):
        hooks.watch.identity(value)
    return value


def keys_of_all(hooks: Hooks, args: tuple[Any, ...]) -> None:
    """The keys of a new dict or set."""
    for value in args:
        if isinstance(value, CONTAINERS):
            for part in list(hooks.iter(value)):
                hooks.key(part[0] if type(part) is tuple and part else part)


# --- text ----------------------------------------------------------------------------------------


def text_part(hooks: Hooks, value: Any, conversion: int, spec: str) -> Any:
    """One value of an f-string: its text, or, with tensors in it, a part formatted at each call."""
    if isinstance(value, TextParts):
        if conversion in (-1, ord("s")) and not spec:
            return value
        value = str(value)
    value, spec = numbers_of(value), str(spec)
    if printing.shows_tensors(value):
        hooks.deep(value, "format", calls=False)
        return TextPart(value, conversion, spec)
    if conversion == ord("r") or conversion == ord("a"):
        value = printing.text_of(hooks, value, "__repr__", repr)
        value = ascii(value)[1:-1] if conversion == ord("a") and not value.isascii() else value
    elif conversion == ord("s"):
        value = printing.text_of(hooks, value, "__str__", str)
    return printing.formatted(hooks, value, spec)


def joined(hooks: Hooks, *parts: Any) -> Any:
    """An f-string. One with numbers of the graph, or that change from call to call, is made by each
    call."""
    later = [part for part in parts if not isinstance(part, str)]
    if not later:
        return "".join(parts)
    if hooks.flow.depth:  # where one side of an `if` may have another text
        waits = any(map(is_unknown, TextParts(later).numbers()))
    else:
        parts = tuple([_with_number(hooks, part) for part in parts])
        waits = all(number.__class__ is Number for number in TextParts(parts).numbers())
    return TextParts(parts) if waits else str(TextParts(parts))


def _with_number(hooks: Hooks, part: Any) -> Any:
    """`{loss:.3f}` of a tensor is a text of its number."""
    if part.__class__ is TextPart and part.spec and part.conversion == -1:
        number = of_tensor(hooks, part.value) if part.value.__class__ is Tensor else part.value
        if number.__class__ is Number:
            return TextPart(number, -1, part.spec)
    return part


def text(hooks: Hooks, *parts: Any) -> Any:
    """An f-string that is an argument of a call, which may print it at each replay."""
    if all(isinstance(part, str) for part in parts):
        return "".join(parts)
    for part in parts:
        if part.__class__ is TextPart:
            part.value = printing.as_it_is(part.value)
    return TextParts(parts)


def method_of_text(
    hooks: Hooks, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """ "…".format(n) and "…".join(texts), made by each call if need be; else NotImplemented."""
    if hooks.flow.depth:
        return NotImplemented
    if function.__name__ == "format":
        return written(filled, function.__self__, args, kwargs)
    if function.__name__ == "join" and len(args) == 1 and not isinstance(args[0], CONTAINERS):
        args = (list(hooks.iter(args[0])),)
    if function.__name__ == "join" and len(args) == 1 and type(args[0]) in (list, tuple):
        text = written(join, function.__self__, list(hooks.iter(args[0])))
        return function(*args) if text is NotImplemented else text
    return NotImplemented


# --- what leaves the watched code ----------------------------------------------------------------


def shallow(hooks: Hooks, value: Any) -> Any:
    """A container whose elements are passed on without being read."""
    known = hooks.watch.known(value)
    if known is not None:
        if isinstance(value, CONTAINERS):
            stores.whole(hooks.watch, known)
        elif isinstance(value, np.ndarray):
            hooks.watch.content(known)
    elif type(value) is tuple:
        for part in value:
            hooks.shallow(part)
    return value


def operand(hooks: Hooks, value: Any, other: Any) -> Any:
    """An operand of a builtin operator, which may look into containers and arrays."""
    if isinstance(value, np.ndarray):
        if isinstance(other, Tensor):
            return library.array_for_weft(hooks, value)
        known = hooks.watch.known(value)
        if known is not None:
            hooks.watch.content(known)
        return value
    return hooks.shallow(value) if isinstance(value, CONTAINERS) else value


def deep(hooks: Hooks, value: Any, user: str, calls: Calls = True) -> list[Known]:
    """Guard all of a value, which code that is not followed reads."""
    return guard_recursively.read(hooks, value, user, calls)


def deep_all(
    hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any], user: str, calls: Calls = True
) -> list[Known]:
    found: list[Known] = []
    for value in (*args, *kwargs.values()):
        found += hooks.deep(value, user, calls)
    return found
