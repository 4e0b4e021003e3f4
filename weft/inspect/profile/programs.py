"""Profiles compiled functions: kernel by kernel, or op by op if they are interpreted."""

from __future__ import annotations

import bisect
import threading
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from weft.base.source import SourceLocation
from weft.core.bind import bind
from weft.core.tensor import Tensor
from weft.inspect.profile.eager import Eager, now
from weft.inspect.profile.events import Event, MemoryChange
from weft.ir.graph import Node
from weft.ir.interpret import PreparedGraph, RunObserver
from weft.ir.types import TensorType
from weft.runtime.dataflow.timeline import Timeline
from weft.runtime.executable import Executable, Program, StepTime
from weft.runtime.machine_code import MachineCode
from weft.runtime.output_routing import Call
from weft.runtime.timed import KernelRun, Site, TimedProgram, read_runs, site_totals
from weft.schedule.plan import GraphPlan, Step, Work, work_of

__all__ = ["Programs"]

#: Beyond this number of events per run, only a sum per kernel is kept.
MOST = 20_000


_clock, _MONOTONIC, _thread = time.clock_gettime_ns, time.CLOCK_MONOTONIC, threading.get_ident
#: Copies of programs with timers, shared by all profiles.
_timed: WeakKeyDictionary[Program, TimedProgram] = WeakKeyDictionary()
_lock = threading.Lock()


class Programs:
    """An instrument (`weft.runtime.executable`) that records runs."""

    def __init__(self, eager: Eager) -> None:
        self.found: list[Event] = []
        self.memory: list[MemoryChange] = []
        self._eager = eager
        self.timelines: list[Timeline] = []
        self._kept: list[Any] = []
        self._known: dict[int, TimedProgram] = {}  # by id of a program, which is kept in:
        self._programs: list[Program] = []

    def __call__(self, executable: Executable, inputs: list[Tensor], proceed: Call) -> list[Tensor]:
        program = executable.program.for_inputs(inputs)
        timed = self._known.get(id(program))
        if timed is None:
            recorded = program.recorder()
            if recorded is not None:
                return self._in_frames(executable, recorded, inputs)
            by_steps = program.timed_steps()
            if by_steps is not None:
                return self._by_steps(executable, by_steps, inputs)
            code = program.machine_code()
            if code is None:
                return self._interpreted(executable, program, inputs)
            timed = self._build(executable, program, code)
        start = _clock(_MONOTONIC)
        outputs, *kept = timed.profiled(inputs)
        stop = _clock(_MONOTONIC)
        self._kept.append((timed, executable.name, start, stop, _thread(), *kept))
        return outputs

    # --- machine code -------------------------------------------------------------------------

    def _build(self, executable: Executable, program: Program, code: MachineCode) -> TimedProgram:
        with _lock:
            timed = _timed.get(program)
            if timed is None:
                begin = now()
                timed = _timed[program] = code.timed()
                thread = threading.get_ident()
                self.found.append(
                    Event("compile for profiling", "compile", begin, now(), thread, executable.name)
                )
        self._programs.append(program)
        self._known[id(program)] = timed
        return timed

    def finish(self) -> None:
        """Compute the events from the raw records of the runs."""
        for timed, name, start, stop, thread, events, beyond in self._kept:
            self.found.append(Event(name, "run", start, stop, thread, name))
            ran = read_runs(events)
            self.found += _kernel_events(timed, name, ran, beyond)
            self.memory += _memory(timed.code, timed.sites, ran)
        self._kept.clear()

    # --- GPUs -----------------------------------------------------------------------------------

    def _by_steps(
        self,
        executable: Executable,
        call: Callable[[list[Tensor]], tuple[list[Tensor], list[StepTime]]],
        inputs: list[Tensor],
    ) -> list[Tensor]:
        name, start, thread = executable.name, now(), threading.get_ident()
        with self._eager.resting():
            outputs, steps = call(inputs)
        device = executable.program.for_inputs(inputs).device
        self.found.append(Event(name, "run", start, now(), thread, name))
        for step in steps:
            times = start + step.start, start + step.stop
            made = _event(step.nodes, step.kind, step.work, name, *times, thread)
            made.device = device
            self.found.append(made)
        return outputs

    # --- the interpreter ----------------------------------------------------------------------

    def _interpreted(
        self, executable: Executable, running: Program, inputs: list[Tensor]
    ) -> list[Tensor]:
        start = now()
        watch = _Nodes(executable.name)
        program = PreparedGraph(running.graph)
        with self._eager.resting():  # its op calls are recorded as nodes
            slots = program.run(inputs, bind, watch=watch)
        thread = threading.get_ident()
        self.found.append(Event(executable.name, "run", start, now(), thread, executable.name))
        self.found += watch.events
        return [slots[i] for i in program.outputs]

    # --- the dataflow executor ----------------------------------------------------------------

    def _in_frames(
        self,
        executable: Executable,
        recorded: Callable[[list[Tensor]], tuple[list[Tensor], Timeline]],
        inputs: list[Tensor],
    ) -> list[Tensor]:
        name, start = executable.name, now()
        with self._eager.resting():
            outputs, timeline = recorded(inputs)
        self.found.append(Event(name, "run", start, now(), threading.get_ident(), name))
        self.timelines.append(timeline)
        critical = set(map(id, timeline.critical_path()))
        for step in timeline.steps:
            if step.is_control:
                continue
            work = work_of(step.node)
            self.found.append(
                Event(
                    *(step.node.op.name, "op", step.start, step.stop, step.thread, name),
                    *(_places([step.node]), work.flops, work.bytes),
                    itemsize=_itemsize([step.node]),
                    device=step.device,
                    where=step.where,
                    waited=step.start - step.ready,
                    critical=id(step) in critical,
                )
            )
        return outputs


class _Nodes(RunObserver):
    """Records each node of an interpreted run."""

    def __init__(self, program: str) -> None:
        self.program = program
        self.events: list[Event] = []
        self._starts: list[int] = []

    def before(self, node: Node, slots: list[Any]) -> None:
        self._starts.append(now())

    def after(self, node: Node, slots: list[Any]) -> None:
        start, stop = self._starts.pop(), now()
        kind = "control" if node.graphs else "op"
        thread = threading.get_ident()
        work = work_of(node)
        self.events.append(
            Event(
                *(node.op.name, kind, start, stop, thread, self.program),
                *(_places([node]), work.flops, work.bytes),
                itemsize=_itemsize([node]),
            )
        )

    def failed(self, node: Node, error: Exception) -> None:
        self._starts.pop()


# --- what kernels are ----------------------------------------------------------------------------


def _kernel_events(
    timed: TimedProgram, name: str, ran: list[KernelRun], beyond: bytes
) -> list[Event]:
    """An event for each run of a kernel, with the parts of its threads."""
    steps = {id(step.group): step for _, code in timed.code.walk() for step in code.steps}
    sites = timed.sites
    found: list[Event] = []
    starts: dict[str, tuple[list[int], list[Event]]] = {}  # of each kernel
    whole = sorted([one for one in ran if not sites[one.site].part], key=lambda one: one.start)
    for one in whole[:MOST]:
        site = sites[one.site]
        made = _site_event(site, steps.get(id(site.group)), name, one.start, one.stop, one.thread)
        found.append(made)
        times, events = starts.setdefault(site.kernel, ([], []))
        times.append(one.start)
        events.append(made)
    for one in ran:
        site = sites[one.site]
        times, events = starts.get(site.kernel, ([], []))
        at = bisect.bisect(times, one.start) - 1
        if site.part and at >= 0 and one.stop <= events[at].stop:
            events[at].parts.append((one.thread, one.start, one.stop))
    for site, (count, took) in zip(
        sites, site_totals(len(sites), beyond, whole[MOST:]), strict=True
    ):
        if not site.part and count:  # only their sum is kept
            end = ran[-1].stop
            rest = _site_event(site, steps.get(id(site.group)), name, end - took, end, 0)
            rest.count = count
            found.append(rest)
    return found


def _site_event(
    site: Site, step: Step | None, program: str, start: int, stop: int, thread: int
) -> Event:
    kinds = {"call": "call", "control": "control"}
    kind = "control" if site.inner else kinds.get(site.group.kind, "kernel")
    work = step.work() if step is not None and kind == "kernel" else None
    return _event(site.group.nodes, kind, work, program, start, stop, thread)


def _event(
    nodes: list[Node],
    kind: str,
    work: Work | None,
    program: str,
    start: int,
    stop: int,
    thread: int,
) -> Event:
    ops = list(dict.fromkeys(node.op.name for node in nodes))
    label = " ".join(ops[:4]) + (f" … {len(ops) - 4} more" if len(ops) > 4 else "")
    return Event(
        *(label, kind, start, stop, thread, program, _places(nodes)),
        *((work.flops, work.bytes) if work is not None else (0, 0)),
        itemsize=_itemsize(nodes),
    )


def _places(nodes: list[Node]) -> tuple[SourceLocation, ...]:
    return tuple(dict.fromkeys(node.location for node in nodes if node.location is not None))


def _itemsize(nodes: list[Node]) -> int:
    sizes = [
        value.type.dtype.itemsize
        for node in nodes
        for value in node.outputs
        if isinstance(value.type, TensorType)
    ]
    return max(sizes, default=4)


def _memory(code: GraphPlan, sites: list[Site], ran: list[KernelRun]) -> list[MemoryChange]:
    """The changes of arena memory at each step of the outermost graph."""
    number = {id(step.group): i for i, step in enumerate(code.steps)}
    timeline = code.memory.timeline(len(code.steps))
    changes: list[MemoryChange] = []
    used, last = 0, 0
    for one in sorted(ran, key=lambda one: one.start):
        step = number.get(id(sites[one.site].group))
        if step is not None and timeline[step] != used:
            changes.append(MemoryChange(one.start, timeline[step] - used))
            used = timeline[step]
        last = max(last, one.stop)
    if used:
        changes.append(MemoryChange(last, -used))
    return changes
