"""Numbers that a program keeps changing: a learning rate."""

from __future__ import annotations

from typing import Any


def number_in(holder: dict[str, Any], key: str) -> Any:
    """`holder[key]`, of which only the value counts.

    Where a function is recorded, a float from outside is an input of the graph: a tensor comes
    back, and the number may be another one at each call. Otherwise it would be a guard.
    """
    return holder[key]
