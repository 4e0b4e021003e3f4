"""The memory of a run: the place and lifetime of each value, and the values at the peak."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.source import SourceLocation
from weft.inspect.explain.facts import Alive, Memory, MemoryValue, with_text
from weft.ir.graph import Graph, Value
from weft.schedule.plan import GraphPlan, bytes_of

__all__ = ["interpreted_memory", "planned_memory"]


def planned_memory(code: GraphPlan) -> Memory:
    """The arena of a native program."""
    plan = code.memory
    timeline = plan.timeline(len(code.steps))
    most = max(timeline, default=0)
    at = timeline.index(most) if most else -1
    return Memory(
        plan.peak,
        plan.lower_bound,
        [
            MemoryValue(
                _what(key),
                plan.sizes[key],
                plan.offsets[key],
                plan.born[key],
                plan.dies[key],
                with_text(_location(key)),
            )
            for key in sorted(plan.sizes, key=lambda key: (plan.born[key], plan.offsets[key]))
        ],
        timeline,
        at,
        _by_line([(key, plan.sizes[key]) for key in plan.alive(at)] if at >= 0 else []),
        sum(map(bytes_of, code.graph.inputs)),
        sum(map(bytes_of, code.graph.outputs)),
    )


def interpreted_memory(graph: Graph) -> Memory:
    """The memory of an interpreted run, which frees each value after its last use."""
    plan = graph.memory()
    timeline = [moment.during for moment in plan.timeline]
    alive = _by_line(plan.at_peak)
    outputs = sum(map(bytes_of, graph.outputs))
    return Memory(plan.peak, plan.peak, [], timeline, plan.place, alive, plan.held, outputs)


def _what(key: Any) -> str:
    if isinstance(key, Value):
        return f"{key.node.op.name if key.node else 'input'}: {key.type}"
    return f"room of {key.nodes[0].op.name}"


def _location(key: Any) -> SourceLocation | None:
    node = key.node if isinstance(key, Value) else key.nodes[0]
    return None if node is None else node.location


def _by_line(alive: Sequence[tuple[Any, int]]) -> list[Alive]:
    """Values that are alive, grouped by source line, the largest first."""
    found: dict[Any, Alive] = {}
    for key, size in alive:
        place = _location(key)
        line = place and (place.role, place.origin.file, place.origin.line, place.origin.module)
        entry = found.setdefault(line, Alive(0, [], with_text(place)))
        entry.bytes += size
        entry.values.append(_what(key))
    return sorted(found.values(), key=lambda entry: -entry.bytes)
