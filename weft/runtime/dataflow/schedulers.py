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
not run after an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base.errors import DTypeError, RangeError
from weft.runtime.dataflow.one_thread import deterministic, fifo
from weft.runtime.dataflow.pool import pool, priority
from weft.runtime.dataflow.run import Run

__all__ = ["register_scheduler", "scheduler_named", "unregister_scheduler"]

Scheduler = Callable[[Run, list[Any]], None]
_SCHEDULERS: dict[str, Scheduler] = {
    "fifo": fifo,
    "pool": pool,
    "priority": priority,
    "deterministic": deterministic,
}
_BUILT_IN = frozenset(_SCHEDULERS)


def register_scheduler(name: str) -> Callable[[Scheduler], Scheduler]:
    """Make a scheduler known: `weft.Dataflow(scheduler=name)`. See docs/dataflow.md."""
    if not isinstance(name, str) or not name:
        raise DTypeError(f"{name!r:.60} is no name of a scheduler", op="register_scheduler")
    if name in _SCHEDULERS:
        raise RangeError(f"there is already a scheduler {name!r}", op="register_scheduler")

    def register(made: Scheduler) -> Scheduler:
        if not callable(made):
            raise DTypeError(f"{made!r:.60} is no function", op="register_scheduler")
        _SCHEDULERS[name] = made
        return made

    return register


def unregister_scheduler(name: str) -> None:
    """Forget a scheduler that `register_scheduler` made known."""
    if name in _BUILT_IN:
        raise RangeError(
            f"the scheduler {name!r} is Weft's own",
            op="unregister_scheduler",
            hint="it stays known",
        )
    _find(name, "unregister_scheduler")
    del _SCHEDULERS[name]


def scheduler_named(name: str) -> Scheduler:
    return _find(name, "Dataflow")


def _find(name: str, op: str) -> Scheduler:
    found = _SCHEDULERS.get(name) if isinstance(name, str) else None
    if found is None:
        known = ", ".join(f'"{known}"' for known in _SCHEDULERS)
        raise RangeError(f"there is no scheduler {name!r:.60}", op=op, hint=f"there are {known}")
    return found
