"""The sections of a report: a short summary first, then the details."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from weft.base.source import SourceLocation
from weft.inspect.explain.blocks import (
    Bar,
    Block,
    Cell,
    Code,
    Dim,
    Line,
    Name,
    Place,
    Row,
    Section,
    Table,
)
from weft.inspect.explain.facts import Facts, Program
from weft.inspect.explain.program_sections import program_sections
from weft.inspect.explain.style import shown_bytes, shown_flops, shown_seconds

__all__ = ["sections_of"]

#: Of more recordings than this, the summary shows the latest.
MOST_SUMMARIES = 3


def sections_of(facts: Facts, *, all_programs: bool = True) -> list[Section]:
    """`all_programs`: show also the programs that the call did not run."""
    makers = [make for make in SECTIONS if facts.sizes or make is not _symbolic_sizes]
    found = [make(facts) for make in makers]
    at = makers.index(_recomputation)
    programs = facts.programs
    ran = [program.ran for program in programs]
    made: list[Section] = []
    for number, program in enumerate(programs):
        several = len(programs) > 1
        if all_programs or program.ran or not any(ran):
            made += program_sections(program, number if several else None)
        else:
            made.append(_other(program, number))
    return [*found[:at], *made, *found[at:]]


def _other(program: Program, number: int) -> Section:
    brief = (
        f"{program.captured} → {program.optimized} ops, {len(program.kernels)} kernels; "
        "not run by this call"
    )
    return Section(f"Recording {program.recording}, program {number} ({program.name})", brief)


def code_at(where: SourceLocation | None) -> Code:
    return Code("" if where is None else where.text)


def plural(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


# --- what all of it comes to ---------------------------------------------------------------------


def _summary(facts: Facts) -> Section:
    programs = facts.programs
    where = facts.place
    by = {"source": "compiled from its source", "program": "compiled from a program"}.get(
        facts.capture_by, "traced"
    )
    native = sum(program.backend == "native" for program in programs)
    runs = (
        "native code"
        if native == len(programs)
        else "segments on their devices"
        if any(program.backend == "split" for program in programs)
        else "the dataflow executor"
        if any(program.backend == "dataflow" for program in programs)
        else "the interpreter"
        if not native
        else (f"native code ({native} of {len(programs)})")
    )
    on_gpu = sum(program.backend == "cuda" for program in programs)
    if on_gpu:
        runs = "code for the GPU" if on_gpu == len(programs) else f"the GPU ({on_gpu}) and {runs}"
    ran = Dim(f"{by}, run by {runs if programs else 'Python'}")
    lines: list[Block] = [Line([ran] if where is None else [Place(where), Dim("· "), ran])]
    for number, parts in _by_recording(programs).items():
        of = f"recording {number}: " if len(facts.recordings) > 1 else ""
        lines.append(Line([of + _ops(parts)]))
        lines.append(Line([of + _costs(parts)]))
    lines += [Line([text]) for text in _speed(programs)]
    lost = [row.outcome for row in facts.recordings if row.outcome.startswith("not kept")]
    lines += [Line([f"calls run as plain Python: {text}"]) for text in lost[:1]]
    total = sum(facts.compile.values())
    if facts.eager_calls:
        calls = plural(facts.eager_calls, "call")
        lines.append(
            Line([f"{calls} ran as plain Python: their arguments had a structure that was new"])
        )
    lines.append(
        Line(
            [
                f"{plural(len(facts.recordings), 'recording')} in {shown_seconds(total)}, "
                f"{plural(len(facts.guards), 'guard')}, "
                f"{plural(facts.calls.hits, 'call')} replayed"
            ]
        )
    )
    return Section(facts.name, "", lines)


def _by_recording(programs: list[Program]) -> dict[int, list[Program]]:
    """The programs of each recording; of those that the explained call ran, if it ran some."""
    shown = [program for program in programs if program.ran] or programs
    found: dict[int, list[Program]] = {}
    for program in shown:
        found.setdefault(program.recording, []).append(program)
    return dict(sorted(found.items())[-MOST_SUMMARIES:])


def _ops(programs: list[Program]) -> str:
    captured = sum(program.captured for program in programs)
    optimized = sum(program.optimized for program in programs)
    text = f"{captured} ops recorded → {optimized} after the passes"
    kernels = [k for p in programs for k in p.kernels if k.kind != "control"]
    if not kernels:
        return text
    calls = sum(kernel.kind == "call" for kernel in kernels)
    text += f" → {plural(len(kernels) - calls, 'kernel')}"
    return text + (f", {plural(calls, 'call')} into Python" if calls else "")


def _costs(programs: list[Program]) -> str:
    memory = max(p.memory.peak for p in programs)
    least = max(p.memory.lower_bound for p in programs)
    flops = sum(program.work.flops for program in programs)
    moved = sum(program.work.bytes for program in programs)
    more = " in each round" if any(p.work.open for p in programs) else ""
    return (
        f"{shown_bytes(memory)} of memory while it runs ({shown_bytes(least)} at least), "
        f"{shown_flops(flops)} and {shown_bytes(moved)} moved{more}"
    )


def _speed(programs: list[Program]) -> list[str]:
    known = [p for p in programs if p.measured and p.work.share]
    if not known:
        return []
    took = sum(p.measured or 0.0 for p in known)
    least = sum(p.work.roofline for p in known)
    bound = Counter(p.work.bound for p in known).most_common(1)[0][0]
    return [
        f"runs in {shown_seconds(took)}: {least / took:.0%} of what the machine could do at best "
        f"({shown_seconds(least)}, bound by {bound})"
    ]


#: A loop that is unrolled more often than this has a note with the whole reason.
MANY_ROUNDS = 16

# --- how it was captured -------------------------------------------------------------------------


def _capture(facts: Facts) -> Section:
    found = facts.capture
    rows: list[Row] = []

    def add(kind: str, place: SourceLocation | None, said: str) -> None:
        rows.append([kind, Place(place), code_at(place), said])

    for branch in found.branches:
        sides = [f"{name} {plural(size, 'op')}" for name, size in branch.sides.items()]
        add("branch", branch.place, f"in the graph: {', '.join(sides)}")
    for loop in found.loops:
        rounds = "while its condition holds" if loop.rounds is None else f"{loop.rounds} rounds"
        add("loop", loop.place, f"in the graph: {rounds}, {plural(loop.ops, 'op')} each")
    for unrolled in found.unrolled:
        said = f"unrolled, {plural(unrolled.rounds, 'round')}: {unrolled.why}"
        add("loop", unrolled.place, said)
    for decision in found.decided:
        add("if", decision.place, f"Python decided: {' and '.join(map(str, decision.answers))}")
    for asked in found.questions:
        answers = ", ".join(asked.answers)
        said = f"{asked.what} of {asked.type} asked: a path for each of {answers}"
        add("question", asked.place, said)
    for call in found.python:
        add("Python", call.place, call.what)
    for followed in found.followed:
        if not followed.weft and not followed.itself:
            times = f", {followed.times} times" if followed.times > 1 else ""
            add("call", followed.place, f"{followed.function} followed{times}")
    own = sum(followed.weft for followed in found.followed)
    if own:
        add("call", None, f"{plural(own, 'function')} of weft.nn and weft.optim followed")
    paths = plural(len(found.paths), "path")
    notes: list[Block] = []
    for row in found.unrolled:
        if row.rounds > MANY_ROUNDS:
            where = Place(row.place).text
            said = f"note: the loop at {where} was unrolled {row.rounds} times: {row.why}"
            notes.append(Line([said]))
    return Section("Captured", f"{paths} of {_sizes(found.paths)}", [*_table(rows), *notes])


def _sizes(sizes: list[int]) -> str:
    if not sizes:
        return "nothing"
    low, high = min(sizes), max(sizes)
    return f"{low} ops" if low == high else f"{low} to {high} ops"


def _table(rows: list[Row], head: tuple[str, ...] = (), most: int = 40) -> list[Block]:
    return [Table(rows, head, most)] if rows else []


def _guards(facts: Facts) -> Section:
    """Guards; one that several recordings share is listed once."""
    known = {row.holds: row for row in reversed(facts.guards)}
    rows: list[Row] = [
        [row.holds, Place(row.place)] for row in reversed(known.values()) if not row.once
    ]
    once = len(known) - len(rows)
    brief = f"{plural(len(rows), 'fact')} checked in each call"
    if once:
        brief += f", {once} more only after a module or optimizer has changed"
    return Section("Guards", brief, _table(rows, most=16))


def _symbolic_sizes(facts: Facts) -> Section:
    rows: list[Row] = [
        [f"recording {row.recording}", Name(row.name), row.where, row.known] for row in facts.sizes
    ]
    return Section("Symbolic sizes", plural(len(rows), "name"), _table(rows))


def _state(facts: Facts) -> Section:
    state = facts.state
    place = {row.name: True for p in facts.programs for row in p.in_place}
    rows: list[Row] = []
    outside = [row for row in state.read if not row.argument]
    written = {row.what: row for row in state.written}
    rows += [["read", Name(row.what), row.type, ""] for row in outside if row.what not in written]
    kinds = {row.what: row.type for row in state.read}
    for row in state.written:
        kind = row.type or kinds.get(row.what, "")
        rows.append(["written", Name(row.what), kind, " and ".join(row.written)])
    rows += [["repeated", row.what, "", Place(row.place)] for row in state.effects]
    arguments = len(state.read) - len(outside)
    brief = f"{plural(arguments, 'argument')}, {len(outside)} read, {len(written)} written"
    if place:
        brief += f", {len(place)} of them in place"
    return Section("State", brief, _table(rows, most=24))


# --- what it took --------------------------------------------------------------------------------


def _recomputation(facts: Facts) -> Section:
    rows: list[Row] = []
    blocks: list[Block] = []
    for split in facts.recomputation:
        text = (
            f"{plural(split.saved, 'value')} saved for the backward, "
            f"{shown_bytes(split.bytes_saved)} instead of {shown_bytes(split.bytes_used)}; "
            f"{plural(split.again, 'op')} recomputed ({shown_flops(split.flops)}); "
            f"peak {shown_bytes(split.peak)} instead of {shown_bytes(split.peak_used)}"
        )
        if split.budget is not None:
            text += f"; budget {split.budget:g} {'' if split.reached else 'not '}reached"
        blocks.append(Line([text]))
        rows += [[" ".join(row.ops), Place(row.place), code_at(row.place)] for row in split.lines]
    return Section("Recomputed", "", [*blocks, *_table(rows, most=16)])


def _compile(facts: Facts) -> Section:
    stages = facts.compile
    total = sum(stages.values()) or 1.0
    rows: list[Row] = [
        [name, shown_seconds(seconds), f"{seconds / total:.0%}", Bar(seconds / total)]
        for name, seconds in stages.items()
        if seconds
    ]
    found = sum(program.from_disk for program in facts.programs)
    brief = shown_seconds(total)
    if found:
        brief += f"; the code of {plural(found, 'program')} was in the cache"
    return Section("Time to compile", brief, _table(rows))


def _recordings(facts: Facts) -> Section:
    rows: list[Row] = [
        [str(row.number), shown_seconds(row.seconds), row.outcome, row.reason]
        for row in facts.recordings
    ]
    again = len(rows) - 1
    brief = f"{plural(again, 'time')} again" if again else "once"
    return Section("Recorded", brief, _table(rows, ("", "time", "result", "reason")))


def _machine(facts: Facts) -> Section:
    machine = facts.machine
    cells: list[Cell] = [
        f"{plural(int(machine.threads), 'thread')}: {shown_flops(machine.flops32)}/s in "
        f"float32, {shown_flops(machine.flops64)}/s in float64, "
        f"{shown_bytes(machine.bytes)}/s from memory, "
        f"{shown_bytes(machine.cached)}/s from caches"
    ]
    return Section("Machine", "measured", [Line(cells)])


SECTIONS: list[Callable[[Facts], Section]] = [
    _summary,
    _capture,
    _guards,
    _symbolic_sizes,
    _state,
    _recomputation,
    _compile,
    _recordings,
    _machine,
]
