"""Python's own numbers for those of a graph, for code that is not followed: it asks for each."""

from __future__ import annotations

import operator
from typing import Any

from weft.capture.watch.texts import TextParts, plain_keys
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


def settled_all(args: tuple[Any, ...], keeps: bool = False) -> tuple[Any, ...]:
    return tuple([settled(value, keeps) for value in args])


def settled_named(kwargs: dict[str, Any], keeps: bool = False) -> dict[str, Any]:
    if not kwargs:
        return kwargs
    return {key: settled(value, keeps) for key, value in kwargs.items()}


def sized(value: Any) -> Any:
    """A value with sizes for the ints that Python knows in each call: symbolic ones where the
    recording can have them so."""
    if is_outside(value) and value.kind == "int":
        return value.outside.size()
    if type(value) in (tuple, list):
        parts = [sized(part) for part in value]
        return value if all(map(operator.is_, parts, value)) else type(value)(parts)
    return value
