"""The road end to end: capture, passes, and what runs the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.capture.trace import Traced
from weft.ir.graph import Graph
from weft.passes.pipeline import optimize, passes
from weft.passes.stop_gradient import DropStopGradient

__all__ = ["trace"]


def trace(
    function: Callable[..., Any] | None = None, *, limit: int = 64
) -> Any:
    """`function`, recorded when it is first called, and replayed as a graph afterwards.

    Where Python asks a tensor for its value, the answer is part of the recording: a call that
    answers differently records a path beside the first. All Python values that the run read are
    guards, so that nothing is ever served stale.

    >>> @weft.trace
    ... def f(x):
    ...     return x * 2 if x.sum() > 0 else -x
    >>> f(weft.tensor([1.0, 2.0])), f(weft.tensor([-1.0, -2.0]))
    (tensor([2., 4.]), tensor([1., 2.]))
    >>> len(f.recordings)
    2

    limit   how many recordings to make before calls that none fits run as plain Python
    """
    if function is None:
        return lambda found: trace(found, limit=limit)
    return Traced(function, _prepared, limit)


def _prepared(graph: Graph) -> Graph:
    """A graph as it is run: never differentiated itself, as its backward is a graph of its own."""
    return optimize(graph, [DropStopGradient(), *passes()])
