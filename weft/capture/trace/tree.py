"""Adds recorded paths to the tree; a new path shares segments with paths that begin alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from weft.capture.trace.recompute_choice import split_path
from weft.capture.trace.segments import Ending, PathBackward, Segment, answer_key
from weft.capture.watch.origin import same_place
from weft.ir.attributes import attrs_key
from weft.ir.equal import same_graph
from weft.ir.graph import Node, Value
from weft.ir.size_inputs import Tellers, told_by, told_by_data, with_tellers

Owners = dict[Value, Segment]


def insert(
    roots: list[Segment],
    taken: Sequence[Segment],
    recorded: Sequence[Segment],
    ending: Ending,
    budget: float | None = None,
    recording: int = 0,
) -> list[Segment]:
    """Add a recorded path to the tree; returns its segments.

    taken       the segments that this call already ran
    recorded    those of the run, from its beginning
    budget      the memory budget, see `split`
    recording   the number of this recording
    """
    shared = list(taken)
    renamed: dict[Value, Value] = {}
    if not all(_same(old, new, renamed) for old, new in zip(shared, recorded, strict=False)):
        shared, renamed = [], {}  # the run did not repeat the same nodes: share nothing
    path = [*shared, *recorded[len(shared) :]]
    for segment in path[len(shared) :]:
        _rename_segment(segment, renamed)
    tellers: Tellers = {}
    for i, segment in enumerate(path):
        for name, value in told_by([value for value, _ in segment.inputs]):
            tellers.setdefault(name, value)
        for name, value in told_by_data(segment.nodes):
            tellers.setdefault(name, value)
        if i >= len(shared):
            segment.tellers = dict(tellers)
    path[-1].ending = _renamed_ending(ending, renamed)
    split_path(path, len(shared), budget)
    for segment in path[len(shared) :]:
        segment.recording = recording
        segment.open()
    _export(path, len(shared))  # before other threads can find the path
    for i in range(len(shared), len(path)):
        if i == 0:
            roots.append(path[0])
        else:
            before = path[i - 1]
            answer = recorded[i - 1].answer
            key = answer_key(answer)
            before.answers[key] = answer
            before.children.setdefault(key, []).append(path[i])
    return path


def _same(old: Segment, new: Segment, renamed: dict[Value, Value]) -> bool:
    """Whether recorded nodes repeat a segment; then maps their values to those of the segment."""
    if len(old.inputs) != len(new.inputs) or len(old.nodes) != len(new.nodes):
        return False
    if old.question is None or new.question is None or old.question.kind != new.question.kind:
        return False
    for (mine, origin), (theirs, other) in zip(old.inputs, new.inputs, strict=True):
        if mine.type != theirs.type or not same_place(origin, other):
            return False
        renamed[theirs] = mine
    for a, b in zip(old.nodes, new.nodes, strict=True):
        if a.op is not b.op or attrs_key(a.attrs) != attrs_key(b.attrs):
            return False
        if len(a.outputs) != len(b.outputs) or not all(map(same_graph, a.graphs, b.graphs)):
            return False
        if list(a.inputs) != [renamed.get(value, value) for value in b.inputs]:
            return False
        renamed.update(zip(b.outputs, a.outputs, strict=True))
    return old.question.value is renamed.get(new.question.value, new.question.value)


def _rename_segment(segment: Segment, renamed: dict[Value, Value]) -> None:
    _rename(segment.nodes, renamed)
    question = segment.question
    if question is not None:
        value = renamed.get(question.value, question.value)
        segment.question = replace(question, value=value)


def _rename(nodes: Iterable[Node], renamed: dict[Value, Value]) -> None:
    if renamed:
        for node in nodes:
            node.inputs = tuple([renamed.get(value, value) for value in node.inputs])


def _renamed_ending(ending: Ending, renamed: dict[Value, Value]) -> Ending:
    ending.made = [renamed.get(value, value) for value in ending.made]
    if ending.backward is not None:
        _rename(ending.backward.nodes, renamed)
        b = ending.backward
        ending.backward = replace(
            b,
            sources=[renamed.get(value, value) for value in b.sources],
            gradients=[
                None if value is None else renamed.get(value, value) for value in b.gradients
            ],
            there=[None if value is None else renamed.get(value, value) for value in b.there],
        )
    return ending


def _export(path: list[Segment], start: int) -> None:
    """Add to the exports of each segment the values that the new part of the path uses."""
    owners: Owners = {}
    for segment in path:
        for value in segment.made():
            owners[value] = segment
    for segment in path[start:]:
        for node in segment.nodes:
            _use(node.inputs, owners, segment)
        if segment.tellers:
            _use(segment.graph("part")[1], owners, segment)
        if segment.question is not None:
            _use([segment.question.value], owners, None)
        if segment.ending is not None:
            _use(segment.ending.made, owners, None)
            backward = segment.ending.backward
            saved = backward_inputs(backward)
            if backward is not None:
                saved = with_tellers(saved, backward.nodes, segment.tellers)
            _use(saved, owners, None)


def backward_inputs(backward: PathBackward | None) -> list[Value]:
    """The values of the forward run that the backward uses."""
    if backward is None:
        return []
    mine: set[Value] = {value for node in backward.nodes for value in node.outputs}
    mine.update(backward.cotangents)
    used: dict[Value, None] = {}
    for node in backward.nodes:
        used.update(dict.fromkeys(value for value in node.inputs if value not in mine))
    for value in (*backward.gradients, *backward.there):
        if value is not None and value not in mine:
            used[value] = None
    return list(used)


def _use(values: Iterable[Value], owners: Owners, user: Segment | None) -> None:
    for value in values:
        owner = owners.get(value)
        if owner is not None and owner is not user and value not in owner.exports:
            owner.exports[value] = None
            owner.ready = None


def describe(roots: Sequence[Segment]) -> str:
    """The tree as text: guards, ops, questions and what follows each answer."""
    lines: list[str] = []
    stack: list[tuple[Segment, str, str]] = []
    for number, root in reversed(list(enumerate(roots))):
        stack.append((root, "", f"recording {number}: {len(root.guards)} guards"))
    while stack:  # without recursion: a loop of a thousand questions is a thousand levels deep
        segment, indent, head = stack.pop()
        lines.append(indent + head)
        indent += "  "
        lines += [indent + line for line in _described(segment)]
        for key, kids in reversed(segment.children.items()):
            stack += [(kid, indent, f"{segment.answers[key]!r:.60}:") for kid in reversed(kids)]
    return "\n".join(lines)


def _described(segment: Segment) -> list[str]:
    ops = ", ".join(node.op.name for node in segment.nodes[:8])
    more = f", … {len(segment.nodes) - 8} more" if len(segment.nodes) > 8 else ""
    lines = [f"{len(segment.nodes)} ops: {ops}{more}"] if ops else []
    question, ending = segment.question, segment.ending
    if question is not None:
        where = f" at {question.location}" if question.location else ""
        lines.append(f"{question.kind} of {question.value.type}{where}?")
    elif ending is not None:
        lines.append(f"result: {len(ending.made)} tensors, {len(ending.signature.writes)} written")
    return lines
