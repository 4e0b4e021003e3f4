"""The memory of a run as data: where each value lies, for how long, and what is at the peak."""

from __future__ import annotations

from typing import Any

from weft.base.source import SourceLocation
from weft.codegen.steps import GraphCode, bytes_of
from weft.inspect.explain.places import line_key, of_location
from weft.ir.graph import Graph, Value

__all__ = ["interpreted_memory", "planned_memory"]


def planned_memory(code: GraphCode) -> dict[str, Any]:
    """The arena of a native program.

    first, last   the steps between which a value is needed, both included
    timeline      how many bytes are in use at each step
    at            the step at which most are: `alive` is what lies there then, by source line
    """
    plan = code.memory
    timeline = plan.timeline(len(code.steps))
    most = max(timeline, default=0)
    at = timeline.index(most) if most else -1
    values = [
        {
            "what": _what(key),
            "bytes": plan.sizes[key],
            "offset": plan.offsets[key],
            "first": plan.born[key],
            "last": plan.dies[key],
            "place": of_location(_location(key)),
        }
        for key in sorted(plan.sizes, key=lambda key: (plan.born[key], plan.offsets[key]))
    ]
    alive = [(key, plan.sizes[key]) for key in plan.alive(at)] if at >= 0 else []
    return {
        "peak": plan.peak,
        "lower_bound": plan.lower_bound,
        "values": values,
        "timeline": timeline,
        "at": at,
        "alive": _by_line([(_what(key), size, _location(key)) for key, size in alive]),
        "inputs": sum(map(bytes_of, code.graph.inputs)),
        "outputs": sum(map(bytes_of, code.graph.outputs)),
    }


def _what(key: Any) -> str:
    if isinstance(key, Value):
        return f"{key.node.op.name if key.node else 'input'}: {key.type}"
    return f"room of {key.nodes[0].op.name}"


def _location(key: Any) -> SourceLocation | None:
    node = key.node if isinstance(key, Value) else key.nodes[0]
    return None if node is None else node.location


def interpreted_memory(graph: Graph) -> dict[str, Any]:
    """What the interpreter holds at once: it lets go of each value after its last use."""
    plan = graph.memory()
    alive = [
        (_what(value), size, None if value.node is None else value.node.location)
        for value, size in plan.at_peak
    ]
    return {
        "peak": plan.peak,
        "lower_bound": plan.peak,
        "values": [],
        "timeline": [moment.during for moment in plan.timeline],
        "at": plan.place,
        "alive": _by_line(alive),
        "inputs": plan.held,
        "outputs": sum(map(bytes_of, graph.outputs)),
    }


def _by_line(alive: list[tuple[str, int, SourceLocation | None]]) -> list[dict[str, Any]]:
    """What is alive, one entry for each line of the user's, the largest first."""
    found: dict[Any, dict[str, Any]] = {}
    for what, size, location in alive:
        shown = None if location is None else location.forward or location
        own = () if location is None or shown is None else (location.role, shown.module)
        key = (line_key(location), own)
        entry = found.setdefault(key, {"bytes": 0, "values": [], "place": of_location(location)})
        entry["bytes"] += size
        entry["values"].append(what)
    return sorted(found.values(), key=lambda entry: -entry["bytes"])
