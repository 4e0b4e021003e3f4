"""Executables: a graph at each of its stages, and the program that runs it.

Tools that observe runs (the stepper, the profiler, the NaN search) wrap the call of a program while
they are active. They cost nothing at other times: callers always call `executable.call`, and tools
replace that attribute.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from weft.base.dataclass import dataclass
from weft.base.errors import RangeError
from weft.core.autocast import as_recorded
from weft.core.grad_mode import mode
from weft.core.tensor import Tensor
from weft.ir.graph import Graph, Node
from weft.ir.signature import OutputRouting
from weft.runtime.output_routing import Call, deliver

if TYPE_CHECKING:
    from weft.runtime.machine_code import MachineCode
    from weft.schedule.plan import Work

__all__ = ["Executable", "Instrument", "Program", "StepTime", "instrumented"]


@dataclass(frozen=True, slots=True)
class StepTime:
    """What a part of a run took: nodes of the graph, and when it began and ended, in ns from the
    start of the run. `kind` is that of an event of a profile; `work`, its arithmetic and bytes."""

    nodes: list[Node]
    kind: str
    start: int
    stop: int
    work: Work


class Program:
    """Runs a graph, and answers the questions of tools about it.

    call     inputs -> all outputs, in tensors of their own, without gradients
    reason   why the graph runs op by op, or how a GPU runs it; empty for machine code
    device   the kind of device that its code is for
    way      what runs it where it is not machine code: "interpret", "dataflow", "split"
    """

    call: Call
    reason = ""
    device = "cpu"
    way = "interpret"
    _graph: Graph

    @property
    def graph(self) -> Graph:
        """The graph that runs. It may be computed now, if the code came from the cache."""
        return self._graph

    def routed_call(self, _routing: OutputRouting) -> Call | None:
        """A fast call that also delivers the outputs; None if there is none."""
        return None

    def scheduled(self) -> Graph:
        """The graph in the order of its kernels; the same graph if it runs op by op."""
        return self.graph

    def latest(self) -> Program:
        """The program itself; of several programs for different sizes, the one that ran last."""
        return self

    def for_inputs(self, _inputs: list[Tensor]) -> Program:
        """The program itself; of several programs for different sizes, the one for these inputs."""
        return self

    def recorder(self) -> Callable[[list[Tensor]], tuple[list[Tensor], Any]] | None:
        """A call that also returns what ran when, as a timeline; None if it keeps none."""
        return None

    def inserted(self) -> Sequence[Any]:
        """The collectives that splitting it over ranks inserted: see `weft.passes.layouts`."""
        return ()

    def timed_steps(
        self,
    ) -> Callable[[list[Tensor]], tuple[list[Tensor], list[StepTime]]] | None:
        """A call that also tells what each step took, part by part; None if there is none."""
        return None

    def machine_code(self) -> MachineCode | None:
        """Its machine code, to be inspected; None if it has none of its own."""
        return None


class Instrument(Protocol):
    """Runs an executable in its own way; `proceed(inputs)` is the call that it wraps."""

    def __call__(
        self, executable: Executable, inputs: list[Tensor], proceed: Call
    ) -> list[Tensor]: ...


class Executable:
    """A graph at each of its stages, and the program made from it."""

    def __init__(
        self,
        captured: Graph,
        optimize: Callable[[Graph], Graph],
        build: Callable[[Graph, Mapping[int, int], Callable[[], Graph]], Program],
        routing: OutputRouting | None = None,
    ) -> None:
        """`build` gets the captured graph, the outputs that become values of inputs, and a function
        that returns the optimized graph: code from the cache does not need it.
        `routing` says which outputs a call delivers to its inputs."""
        self.captured = captured
        self.recording = 0  # of a captured function: which of its recordings this is a part of
        self.routing = routing or OutputRouting()
        #: The time of each stage; that of the passes is set when they have run.
        self.seconds = {"passes": 0.0, "code": 0.0}
        start = time.perf_counter()
        with as_recorded():
            optimized = _once(captured, optimize, self.seconds)
            self.program = build(captured, self.routing.values, optimized)
        self.seconds["code"] = time.perf_counter() - start - self.seconds["passes"]
        self._plain = self._build_call()
        self.call: Call = self._plain
        with _lock:
            _live.add(self)
            self._install_instruments()

    @property
    def name(self) -> str:
        return self.captured.name

    @property
    def optimized(self) -> Graph:
        return self.program.graph

    def graph(self, stage: str = "optimized") -> Graph:
        """The graph as "captured", "optimized", or "scheduled" into kernels."""
        if stage == "captured":
            return self.captured
        if stage == "optimized":
            return self.optimized
        if stage == "scheduled":
            return self.program.scheduled()
        raise RangeError(
            f"there is no stage {stage!r}", op="graph", hint='"captured", "optimized", "scheduled"'
        )

    def _build_call(self) -> Call:
        """The call without instruments."""
        if not self.routing:
            return self.program.call
        return self.program.routed_call(self.routing) or self._delivering(self.program.call)

    def _delivering(self, call: Call) -> Call:
        routing = self.routing

        def run(inputs: list[Tensor]) -> list[Tensor]:
            return deliver(routing, inputs, call(inputs))

        return run

    def _install_instruments(self) -> None:
        """Wrap the call in the active instruments."""
        if not _instruments:
            self.call = self._plain
            return
        call = self.program.call
        for instrument in _instruments:
            call = functools.partial(_through, instrument, self, call)
        self.call = self._delivering(call) if self.routing else call

    def __repr__(self) -> str:
        return f"<executable {self.name}: {len(self.optimized.nodes)} ops>"


def _once(
    graph: Graph, optimize: Callable[[Graph], Graph], seconds: dict[str, float]
) -> Callable[[], Graph]:
    """A function that optimizes a graph when it is first called, and returns the result."""

    @functools.cache
    def optimized() -> Graph:
        start = time.perf_counter()
        with as_recorded():
            made = optimize(graph)
        seconds["passes"] += time.perf_counter() - start
        return made

    return optimized


def _through(
    instrument: Instrument, executable: Executable, proceed: Call, inputs: list[Tensor]
) -> list[Tensor]:
    before, mode.enabled = mode.enabled, False
    try:
        with as_recorded():
            return instrument(executable, inputs, proceed)
    finally:
        mode.enabled = before


_lock = threading.Lock()
_live: weakref.WeakSet[Executable] = weakref.WeakSet()
_instruments: list[Instrument] = []


@contextlib.contextmanager
def instrumented(instrument: Instrument) -> Iterator[None]:
    """Inside, an instrument runs all executables: also in other threads, and new ones."""
    _change(_instruments.append, instrument)
    try:
        yield
    finally:
        _change(_instruments.remove, instrument)


def _change(how: Callable[[Any], None], instrument: Instrument) -> None:
    with _lock:
        how(instrument)
        for executable in list(_live):
            executable._install_instruments()
