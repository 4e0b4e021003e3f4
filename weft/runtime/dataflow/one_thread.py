"""Schedulers with one thread: "fifo" and "deterministic"."""

from __future__ import annotations

import heapq
from collections import deque
from typing import Any

from weft.runtime.dataflow.run import Activation, Run

__all__ = ["deterministic", "fifo"]


def fifo(run: Run, inputs: list[Any]) -> None:
    """One thread, in the order in which nodes become ready."""
    ready: deque[Activation] = deque()
    run.start(inputs, ready.append)
    while ready:
        run.attempt(*ready.popleft())


def deterministic(run: Run, inputs: list[Any]) -> None:
    """One thread; of what is ready, what comes first in the program: as the interpreter runs."""
    ready: list[tuple[tuple[int, ...], Activation]] = []

    def push(activation: Activation) -> None:
        node, at = activation
        heapq.heappush(ready, ((*at.key, node), activation))

    run.start(inputs, push)
    while ready:
        run.attempt(*heapq.heappop(ready)[1])
