"""Python state that a program changes: a learning rate, what a first step makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from weft.core import bind as binding

F = TypeVar("F", bound=Callable[..., Any])


def deferred(method: F) -> F:
    """Mark a method that changes numbers in Python, and gives nothing back.

    Where a function is recorded, it is not followed: each replay calls it after the graph has run.
    """
    method.deferred = True  # type: ignore[attr-defined]
    return method


def prepared_by(name: str) -> Callable[[F], F]:
    """Mark a method that makes state when it is first called.

    When a function is recorded, the method `name` is called first, outside of the recording: it
    makes that state, and returns the keys of what it made in `state` of its object.
    """

    def mark(method: F) -> F:
        method.prepared_by = name  # type: ignore[attr-defined]
        return method

    return mark


def unrecorded(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function as if nobody recorded."""
    thread = binding._thread
    recorders, thread.recorders = thread.recorders, []
    try:
        return function(*args)
    finally:
        thread.recorders = recorders


def number_in(holder: dict[str, Any], key: str) -> Any:
    """`holder[key]`, a number that may change from call to call.

    While a function is recorded, a float from outside becomes an input of the graph, and this
    returns a tensor. Otherwise it would be a guard.
    """
    return holder[key]
