"""Values that leave the watched code: as text, keys, operands and arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base.asked_sizes import numbers_of
from weft.capture.watch import guard_recursively, library, operators, printing, stores
from weft.capture.watch.effects import TextPart, TextParts
from weft.capture.watch.guard_recursively import Calls
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
        value = str(value)
    value = numbers_of(value)
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
    """An f-string. Inside of a loop of the graph, one with numbers of it has no text yet."""
    if hooks.flow.depth and any(isinstance(p, TextPart) and is_unknown(p.value) for p in parts):
        return TextParts(parts)
    return "".join(part.text() if isinstance(part, TextPart) else part for part in parts)


def text(hooks: Hooks, *parts: Any) -> Any:
    """An f-string that is an argument of a call, which may print it at each replay."""
    if any(isinstance(part, TextPart) for part in parts):
        return TextParts(parts)
    return "".join(parts)


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
