"""The ways a function can be captured: each must give what eager gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft

MODES = ["trace", "source"]

#: How near gradients have to be, relatively. Values are equal bit by bit in every mode. What meets
#: in one gradient is added in the order of the graph: in a trace that is the order of eager, while
#: the backward loop of a captured loop adds up each pass of its body first.
GRADIENTS_NEAR = {"trace": 0.0, "source": 1e-10}

Function = Callable[..., Any]


def _trace(function: Function) -> Any:
    return weft.trace(function)


def _source(function: Function) -> Any:
    return weft.compile(function, capture="source")


CAPTURES: dict[str, Callable[[Function], Any]] = {"trace": _trace, "source": _source}


def _lacks(mode: str) -> str:
    """Why a mode cannot be had, in words; empty if it can."""
    name = {"trace": "trace", "source": "compile"}[mode]
    if not callable(getattr(weft, name, None)):
        return f"weft.{name} is not there yet"
    try:
        CAPTURES[mode](lambda x: x)
    except (NotImplementedError, TypeError, ValueError) as error:
        return f"weft.{name} has no {mode} capture yet: {error}"
    return ""


def capture(mode: str, function: Function) -> Any:
    """`function`, captured; the test is skipped where Weft has no such mode yet."""
    if reason := _lacks(mode):
        pytest.skip(reason)
    return CAPTURES[mode](function)


def allowed(mode: str) -> dict[str, Any]:
    """What `compare.difference` lets pass in a mode.

    What a graph decides is a tensor, also where it was a Python number.
    """
    return {"loose": mode == "source", "gradients_near": GRADIENTS_NEAR[mode]}
