"""Programs that say when each of their kernels ran: what a profile runs."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from weft.codegen.timing import ROOM, Site
from weft.core.tensor import Tensor
from weft.ir.graph import Graph
from weft.runtime.native import NativeProgram

__all__ = ["Ran", "TimedProgram", "noted", "totals"]


@dataclass(frozen=True, slots=True)
class Ran:
    """One time that a site ran, or a part of it on one thread; times in ns."""

    site: int
    thread: int
    start: int
    stop: int


class TimedProgram(NativeProgram):
    """A program whose kernels are noted as they run."""

    timed = True

    def __init__(self, graph: Graph, written: Mapping[int, int] | None = None) -> None:
        super().__init__(graph, written)
        self._one_at_a_time = threading.Lock()
        address = self.library.address
        self._events, self._totals = address("events"), address("site_totals")
        self._count = ctypes.c_int64.from_address(address("event_count"))
        made, self.code = self.generate()
        assert made.timing is not None
        self.sites: list[Site] = made.timing.sites

    def profiled(self, inputs: list[Tensor]) -> tuple[list[Tensor], bytes, bytes]:
        """The outputs, and what `noted` and `totals` read."""
        with self._one_at_a_time:
            self._count.value = 0
            ctypes.memset(self._totals, 0, 16 * len(self.sites))
            outputs = self.call(inputs)
            kept = ctypes.string_at(self._events, 32 * min(self._count.value, ROOM))
            return outputs, kept, ctypes.string_at(self._totals, 16 * len(self.sites))


def noted(raw: bytes) -> list[Ran]:
    """What ran, at most `ROOM` of them."""
    return [Ran(*row) for row in struct.iter_unpack("4q", raw)]


def totals(raw: bytes) -> list[tuple[int, int]]:
    """How often each site ran, and how long."""
    return [(count, took) for count, took in struct.iter_unpack("2q", raw)]
