"""Finds the first op whose result differs from the reference, layer by layer.

A compiled call has three layers: capture records a graph, passes optimize it, and code generation
compiles it. The interpreter runs the graph before and after each layer, on the inputs of the call.
That shows the layer after which the results differ, and the first op in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from weft.base.source import SourceLocation
from weft.compile import run_passes, without_passes
from weft.core.tensor import Tensor
from weft.inspect.compare.close import Difference, Tolerance
from weft.inspect.compare.runs import Event, GraphRun, copied, replayed, silently
from weft.inspect.frames import loops_text
from weft.inspect.watch.nonfinite import summary
from weft.ir.graph import Builder, Graph, Node, Value
from weft.ir.types import TensorType
from weft.passes.pipeline import optimize

__all__ = ["Finding", "in_code", "in_passes"]

#: The most programs that are compiled to find one op.
MOST_PROGRAMS = 300


@dataclass(frozen=True, slots=True)
class Finding:
    """The first difference of a mode.

    layer       "capture", "passes" or "code"
    op          the first op whose result differs
    location    its line
    operands    its operands, as text
    text        the difference
    note        details: the pass, the iteration
    """

    layer: str
    op: str
    location: SourceLocation | None
    operands: tuple[str, ...]
    text: str
    note: str = ""

    def __str__(self) -> str:
        lines = [f"{self.op}: {self.text}"]
        if self.operands:
            lines.append(f"  operands: {', '.join(self.operands)}")
        if self.location is not None:
            if self.location.forward is not None:
                lines.append(f"  forward: {self.location.forward}")
            lines.append(f"  at {self.location}")
        if self.note:
            lines.append(f"  {self.note}")
        return "\n".join(lines)


def finding(layer: str, event: Event, difference: Difference, note: str = "") -> Finding:
    """The finding for a node."""
    notes = [part for part in (note, loops_text(event.loops)) if part]
    operands = tuple(summary(x) for x in event.inputs if isinstance(x, Tensor))
    where = event.node.location
    return Finding(layer, event.node.op.name, where, operands, difference.text, "; ".join(notes))


def first_difference(
    wanted: Sequence[Any], found: Sequence[Any], tolerance: Tolerance
) -> Difference | None:
    """The first difference between two lists; only tensors are compared."""
    for a, b in zip(wanted, found, strict=True):
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            difference = tolerance.difference(a.numpy(), b.numpy())
            if difference is not None:
                return difference
    return None


# --- passes ------------------------------------------------------------------------------------


def in_passes(run: GraphRun, tolerance: Tolerance) -> Finding | None:
    """The first op whose result the passes changed."""
    captured = run.executable.captured
    wanted, before = replayed(captured, run.inputs)
    stages: list[Graph] = []
    optimize(captured, run_passes(), told=stages.append)
    if not stages or first_difference(wanted, _outputs(stages[-1], run), tolerance) is None:
        return None
    for graph in stages:
        found, events = replayed(graph, run.inputs)
        difference = first_difference(wanted, found, tolerance)
        if difference is not None:
            note = f"by the pass {graph.history[-1].name}" if graph.history else ""
            return _changed(before, events, graph, difference, note, tolerance)
        before = events
    return None


def _outputs(graph: Graph, run: GraphRun) -> list[Any]:
    return replayed(graph, run.inputs)[0]


def _changed(
    before: list[Event],
    events: list[Event],
    graph: Graph,
    difference: Difference,
    note: str,
    tolerance: Tolerance,
) -> Finding:
    """The first node whose result differs from that of the same line before the pass."""
    known: dict[tuple[int, int], Event] = {}
    for event in before:
        known.setdefault((id(event.node.location), len(event.loops)), event)
    for event in events:
        old = known.get((id(event.node.location), len(event.loops)))
        if old is None or event.node.location is None or event.node.graphs:
            continue
        if [v.type for v in old.node.outputs] == [v.type for v in event.node.outputs]:
            found = first_difference(old.outputs, event.outputs, tolerance)
            if found is not None:
                return finding("passes", event, found, note)
    makers = {value.node for value in graph.outputs}
    last = next((event for event in reversed(events) if event.node in makers), None)
    if last is None:
        return Finding("passes", "return", None, (), difference.text, note)
    return finding("passes", last, difference, note)


# --- code --------------------------------------------------------------------------------------


def in_code(run: GraphRun, tolerance: Tolerance) -> Finding | None:
    """The first op whose result differs between machine code and the interpreter."""
    graph = run.executable.optimized
    wanted, events = replayed(graph, run.inputs)
    difference = first_difference(wanted, run.outputs, tolerance)
    if difference is None:
        return None
    found = _in_graph(graph, run.inputs, events, tolerance)
    if found is not None:
        return found
    makers = {value.node for value in graph.outputs}
    last = next((event for event in reversed(events) if event.node in makers), None)
    note = "only in the whole graph: each op by itself is right"
    if last is None:
        return Finding("code", "return", None, (), difference.text, note)
    return finding("code", last, difference, note)


def _in_graph(
    graph: Graph, inputs: list[Any], events: list[Event], tolerance: Tolerance
) -> Finding | None:
    """The first node whose result differs in machine code: all nodes at once, then one by one."""
    own = [event for event in events if event.node in set(graph.nodes)]
    shown = [event for event in own if _tensors(event.node)]
    found = _compared(graph, inputs, shown, tolerance)
    if found is None and len(shown) <= MOST_PROGRAMS:
        for event in shown:
            found = _compared(graph, inputs, [event], tolerance)
            if found is not None:
                break
    if found is None:
        return None
    event, difference = found
    return _inside(event, tolerance) or finding("code", event, difference)


def _inside(event: Event, tolerance: Tolerance) -> Finding | None:
    """The same for the branches and bodies that a node ran."""
    often: dict[Graph, int] = {}
    for nested, given in event.inner:
        number = often[nested] = often.get(nested, -1) + 1
        if any(not isinstance(x, Tensor) for x in given):
            continue
        found = _in_graph(nested, given, replayed(nested, given)[1], tolerance)
        if found is not None and event.node.op.loop:
            around = loops_text([(event.node, number)])
            return replace(found, note="; ".join(n for n in (found.note, around) if n))
        if found is not None:
            return found
    return None


def _compared(
    graph: Graph, inputs: list[Any], events: list[Event], tolerance: Tolerance
) -> tuple[Event, Difference] | None:
    """Compile a program that returns the results of some nodes; the first one that differs."""
    values = [value for event in events for value in _tensors(event.node)]
    if not values:
        return None
    with silently():
        made = iter(
            without_passes(_giving(graph, values), native=True).call([copied(x) for x in inputs])
        )
    for event in events:
        for value in _tensors(event.node):
            wanted = event.outputs[value.index]
            difference = first_difference([wanted], [next(made)], tolerance)
            if difference is not None:
                return event, difference
    return None


def _tensors(node: Node) -> list[Value]:
    return [value for value in node.outputs if isinstance(value.type, TensorType)]


def _giving(graph: Graph, values: Sequence[Value]) -> Graph:
    """The graph with other outputs."""
    builder = Builder(graph)
    for node in graph.nodes:
        builder.copy(node)
    made = builder.finish()
    made.outputs = tuple([builder[value] for value in values])
    return made
