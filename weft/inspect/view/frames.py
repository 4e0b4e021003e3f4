"""Draws static graphs; in lowered ones, frames of loops and sides of branches become scopes."""

from __future__ import annotations

from typing import Any

from weft.inspect.view.drawing import Drawing
from weft.inspect.view.static import Source, Walk, draw_with
from weft.ir.contexts import BODY, FRAME, Context, Contexts, is_lowered
from weft.ir.graph import Graph, Node, Value
from weft.ir.text import value_names
from weft.ops.flow import called

__all__ = ["draw_graph"]


def draw_graph(graph: Graph, **where: Any) -> Drawing:
    """The drawing of a graph: see `weft.inspect.view.static.draw_with`."""
    return draw_with(LoweredWalk if is_lowered(graph) else Walk, graph, **where)


class LoweredWalk(Walk):
    """The scopes of a lowered graph follow from the contexts of its values."""

    def graph(
        self, graph: Graph, scope: int, given: list[list[Source]] | None, role: str
    ) -> list[list[Source]]:
        drawing = self.drawing
        names = value_names(graph.values())
        contexts = Contexts(graph)
        scopes: dict[Context, int] = {(): scope}
        sources: dict[Value, list[Source]] = {}
        self.inputs(graph, scope, given, role, names, sources)
        for node in graph.nodes:
            place = self._scope(contexts, _context(contexts, node), scopes)
            at = self.op(called(node), place, names, sources, role, node)
            sources.update((value, [(at, i)]) for i, value in enumerate(node.outputs))
            if node.op.flow == "next":  # no edge up: the note names the merge, its partner
                merge = sources[node.inputs[0]][0][0]
                drawing.items[at].note = f"to {names[node.inputs[0]]}"
                drawing.items[at].partners.append(merge)
                drawing.items[merge].partners.append(at)
        return self.results(graph, scope, role, names, sources)

    def _scope(self, contexts: Contexts, context: Context, scopes: dict[Context, int]) -> int:
        """The scope of a context; made with those around it when it is first met."""
        found = scopes.get(context)
        if found is None:
            around = self._scope(contexts, context[:-1], scopes)
            found = scopes[context] = self.drawing.scope(_label(contexts, context), around)
        return found


def _context(contexts: Contexts, node: Node) -> Context:
    """Where a node is drawn: an enter in its frame, an exit after it."""
    if node.op.flow == "switch":
        return contexts.of[node.inputs[1]]
    return contexts.of[node.outputs[0] if node.outputs else node.inputs[-1]]


def _label(contexts: Contexts, context: Context) -> str:
    name, side = context[-1]
    made = contexts.constructs[name]
    if side == FRAME:
        return f"frame {name}"
    if made.is_loop:
        return f"{name}: {'body' if side == BODY else 'exit'}"
    chosen = made.predicate is not None and made.predicate.tensor_type.dtype.kind == "bool"
    return f"{name}: {('then', 'else')[side] if chosen else f'case {side}'}"
