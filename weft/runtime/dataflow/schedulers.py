"""Which of the nodes that are ready runs next: schedulers, by name.

A scheduler is a function of a run and its inputs. It starts the run with what takes nodes that
become ready, and steps through these until none is left:

    @weft.register_scheduler("last first")
    def last_first(run, inputs):
        ready = []
        run.start(inputs, ready.append)
        while ready:
            run.attempt(*ready.pop())

`attempt` is `step` for a scheduler of one thread: it notes what a node raises, and skips what need
not run after an error. Those with several threads are in `weft.runtime.dataflow.pool`.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import Any

from weft.base.errors import RangeError
from weft.runtime.dataflow.run import Activation, Run

__all__ = ["register_scheduler", "scheduler_named", "unregister_scheduler"]

Scheduler = Callable[[Run, list[Any]], None]
_SCHEDULERS: dict[str, Scheduler] = {}


def register_scheduler(name: str) -> Callable[[Scheduler], Scheduler]:
    """Make a scheduler known: `weft.Dataflow(scheduler=name)`. See docs/dataflow.md."""
    if name in _SCHEDULERS:
        raise RangeError(f"there is already a scheduler {name!r}", op="register_scheduler")

    def register(made: Scheduler) -> Scheduler:
        _SCHEDULERS[name] = made
        return made

    return register


def unregister_scheduler(name: str) -> None:
    """Forget a scheduler that `register_scheduler` made known."""
    scheduler_named(name)
    del _SCHEDULERS[name]


def scheduler_named(name: str) -> Scheduler:
    found = _SCHEDULERS.get(name)
    if found is None:
        known = ", ".join(f'"{known}"' for known in _SCHEDULERS)
        raise RangeError(f"there is no scheduler {name!r}", op="Dataflow", hint=known)
    return found


@register_scheduler("fifo")
def fifo(run: Run, inputs: list[Any]) -> None:
    """One thread, in the order in which nodes become ready."""
    ready: deque[Activation] = deque()
    run.start(inputs, ready.append)
    while ready:
        run.attempt(*ready.popleft())


@register_scheduler("deterministic")
def deterministic(run: Run, inputs: list[Any]) -> None:
    """One thread; of what is ready, what comes first in the program: as the interpreter runs."""
    ready: list[tuple[tuple[int, ...], Activation]] = []

    def push(activation: Activation) -> None:
        node, at = activation
        heapq.heappush(ready, ((*at.key, node), activation))

    run.start(inputs, push)
    while ready:
        run.attempt(*heapq.heappop(ready)[1])
