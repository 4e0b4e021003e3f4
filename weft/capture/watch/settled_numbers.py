"""Python's own numbers for those of a graph, for code that is not followed: it asks for each."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from weft.capture.watch.texts import TextParts, plain_keys
from weft.capture.watch.values import mapped
from weft.core.number import Number, is_outside, python_number


def settled(value: Any, keeps: bool = False) -> Any:
    """A value with Python's own numbers for those of the graph, also in containers and slices.

    With `keeps`, those that only the graph knows stay.
    """
    cls = value.__class__
    if cls is Number:
        return value if keeps and value.outside is None else python_number(value)
    if cls is TextParts:
        return value if keeps and not value.is_known else str(value)
    if cls is slice:
        return slice(*[settled(part, keeps) for part in (value.start, value.stop, value.step)])
    if cls in (list, tuple, set, frozenset):
        parts = [settled(part, keeps) for part in value]
        if all(map(operator.is_, parts, value)):
            return value
        if cls is list:  # the very list, which the code may write to
            value[:] = parts
            return value
        return cls(parts)
    if cls is dict:
        plain_keys(value)
        for key, part in list(value.items()):
            value[key] = settled(part, keeps)
    return value


def settled_call(
    args: tuple[Any, ...], kwargs: dict[str, Any], settle: Callable[[Any], Any] = settled
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call, settled."""
    return tuple([settle(x) for x in args]), {key: settle(x) for key, x in kwargs.items()}


def keeping(value: Any) -> Any:
    """A value settled as far as Python knows its numbers in each call."""
    return settled(value, keeps=True)


def sized(value: Any) -> Any:
    """A value with sizes for the ints that Python knows in each call: symbolic ones where the
    recording can have them so."""
    if is_outside(value) and value.kind == "int":
        return value.outside.size()
    if type(value) in (tuple, list):
        return mapped(value, sized)
    return value
