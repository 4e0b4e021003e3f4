"""Graphs made ready to run: what each was on the way, and what runs it now.

Tools that look at runs (the stepper, the profiler, the search for NaN) stand between the caller and
the program while they are asked to, and cost nothing at all other times: a caller always calls
`executable.call`, and that is what they exchange.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from weft.base.errors import RangeError
from weft.core.tensor import Tensor
from weft.ir.graph import Graph
from weft.schedule.decompose import decompose

__all__ = ["Executable", "Instrument", "instrumented"]

Call = Callable[[list[Tensor]], list[Tensor]]


class Runs(Protocol):
    """A program: what `weft.runtime.native` makes of a graph."""

    graph: Graph

    @property
    def call(self) -> Call: ...


class Instrument(Protocol):
    """Runs an executable in its own way; `proceed(inputs)` is the way it would have run."""

    def __call__(
        self, executable: Executable, inputs: list[Tensor], proceed: Call
    ) -> list[Tensor]: ...


class Executable:
    """A graph at its stages, with the program made of it."""

    def __init__(
        self,
        captured: Graph,
        optimize: Callable[[Graph], Graph],
        build: Callable[[Graph, Mapping[int, int]], Runs],
        written: Mapping[int, int] | None = None,
    ) -> None:
        """`written`: outputs that will take the place of inputs, by their numbers."""
        self.captured = captured
        self.written = dict(written or {})
        start = time.perf_counter()
        self.optimized = optimize(captured)
        between = time.perf_counter()
        self.program = build(self.optimized, self.written)
        #: How long each stage took.
        self.seconds = {"passes": between - start, "code": time.perf_counter() - between}
        self.call: Call = self.program.call
        with _lock:
            _live.add(self)
            self._dress()

    @property
    def name(self) -> str:
        return self.captured.name

    def graph(self, stage: str = "optimized") -> Graph:
        """The graph as it was "captured", "optimized", or "scheduled" into kernels."""
        if stage == "captured":
            return self.captured
        if stage == "optimized":
            return self.optimized
        if stage == "scheduled":
            return decompose(self.optimized)
        raise RangeError(
            f"there is no stage {stage!r}", op="graph", hint='"captured", "optimized", "scheduled"'
        )

    def _dress(self) -> None:
        """Let the instruments of now stand between the caller and the program."""
        call = self.program.call
        for instrument in _instruments:
            call = functools.partial(_through, instrument, self, call)
        self.call = call

    def __repr__(self) -> str:
        return f"<executable {self.name}: {len(self.optimized.nodes)} ops>"


def _through(
    instrument: Instrument, executable: Executable, proceed: Call, inputs: list[Tensor]
) -> list[Tensor]:
    return instrument(executable, inputs, proceed)


_lock = threading.Lock()
_live: weakref.WeakSet[Executable] = weakref.WeakSet()
_instruments: list[Instrument] = []


@contextlib.contextmanager
def instrumented(instrument: Instrument) -> Iterator[None]:
    """Let an instrument run all executables, those of other threads and later ones, too."""
    _change(_instruments.append, instrument)
    try:
        yield
    finally:
        _change(_instruments.remove, instrument)


def _change(how: Callable[[Any], None], instrument: Instrument) -> None:
    with _lock:
        how(instrument)
        for executable in list(_live):
            executable._dress()
