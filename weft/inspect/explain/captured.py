"""How a function became a graph: its control flow, what is guarded, and what is state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from weft.capture.notes import CaptureNotes
from weft.capture.trace.segments import Ending, Segment
from weft.capture.trace.traced import Traced
from weft.inspect.explain.places import is_users, of_location, of_text, place
from weft.ir.graph import Graph, Node
from weft.ir.op import Trait

__all__ = ["captured", "guards", "recomputed", "recordings", "state"]

BRANCHES, LOOPS = ("if", "switch"), ("while", "scan")
#: Ops that call Python in the midst of a run, in words.
EFFECTS = {
    "py_call": "calls {name}",
    "print": "prints",
    "assert": "raises where it does not hold",
    "raise": "raises",
}


def captured(traced: Traced) -> dict[str, Any]:
    """Conditions, loops and calls of all recorded paths, each line once."""
    found: dict[str, dict[Any, dict[str, Any]]] = {
        name: {} for name in ("branches", "loops", "unrolled", "decided", "followed", "python")
    }
    for graph in traced.paths():
        for node in _nodes(graph):
            if node.op.name in BRANCHES:
                found["branches"].setdefault(node.location, _branch(node))
            elif node.op.name in LOOPS:
                found["loops"].setdefault(node.location, _loop(node))
            elif Trait.EFFECT in node.op.traits and node.op.name in EFFECTS:
                found["python"].setdefault((node.op.name, node.location), _call(node))
    for recording in traced.recordings:
        _add_notes(found, recording.notes)
    for code, row in found["followed"].items():
        row["itself"] = code is getattr(traced.function, "__code__", None)
    made: dict[str, Any] = {name: list(rows.values()) for name, rows in found.items()}
    made["questions"] = [
        {
            "what": segment.question.kind,
            "type": str(segment.question.value.type),
            "answers": [repr(answer)[:60] for answer in segment.answers.values()],
            "place": of_location(segment.question.location),
        }
        for segment in traced.segments()
        if segment.question is not None
    ]
    made["paths"] = [graph.node_count() for graph in traced.paths()]
    return made


def _nodes(graph: Graph) -> Iterator[Node]:
    """What the function itself does, nested graphs too: not what a backward of it does."""
    for part in graph.walk():
        for node in part.nodes:
            if node.location is None or not node.location.role:
                yield node


def _branch(node: Node) -> dict[str, Any]:
    sizes = {graph.name: graph.node_count() for graph in node.graphs}
    return {"op": node.op.name, "sides": sizes, "place": of_location(node.location)}


def _loop(node: Node) -> dict[str, Any]:
    body = node.graphs[-1]
    return {
        "op": node.op.name,
        "rounds": node.attrs.get("length"),
        "ops": body.node_count(),
        "carried": [str(value.type) for value in body.outputs],
        "place": of_location(node.location),
    }


def _call(node: Node) -> dict[str, Any]:
    called = getattr(node.attrs.get("function"), "function", None)
    name = str(getattr(called, "__qualname__", called))
    what = EFFECTS[node.op.name].format(name=name)
    return {"op": node.op.name, "what": what, "place": of_location(node.location)}


def _add_notes(found: dict[str, dict[Any, dict[str, Any]]], notes: CaptureNotes) -> None:
    for where, (rounds, why) in notes.unrolled.items():
        if is_users(where[0]):
            found["unrolled"][where] = {"rounds": rounds, "why": why, "place": place(*where)}
    for where, answers in notes.decided.items():
        if is_users(where[0]):
            entry = found["decided"].setdefault(where, {"answers": [], "place": place(*where)})
            entry["answers"] = sorted({*entry["answers"], *answers})
    for code, count in notes.followed.items():
        known = found["followed"].setdefault(
            code,
            {
                "function": code.co_qualname,
                "times": 0,
                "weft": not is_users(code.co_filename),
                "place": place(code.co_filename, code.co_firstlineno, code.co_name),
            },
        )
        known["times"] += count


def guards(traced: Traced) -> list[dict[str, Any]]:
    """What must hold for a recording to be used again, and which line relied on it."""
    return [
        {
            "holds": guard.description,
            "kind": guard.kind,
            "once": guard.grouped,
            "place": of_text(guard.location),
        }
        for segment in traced.segments()
        for guard in segment.guards
    ]


def state(traced: Traced) -> dict[str, Any]:
    """What comes from outside, what is written there, and what each call does again."""
    read: dict[str, dict[str, Any]] = {}
    written: dict[str, dict[str, Any]] = {}
    effects: dict[tuple[str, str], dict[str, Any]] = {}
    for segment in traced.segments():
        for value, origin in segment.inputs:
            read[origin.text] = {
                "what": origin.text,
                "type": str(value.type),
                "argument": origin.from_args,
            }
        if segment.ending is not None:
            written.update((row["what"], row) for row in _writes(segment, segment.ending))
            for effect in segment.ending.effects:
                key = (effect.description, effect.location)
                effects[key] = {"what": effect.description, "place": of_text(effect.location)}
    return {
        "read": list(read.values()),
        "written": list(written.values()),
        "effects": list(effects.values()),
    }


def _writes(segment: Segment, ending: Ending) -> Iterator[dict[str, Any]]:
    for write in ending.writes:
        what: Sequence[str] = [
            *(["value"] if write.value is not None else []),
            *(["gradient"] if write.grad != "same" else []),
        ]
        kind = "" if write.value is None else str(ending.made[write.value].type)
        yield {"what": write.target.text, "type": kind, "written": list(what)}


def recomputed(traced: Traced) -> list[dict[str, Any]]:
    """For each path with a backward: what is saved for it, and what is computed once more."""
    rows = []
    for split in traced.splits():
        again: dict[Any, dict[str, Any]] = {}
        for node in split.recomputed:
            if Trait.CREATION in node.op.traits or Trait.VIEW in node.op.traits:
                continue
            entry = again.setdefault(
                node.location, {"ops": [], "place": of_location(node.location)}
            )
            entry["ops"].append(node.op.name)
        rows.append(
            {
                "saved": len(split.saved),
                "bytes_saved": split.bytes_saved,
                "bytes_used": split.bytes_used,
                "again": len(split.recomputed),
                "flops": int(split.flops),
                "peak": split.peak,
                "peak_used": split.peak_used,
                "budget": split.budget,
                "reached": split.reached,
                "lines": list(again.values()),
            }
        )
    return rows


def recordings(traced: Traced) -> list[dict[str, Any]]:
    return [
        {
            "number": recording.number,
            "reason": recording.reason,
            "outcome": recording.outcome,
            "seconds": recording.seconds,
            "record": max(0.0, recording.seconds - recording.prepared),
        }
        for recording in traced.recordings
    ]
