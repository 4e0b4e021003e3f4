"""Programs that record when each of their kernels ran, for profiles."""

from __future__ import annotations

import ctypes
import struct
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from weft.codegen.timing import ROOM, Site
from weft.core.tensor import Tensor
from weft.ir.graph import Graph
from weft.runtime.native import NativeProgram

__all__ = ["KernelRun", "Site", "TimedProgram", "read_runs", "site_totals"]


@dataclass(frozen=True, slots=True)
class KernelRun:
    """One run of a site, or the part of a run on one thread; times are in ns."""

    site: int
    thread: int
    start: int
    stop: int


class TimedProgram(NativeProgram):
    """A program that records the runs of its kernels, by a system clock (`time.CLOCK_…`)."""

    def __init__(
        self,
        graph: Graph,
        written: Mapping[int, int] | None = None,
        clock: int = time.CLOCK_MONOTONIC,
    ) -> None:
        self.clock = clock
        super().__init__(graph, written)
        self._one_at_a_time = threading.Lock()
        address = self.library.address
        self._totals = address("site_totals")
        self._rows = memoryview((ctypes.c_char * (32 * ROOM)).from_address(address("events")))
        self._count = ctypes.c_int64.from_address(address("event_count"))
        made, plan = self.generate()
        self.code = plan.root
        assert made.timing is not None
        self.sites: list[Site] = made.timing.sites

    def profiled(self, inputs: list[Tensor]) -> tuple[list[Tensor], bytes, bytes]:
        """The outputs, and the raw data for `read_runs` and `site_totals`."""
        with self._one_at_a_time:
            self._count.value = 0
            outputs = self.call(inputs)
            count = self._count.value
            if count <= ROOM:
                return outputs, bytes(self._rows[: 32 * count]), b""
            kept = bytes(self._rows)
            beyond = ctypes.string_at(self._totals, 16 * len(self.sites))
            ctypes.memset(self._totals, 0, len(beyond))
            return outputs, kept, beyond


def read_runs(raw: bytes) -> list[KernelRun]:
    """The recorded runs, at most `ROOM` of them."""
    return [KernelRun(*row) for row in struct.iter_unpack("4q", raw)]


def site_totals(sites: int, beyond: bytes, ran: Iterable[KernelRun] = ()) -> list[tuple[int, int]]:
    """For each site, the number of runs and their total time: those beyond `ROOM`, and `ran`."""
    sums = [list(pair) for pair in struct.iter_unpack("2q", beyond or bytes(16 * sites))]
    for one in ran:
        sums[one.site][0] += 1
        sums[one.site][1] += one.stop - one.start
    return [(count, took) for count, took in sums]
