"""Facts about the capture of a function: its control flow, its guards and its state."""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType
from typing import Any

from weft.base.source import SourceLocation, is_own
from weft.capture.trace.captured import Captured
from weft.inspect.explain.facts import (
    Branch,
    Capture,
    Decision,
    Effect,
    Followed,
    Guard,
    Line,
    Loop,
    PythonCall,
    Question,
    Read,
    Recomputation,
    RecordingTime,
    Size,
    SourceLine,
    State,
    Unrolled,
    Write,
    with_text,
)
from weft.ir.graph import Graph, Node
from weft.ir.signature import SAME, Signature

__all__ = ["captured", "guards", "recomputed", "recordings", "sizes", "state"]


def captured(traced: Captured[..., Any]) -> Capture:
    """Conditions, loops and calls of all recorded paths, one entry per line."""
    branches: dict[SourceLocation | None, Branch] = {}
    loops: dict[SourceLocation | None, Loop] = {}
    python: dict[tuple[str, SourceLocation | None], PythonCall] = {}
    for graph in traced.paths():
        for node in _nodes(graph):
            name, place = node.op.name, node.location
            if node.op.branch and place not in branches:
                sides = {graph.name: graph.node_count() for graph in node.graphs}
                branches[place] = Branch(name, sides, with_text(place))
            elif node.op.loop and place not in loops:
                body = node.graphs[-1]
                carried = [str(value.type) for value in body.outputs]
                rounds = node.attrs.get("length")
                loops[place] = Loop(name, rounds, body.node_count(), carried, with_text(place))
            elif node.op.effect:
                called = getattr(node.attrs.get("function"), "function", None)
                said = node.op.says.format(name=getattr(called, "__qualname__", called))
                python.setdefault((name, place), PythonCall(name, said, with_text(place)))
    unrolled: dict[Any, Unrolled] = {}
    decided: dict[Any, set[bool]] = {}
    followed: dict[CodeType, Followed] = {}
    for recording in traced.recordings:
        notes = recording.notes
        for where, (rounds, why) in notes.unrolled.items():
            unrolled[where] = Unrolled(rounds, why, with_text(SourceLocation(*where)))
        for where, answers in notes.decided.items():
            decided.setdefault(where, set()).update(answers)
        for code, count in notes.followed.items():
            if code not in followed:
                itself = code is getattr(traced.function, "__code__", None)
                first = SourceLocation(code.co_filename, code.co_firstlineno, code.co_name)
                own = is_own(code.co_filename)
                followed[code] = Followed(code.co_qualname, 0, own, itself, with_text(first))
            followed[code].times += count
    return Capture(
        list(branches.values()),
        list(loops.values()),
        [row for (file, *_), row in unrolled.items() if not is_own(file)],
        [
            Decision(sorted(answers), with_text(SourceLocation(*where)))
            for where, answers in decided.items()
            if not is_own(where[0])
        ],
        list(followed.values()),
        list(python.values()),
        [
            Question(
                segment.question.kind,
                str(segment.question.value.type),
                [repr(answer)[:60] for answer in segment.answers.values()],
                with_text(segment.question.location),
            )
            for segment in traced.segments()
            if segment.question is not None
        ],
        [graph.node_count() for graph in traced.paths()],
    )


def _nodes(graph: Graph) -> Iterator[Node]:
    """The forward nodes of a graph, including nested graphs."""
    for part in graph.walk():
        for node in part.nodes:
            if node.location is None or not node.location.role:
                yield node


def guards(traced: Captured[..., Any]) -> list[Guard]:
    """The guards of all recordings, and the lines that rely on them."""
    return [
        Guard(guard.description, guard.kind, guard.grouped, _location(guard.location))
        for segment in traced.segments()
        for guard in segment.guards
    ]


def _location(text: str) -> SourceLine | None:
    """The location for the text file:line, as guards and effects store it."""
    file, _, line = text.rpartition(":")
    return with_text(SourceLocation(file, int(line), "")) if file and line.isdecimal() else None


def state(traced: Captured[..., Any]) -> State:
    """The tensors that are read and written, and the effects that each call repeats."""
    read: dict[str, Read] = {}
    written: dict[str, Write] = {}
    effects: dict[tuple[str, str], Effect] = {}
    for signature in traced.signatures():
        for place in signature.places:
            if place.type is not None:
                read[place.name] = Read(place.name, str(place.type), place.is_argument)
        written.update((row.what, row) for row in _writes(signature))
    for effect in [x for part in traced.segments() if part.ending for x in part.ending.effects]:
        key = (effect.description, effect.location)
        effects[key] = Effect(effect.description, _location(effect.location))
    return State(list(read.values()), list(written.values()), list(effects.values()))


def _writes(signature: Signature) -> Iterator[Write]:
    for write in signature.writes:
        what = ["value"] if write.value is not None else []
        what += ["gradient"] if write.grad != SAME else []
        kind = "" if write.value is None else str(signature.outputs[write.value])
        yield Write(signature.places[write.place].name, kind, what)


def recomputed(traced: Captured[..., Any]) -> list[Recomputation]:
    """For each path with a backward: what is saved for it, and what is recomputed."""
    rows = []
    for split in traced.splits():
        lines: dict[SourceLocation | None, Line] = {}
        for node in split.recomputed:
            if not (node.op.creation or node.op.view):
                line = lines.setdefault(node.location, Line([], with_text(node.location)))
                line.ops.append(node.op.name)
        rows.append(
            Recomputation(
                len(split.saved),
                split.bytes_saved,
                split.bytes_used,
                len(split.recomputed),
                int(split.flops),
                split.peak,
                split.peak_used,
                split.budget,
                split.reached,
                list(lines.values()),
            )
        )
    return rows


def sizes(traced: Captured[..., Any]) -> list[Size]:
    """The symbolic sizes of each recording."""
    return [
        Size(recording.number, name, where, known)
        for recording in traced.recordings
        for name, (where, known) in recording.notes.sizes.items()
    ]


def recordings(traced: Captured[..., Any]) -> list[RecordingTime]:
    return [
        RecordingTime(r.number, r.reason, r.outcome, r.seconds, max(0.0, r.seconds - r.prepared))
        for r in traced.recordings
    ]
