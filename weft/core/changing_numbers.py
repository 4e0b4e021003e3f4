"""Numbers that a program keeps changing: a learning rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., None])


def deferred(method: F) -> F:
    """Mark a method that changes numbers in Python, and gives nothing back.

    Where a function is recorded, it is not followed: each replay calls it after the graph has run.
    """
    method.deferred = True  # type: ignore[attr-defined]
    return method


def number_in(holder: dict[str, Any], key: str) -> Any:
    """`holder[key]`, of which only the value counts.

    Where a function is recorded, a float from outside is an input of the graph: a tensor comes
    back, and the number may be another one at each call. Otherwise it would be a guard.
    """
    return holder[key]
