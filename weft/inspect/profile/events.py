"""The events of a profile: work that took time, and changes of memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from weft.base.source import SourceLocation

__all__ = ["Event", "MemoryChange"]


@dataclass(slots=True)
class Event:
    """Work from `start` to `stop`, in ns.

    kind      "op", "backward" (of an op, eagerly), "kernel", "call" (into Python), "control",
              "run" (a call of a compiled function, including its kernels), "compile"
    count     how often it ran; more than 1 if the profile keeps only the sum
    program   the name of the compiled function that it is part of
    places    the user's lines that it computes
    flops, bytes   estimated from shapes and dtypes, for the whole kernel
    threads   the number of threads whose parts it sums up
    device    of a node that the dataflow executor ran: on which device
    where     and in which iteration
    waited    and how long it waited for a thread, in ns
    critical  whether it is on the critical path of its run
    """

    name: str
    kind: str
    start: int
    stop: int
    thread: int
    program: str = ""
    places: tuple[SourceLocation, ...] = ()
    flops: int = 0
    bytes: int = 0
    count: int = 1
    parts: list[tuple[int, int, int]] = field(default_factory=list)
    itemsize: int = 4
    device: str = ""
    where: str = ""
    waited: int = 0
    critical: bool = False

    @property
    def seconds(self) -> float:
        return (self.stop - self.start) * 1e-9

    @property
    def holds_others(self) -> bool:
        """Whether its time includes that of other events."""
        return self.kind in ("run", "control")


class MemoryChange(NamedTuple):
    """Bytes that were allocated, or freed if negative, at a time in ns."""

    time: int
    bytes: int
