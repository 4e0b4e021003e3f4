"""A program with control flow of all kinds, and where its lines are: for tests of reports."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import weft

BACKENDS = ("native", "interpret")


def line_of(function: Callable[..., Any], text: str) -> int:
    """The number of the first line of a function that holds a text."""
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


def helper(x: Any) -> Any:
    return weft.tanh(x) * 2


def flowing(x: Any, flag: bool = True) -> Any:
    """Data-dependent control flow of all kinds."""
    for _ in range(3):
        x = helper(x)
    for factor in [1.5, 2.0]:
        x = x * factor
    if flag:
        x = x + 1
    if x.sum() > 0:
        x = x - 1
    else:
        x = weft.abs(x)
        x = x * 3
    k = 0
    while k < 4:
        k += 1
    while x.sum() > 1:
        x = x / 2
    x = weft.py_call(lambda a: a.numpy() + k, weft.spec((4, 4)), x)
    return x @ x
