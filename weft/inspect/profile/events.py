"""What a profile is made of: things that took time, and memory that came and went."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from weft.base.source import SourceLocation

__all__ = ["Event", "MemoryChange"]


@dataclass(slots=True)
class Event:
    """Something that took from `start` to `stop`, in ns.

    kind      "op", "backward" (of an op, eagerly), "kernel", "call" (into Python), "control",
              "run" (of a compiled function, all around its kernels), "compile"
    count     how often it ran: more than once where a profile keeps only the sum
    program   the name of the compiled function that it is part of
    places    the user's lines that it came from, each once
    flops, bytes   estimated from shapes and dtypes; of the whole kernel, not of a thread's part
    threads   how many threads' parts it is the sum of
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

    @property
    def seconds(self) -> float:
        return (self.stop - self.start) * 1e-9

    @property
    def holds_others(self) -> bool:
        """Whether its time is that of other events, too."""
        return self.kind in ("run", "control")


class MemoryChange(NamedTuple):
    """Bytes that came (or went) at a time, in ns."""

    time: int
    bytes: int
