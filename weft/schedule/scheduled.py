"""The graph in the order in which it runs, with a comment before the nodes of each kernel.

graph @f(%x: f32[8,8]) {
  # kernel 0: loop.tanh.1
  %0: f32[8,8] = tanh %x
  …
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir.graph import Graph, Node, Value, copied
from weft.schedule.plan import GraphPlan, Step

__all__ = ["scheduled"]


def scheduled(code: GraphPlan, prefix: str = "", whole: Graph | None = None) -> Graph:
    """The graph of a plan, in the order in which its kernels run.

    `whole`: of a loop that runs in parts of its rows, the body for all rows.
    """
    old = code.graph
    twins = dict(zip(old.nodes, (whole or old).nodes, strict=True))
    graph = Graph(old.name)
    graph.history = old.history
    graph.interface = old.interface
    graph.set_inputs([v.type for v in (whole or old).inputs], [v.name for v in old.inputs])
    known = dict(zip(old.inputs, graph.inputs, strict=True))
    notes: dict[Node, str] = {}
    own = set(old.nodes)
    nested: dict[Node, list[Graph]] = {}
    for place, step in enumerate(code.steps):
        first = len(graph.nodes)
        for at, inner in enumerate(step.nested):
            body = step.nodes[0].graphs[at] if step.parts != 1 else None
            made = scheduled(inner, f"{prefix}{place}.{at}.", body)
            nested.setdefault(step.nodes[0], []).append(made)
        for node in step.nodes:
            if node in own:
                _put(graph, node.outputs, known, nested, twins)
            else:  # a copy that the schedule added
                _put(graph, node.inputs, known, nested, twins)
        if len(graph.nodes) > first:
            notes[graph.nodes[first]] = f"kernel {prefix}{place}: {_said(step)}"
    first = len(graph.nodes)
    for node in old.nodes:
        _put(graph, node.outputs, known, nested, twins)
    _put(graph, old.outputs, known, nested, twins)
    if len(graph.nodes) > first:
        notes[graph.nodes[first]] = "in no kernel of their own: views, constants, unused values"
    graph.outputs = tuple([known[value] for value in old.outputs])
    graph.notes = notes
    return graph


def _put(
    graph: Graph,
    values: Sequence[Value],
    known: dict[Value, Value],
    nested: dict[Node, list[Graph]],
    twins: dict[Node, Node],
) -> None:
    """Append the nodes that compute some values to a graph, after those they depend on."""
    stack = [value.node for value in values if value not in known and value.node is not None]
    while stack:
        node = stack[-1]
        missing = [v.node for v in node.inputs if v not in known and v.node is not None]
        if missing:
            stack += missing
            continue
        stack.pop()
        if all(value in known for value in node.outputs) and node.outputs:
            continue
        graphs = nested.get(node, [inner.clone() for inner in node.graphs])
        new = copied(twins.get(node, node), [known[value] for value in node.inputs], graphs)
        for old, made in zip(node.outputs, new.outputs, strict=True):
            made.name = old.name
        graph.nodes.append(new)
        known.update(zip(node.outputs, new.outputs, strict=True))


def _said(step: Step) -> str:
    """The names of its kernels, or what it is if it has none."""
    names = [kernel.name for kernel in step.kernels if kernel.name]
    if names:
        return ", ".join(names)
    words = {"call": "a call into Python", "control": "control flow", "stack": "a stack"}
    return words.get(step.kind, step.kind)
