"""A placed graph, cut into segments: as large as possible, and without cycles between them.

Merging two neighbours on one device can make a cycle: in a → b → c and a → c, with b on another
device, a and c are not one segment, as b would have to run in the middle of it. Nodes are merged
with those before them as long as no way from one part to the other leads through a third.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weft.ir.op import Trait
from weft.ir.sizes import size_names, sizes_made, sizes_named
from weft.ir.types import TensorType

if TYPE_CHECKING:
    from weft.ir.graph import Graph, Node, Value

__all__ = ["HOST", "Part", "cut", "is_free"]

#: The device of nodes that the executor runs itself, one by one.
HOST = ""


def is_free(node: Node) -> bool:
    """Whether a node has no inputs and gives the same wherever it runs: each part gets its own."""
    return node.op.creation and not node.inputs and Trait.STACK not in node.op.traits


def stays(value: Value) -> bool:
    """Whether the type of a value says where it is: then `to_device` moves it, and nothing else."""
    return isinstance(value.type, TensorType) and value.type.device.kind != "cpu"


@dataclass(eq=False)
class Part:
    """Nodes that run as one call of a device; on the host, one node."""

    device: str
    nodes: list[Node]
    before: set[Part] = field(default_factory=set)
    after: set[Part] = field(default_factory=set)
    first: int = 0

    def takes(self) -> list[Value]:
        """What it takes from others, in order; nodes that are free are its own."""
        own = {value for node in self.nodes for value in node.outputs}
        found: dict[Value, None] = {}
        for node in self.nodes:
            for value in node.inputs:
                if value not in own and not (value.node is not None and is_free(value.node)):
                    found[value] = None
        return list(found)


def cut(graph: Graph, devices: Mapping[Node, str]) -> list[Part]:
    """The parts of a graph, in an order in which they can run."""
    part_of: dict[Node, Part] = {}
    parts: dict[Part, None] = {}
    tells: dict[str, Node] = {}  # the nodes that are the first to know a size
    for number, node in enumerate(graph.nodes):
        if is_free(node):
            continue
        part = Part(devices[node], [node], first=number)
        for value in node.inputs:
            if value.node is not None and not is_free(value.node):
                part.before.add(part_of[value.node])
        if tells:
            named = sizes_named([node]) | size_names(node.outputs)
            part.before |= {part_of[tells[name]] for name in named if name in tells}
        tells.update(dict.fromkeys(sizes_made(node), node))
        for other in part.before:
            other.after.add(part)
        part_of[node] = part
        parts[part] = None
        if part.device == HOST:
            continue
        for other in sorted(part.before, key=lambda p: p.first):
            if other.device == part.device and not _apart(other, part):
                part = _merge(other, part, part_of, parts)
    _merge_more(part_of, parts)
    return _ordered(parts)


def _apart(one: Part, two: Part) -> bool:
    """Whether a way from one part to the other leads through a third."""
    return _reaches(one, two) or _reaches(two, one)


def _reaches(start: Part, end: Part) -> bool:
    waiting = [part for part in start.after if part is not end]
    seen = set(waiting)
    while waiting:
        for part in waiting.pop().after:
            if part is end:
                return True
            if part not in seen:
                seen.add(part)
                waiting.append(part)
    return False


def _merge(into: Part, part: Part, part_of: dict[Node, Part], parts: dict[Part, None]) -> Part:
    """One part of two; returns it."""
    for node in part.nodes:
        part_of[node] = into
    into.nodes += part.nodes
    into.first = min(into.first, part.first)
    for other in part.before:
        other.after.discard(part)
        if other is not into:
            other.after.add(into)
            into.before.add(other)
    for other in part.after:
        other.before.discard(part)
        if other is not into:
            other.before.add(into)
            into.after.add(other)
    into.before.discard(part)
    into.after.discard(part)
    del parts[part]
    return into


def _merge_more(part_of: dict[Node, Part], parts: dict[Part, None]) -> None:
    """Merge parts that only now may be one: neighbours, and those that wait for the same."""
    again = True
    while again:
        again = False
        for one in list(parts):
            if one not in parts or one.device == HOST:
                continue
            for two in [p for p in parts if p.device == one.device and p is not one]:
                near = two in one.after or one in two.after or one.before == two.before
                if near and not _apart(one, two):
                    _merge(one, two, part_of, parts)
                    again = True


def _ordered(parts: dict[Part, None]) -> list[Part]:
    """Kahn's order; of those that are ready, the first in the graph."""
    waits = {part: len(part.before) for part in parts}
    ready = sorted((part for part in parts if not waits[part]), key=lambda p: p.first)
    found: list[Part] = []
    while ready:
        part = ready.pop(0)
        found.append(part)
        for other in part.after:
            waits[other] -= 1
            if not waits[other]:
                ready.append(other)
        ready.sort(key=lambda p: p.first)
    assert len(found) == len(parts)
    return found


def carries_lists(graph: Graph, parts: list[Part]) -> set[Node]:
    """Nodes of segments that take from elsewhere, or give to elsewhere, what is no tensor: lists of
    a loop. Only the executor hands these on."""
    part_of = {node: part for part in parts for node in part.nodes}
    given = set(graph.outputs)
    found: set[Node] = set()
    for part in parts:
        for node in part.nodes:
            for value in node.inputs:
                made = part_of.get(value.node) if value.node is not None else None
                if not isinstance(value.type, TensorType) and made is not part:
                    found |= {node, *([value.node] if value.node is not None else [])}
            if any(v in given and not isinstance(v.type, TensorType) for v in node.outputs):
                found.add(node)
    return {node for node in found if node in part_of and part_of[node].device != HOST}
