"""The content of a report. `plain` converts it to data for JSON, `sections.py` to text."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from weft.base.source import SourceLocation
from weft.capture.trace.inspectable import CacheInfo
from weft.runtime.peak import Peak


@dataclass(frozen=True, slots=True)
class SourceLine(SourceLocation):
    """A location with the text of its line at the time of the report."""

    text: str = ""


Location = SourceLine | None


def with_text(place: SourceLocation | None) -> Location:
    """A location with the text of its line."""
    if place is None:
        return None
    forward = with_text(place.forward)
    where = (place.file, place.line, place.function, place.module, place.role)
    return SourceLine(*where, forward, place.of, text=place.text)


# --- how it was captured -------------------------------------------------------------------------


@dataclass(frozen=True)
class Branch:
    """A condition in the graph. `sides`: the number of ops of each branch, by name."""

    op: str
    sides: dict[str, int]
    place: Location


@dataclass(frozen=True)
class Loop:
    """A loop in the graph. `rounds` is None if the number of iterations depends on tensors."""

    op: str
    rounds: int | None
    ops: int
    carried: list[str]
    place: Location


@dataclass(frozen=True)
class Unrolled:
    """A loop that was unrolled."""

    rounds: int
    why: str
    place: Location


@dataclass(frozen=True)
class Decision:
    """A condition on Python values, decided during recording."""

    answers: list[bool]
    place: Location


@dataclass
class Followed:
    """A function that was captured. `weft`: it is Weft's own; `itself`: it is the one explained."""

    function: str
    times: int
    weft: bool
    itself: bool
    place: Location


@dataclass(frozen=True)
class PythonCall:
    """A call into Python during a run."""

    op: str
    what: str
    place: Location


@dataclass(frozen=True)
class Question:
    """A place where a trace asked a tensor for its value."""

    what: str
    type: str
    answers: list[str]
    place: Location


@dataclass(frozen=True)
class Capture:
    """Control flow and calls of all recorded paths; `paths`: the number of ops of each path."""

    branches: list[Branch]
    loops: list[Loop]
    unrolled: list[Unrolled]
    decided: list[Decision]
    followed: list[Followed]
    python: list[PythonCall]
    questions: list[Question]
    paths: list[int]


@dataclass(frozen=True)
class Guard:
    """A condition under which a recording is reused. `once`: it is checked only after a module or
    an optimizer has changed."""

    holds: str
    kind: str
    once: bool
    place: Location


@dataclass(frozen=True)
class Read:
    what: str
    type: str
    argument: bool


@dataclass(frozen=True)
class Write:
    """A tensor that is written. `written`: "value", "gradient", or both."""

    what: str
    type: str
    written: list[str]


@dataclass(frozen=True)
class Effect:
    """A Python side effect that each call repeats."""

    what: str
    place: Location


@dataclass(frozen=True)
class State:
    """Tensors from outside that are read, those that are written, and side effects."""

    read: list[Read]
    written: list[Write]
    effects: list[Effect]


@dataclass
class Line:
    """Ops of one line that the backward recomputes."""

    ops: list[str]
    place: Location


@dataclass(frozen=True)
class Recomputation:
    """For a path with a backward: what is saved for it, and how much is recomputed.

    bytes_used, peak_used   the figures if everything that the backward uses were saved
    """

    saved: int
    bytes_saved: int
    bytes_used: int
    again: int
    flops: int
    peak: int
    peak_used: int
    budget: float | None
    reached: bool
    lines: list[Line]


@dataclass(frozen=True)
class RecordingTime:
    """A recording. `seconds` include the time to compile it, `record` does not."""

    number: int
    reason: str
    outcome: str
    seconds: float
    record: float


# --- what runs -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pass:
    """What a pass changed, and the number of ops before and after."""

    name: str
    note: str
    before: int
    after: int
    seconds: float


@dataclass(frozen=True)
class Figures:
    """
    flops, bytes   of arithmetic and of memory traffic
    open           they are for one iteration of a loop whose length depends on tensors
    roofline       the shortest possible time on this machine
    bound          what limits that time: arithmetic, memory, cache
    share          roofline / measured time
    """

    flops: int
    bytes: int
    open: bool
    roofline: float
    bound: str
    share: float | None


@dataclass(frozen=True)
class Reason:
    """Why an op is in its kernel. `joined`: it was fused into it and is computed nowhere else."""

    op: str
    why: str
    joined: bool
    place: Location


@dataclass(frozen=True, kw_only=True)
class Kernel(Figures):
    """
    number   "3"; in control flow, "3.1.0" is the first of graph 1 of step 3
    reads    bytes
    room     bytes of memory that only this kernel uses
    """

    number: str
    name: str
    kind: str
    ops: list[str]
    places: list[Location]
    why: list[Reason]
    reads: int
    writes: list[str]
    room: int
    parallel: bool
    measured: float | None


@dataclass(frozen=True)
class MemoryValue:
    """A value in the arena, alive from step `first` to step `last`, inclusive."""

    what: str
    bytes: int
    offset: int
    first: int
    last: int
    place: Location


@dataclass
class Alive:
    """The values of one line that are alive at the peak."""

    bytes: int
    values: list[str]
    place: Location


@dataclass(frozen=True)
class Memory:
    """
    timeline   the bytes in use at each step
    at         the step of the peak; `alive` lists the values alive there
    """

    peak: int
    lower_bound: int
    values: list[MemoryValue]
    timeline: list[int]
    at: int
    alive: list[Alive]
    inputs: int
    outputs: int


@dataclass(frozen=True)
class InPlace:
    """A result that is written over an input."""

    output: int
    input: int
    name: str
    type: str


@dataclass(frozen=True)
class Message:
    """A collective that splitting a program over ranks inserted.

    over   the mesh axes along which ranks take part
    bytes  what each rank sends
    """

    name: str
    over: tuple[str, ...]
    value: str
    to: str
    bytes: int
    why: str
    place: Location


@dataclass(frozen=True)
class Program:
    """
    captured, optimized, scheduled   the number of ops at each stage
    from_disk                        whether its machine code was in the cache
    reason                           why it runs op by op, if it does
    ran                              whether the explained call ran it
    recording                        the number of the recording that it is a part of
    """

    name: str
    recording: int
    backend: str
    captured: int
    optimized: int
    scheduled: int
    inputs: list[str]
    outputs: list[str]
    passes: list[Pass]
    seconds: dict[str, float]
    measured: float | None
    from_disk: bool
    reason: str
    kernels: list[Kernel]
    memory: Memory
    in_place: list[InPlace]
    work: Figures
    ran: bool
    messages: list[Message] = field(default_factory=list)


@dataclass(frozen=True)
class Size:
    """A symbolic size. `known`: the sizes that it may be, or why it is fixed."""

    recording: int
    name: str
    where: str
    known: str


@dataclass(frozen=True)
class Facts:
    """The whole report. `capture_by`: "source", "trace", "program"; `compile`: seconds by stage."""

    name: str
    place: Location
    capture_by: str
    recordings: list[RecordingTime]
    calls: CacheInfo
    eager_calls: int
    capture: Capture
    guards: list[Guard]
    state: State
    programs: list[Program]
    recomputation: list[Recomputation]
    compile: dict[str, float] = field(default_factory=dict)
    sizes: list[Size] = field(default_factory=list)
    machine: Peak = field(kw_only=True)


def plain(fact: Any) -> Any:
    """Facts as dicts, lists, numbers and text."""
    if isinstance(fact, SourceLine):
        parts = {"module": fact.module, "role": fact.role, "of": fact.of, "forward": fact.forward}
        found = {"file": fact.file, "line": fact.line, "function": fact.function, "text": fact.text}
        return found | {name: plain(part) for name, part in parts.items() if part}
    if is_dataclass(fact):
        return {part.name: plain(getattr(fact, part.name)) for part in fields(fact)}
    if isinstance(fact, CacheInfo):
        return fact._asdict()
    if isinstance(fact, dict):
        return {name: plain(part) for name, part in fact.items()}
    return [plain(part) for part in fact] if isinstance(fact, (list, tuple)) else fact
