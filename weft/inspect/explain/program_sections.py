"""The sections about one program: its passes, its kernels and their reasons, its memory."""

from __future__ import annotations

from weft.base.source import SourceLocation
from weft.inspect.explain.blocks import Bar, Block, Code, Dim, Line, Place, Row, Section, Table
from weft.inspect.explain.facts import Program
from weft.inspect.explain.style import shown_bytes, shown_flops, shown_seconds, sparkline

__all__ = ["program_sections"]


def program_sections(program: Program, number: int | None) -> list[Section]:
    """`number`: the number of the program, if there are several."""
    of = (
        ""
        if number is None
        else f" of recording {program.recording}, program {number} ({program.name})"
    )
    return [
        _messages(program, of),
        _passes(program, of),
        _kernels(program, of),
        _reasons(program, of),
        _memory(program, of),
    ]


def _messages(program: Program, of: str) -> Section:
    """The collectives that splitting over ranks inserted."""
    rows: list[Row] = [
        [
            each.name,
            ", ".join(each.over),
            each.value,
            each.to,
            shown_bytes(each.bytes) if each.bytes else "",
            each.why,
            Place(each.place),
        ]
        for each in program.messages
    ]
    if not rows:
        return Section("")
    sent = [each.bytes for each in program.messages if each.bytes]
    plural = "" if len(sent) == 1 else "s"
    brief = f"{len(sent)} message{plural}, {shown_bytes(sum(sent))} sent by each rank"
    head = ("", "over", "from", "to", "sent", "because", "line")
    return Section(f"Ranks{of}", brief, [Table(rows, head, 60)])


def _passes(program: Program, of: str) -> Section:
    rows: list[Row] = []
    total = sum(row.seconds for row in program.passes) or 1.0
    for row in program.passes:
        change = f"{row.before} → {row.after}" if row.before != row.after else "="
        took = row.seconds
        rows.append([row.name, change, shown_seconds(took), Bar(took / total, 10), row.note])
    brief = f"{program.captured} → {program.optimized} ops"
    if program.scheduled != program.optimized:
        brief += f", {program.scheduled} after lowering"
    head = ("pass", "ops", "took", "", "what it changed")
    return Section(f"Passes{of}", brief, [Table(rows, head)] if rows else [])


def _kernels(program: Program, of: str) -> Section:
    kernels = program.kernels
    if not kernels:
        why = f"run op by op: {program.reason}" if program.reason else "run op by op"
        if program.backend in ("cuda", "dataflow", "split", "ranks"):
            why = program.reason
        work = program.work
        more = f", {shown_flops(work.flops)}, {shown_bytes(work.bytes)} moved"
        return Section(f"Kernels{of}", why + more)
    outer = [kernel for kernel in kernels if "." not in kernel.number]
    total = sum(kernel.measured or kernel.roofline for kernel in outer) or 1.0
    rows: list[Row] = []
    for kernel in kernels:
        depth = kernel.number.count(".") // 2
        where = kernel.places[0] if kernel.places else None
        took, share = kernel.measured, kernel.share
        rounds = " a round" if kernel.open else ""
        words = (kernel.bound, "threads" if kernel.parallel else "")
        rows.append(
            [
                f"{'  ' * depth}{kernel.number}",
                _ops(kernel.ops),
                f"{shown_flops(kernel.flops)}{rounds}",
                shown_bytes(kernel.bytes),
                shown_seconds(kernel.roofline) if kernel.roofline else "",
                shown_seconds(took) if took is not None else "",
                Bar((took or kernel.roofline) / total, 6) if depth == 0 else "",
                "" if share is None else f"{share:.0%}",
                Dim(", ".join(word for word in words if word)),
                *_line(where),
            ]
        )
    work = program.work
    brief = f"{shown_flops(work.flops)}, {shown_bytes(work.bytes)} moved"
    if work.roofline:
        brief += f", {shown_seconds(work.roofline)} at best"
    if program.measured:
        brief += f", {shown_seconds(program.measured)} measured"
        if work.share:
            brief += f" ({work.share:.0%})"
    head = ("", "ops", "work", "moved", "at best", "took", "", "", "bound by", "first line", "")
    return Section(f"Kernels{of}", brief, [Table(rows, head, 60, (1, 10))])


def _ops(names: list[str]) -> str:
    """add, tanh ×3, sum"""
    runs: list[tuple[str, int]] = []
    for name in names:
        if runs and runs[-1][0] == name:
            runs[-1] = (name, runs[-1][1] + 1)
        else:
            runs.append((name, 1))
    return " ".join(name if times == 1 else f"{name}×{times}" for name, times in runs)


def _reasons(program: Program, of: str) -> Section:
    """Why each kernel begins where it does, and why ops are in it."""
    rows: list[Row] = []
    for kernel in program.kernels:
        first, *others = kernel.why
        joined = [row.op for row in others if row.joined]
        more = f"; {len(joined)} more with it" if joined else ""
        rows.append([kernel.number, first.op, Place(first.place), first.why + more])
        rows += [["", row.op, Place(row.place), row.why] for row in others if not row.joined]
    if not rows:
        return Section("")
    brief = "why each kernel begins where it does, and what joined it"
    return Section(f"Fused{of}", brief, [Table(rows, ("", "op", "line", "because"), 60)])


def _memory(program: Program, of: str) -> Section:
    memory = program.memory
    blocks: list[Block] = []
    alive = memory.alive
    total = sum(row.bytes for row in alive) or 1
    if any(memory.timeline):
        blocks.append(Line([Dim("in use, step by step"), sparkline(memory.timeline)]))
    rows: list[Row] = []
    for row in alive:
        shown, belongs = _line(row.place)
        rows.append(
            [
                shown_bytes(row.bytes),
                Bar(row.bytes / total, 12),
                shown,
                Code("" if row.place is None else row.place.origin.text),
                belongs,
                Dim(", ".join(row.values)),
            ]
        )
    if rows:
        blocks.append(Table(rows, (f"at step {memory.at}", "", "made at", "", "", ""), 16))
    brief = (
        f"peak {shown_bytes(memory.peak)}, {shown_bytes(memory.lower_bound)} at least; "
        f"inputs {shown_bytes(memory.inputs)}, results {shown_bytes(memory.outputs)}"
    )
    if program.in_place:
        brief += f", {len(program.in_place)} of them written in place"
    return Section(f"Memory{of}", brief, blocks)


def _line(where: SourceLocation | None) -> tuple[Place, Dim]:
    """The line of an op (for a backward step, the forward line), and its role and module."""
    if where is None:
        return Place(None), Dim("")
    parts = (where.role, where.origin.module)
    return Place(where.origin), Dim(" ".join(part for part in parts if part))
