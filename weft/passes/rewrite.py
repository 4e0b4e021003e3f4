"""`weft.rewrite`: one piece of a program for another, both written as Python functions."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from weft.base.errors import GraphError
from weft.ir.graph import Builder, Graph, Node, Stage, Value
from weft.ir.match import Found, Matcher, is_constant
from weft.ir.order import topological_order
from weft.ir.types import TensorType
from weft.passes.recorded_patterns import Pattern, Types, record

__all__ = ["rewrite"]


class Match:
    """One place where the pattern occurs: what `where` decides on.

    nodes    the calls of the graph that it takes the place of
    inputs   for each parameter of the pattern the value that it stands for; match["x"] for short
    outputs  the values that the pattern computes
    """

    __slots__ = ("inputs", "nodes", "outputs")

    def __init__(self, pattern: Graph, names: Sequence[str], found: Found) -> None:
        values = [found.values[value] for value in pattern.inputs]
        self.inputs: dict[str, Value] = dict(zip(names, values, strict=True))
        self.outputs = tuple([found.values[value] for value in pattern.outputs])
        self.nodes: tuple[Node, ...] = tuple(dict.fromkeys(found.nodes.values()))  # root first

    def __getitem__(self, name: str) -> Value:
        return self.inputs[name]

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}: {value.type}" for name, value in self.inputs.items())
        return f"<match of {len(self.nodes)} nodes, {inputs}>"


def rewrite(
    graph: Graph,
    pattern: Callable[..., Any],
    replacement: Callable[..., Any],
    where: Callable[[Match], bool] | None = None,
    *,
    example: Sequence[TensorType] | None = None,
) -> Graph:
    """A new graph in which `replacement(…)` is computed wherever `pattern(…)` was.

    Both are functions of the same tensors. They are recorded for the types they meet in the graph,
    so one pattern serves all shapes and dtypes. The order of the operands of commutative ops makes
    no difference. A place is left alone where a value inside of it is used elsewhere too, and where
    `where(match)` says no; of two that overlap, the first is taken.

    To find where to look, the pattern is recorded for small tensors of the ranks and dtypes that
    the graph has; a pattern that only works for certain sizes needs an `example`: a `weft.spec` for
    each parameter.

    >>> g = weft.make_graph(lambda x, y: weft.exp(x) * weft.exp(y), weft.spec(3), weft.spec(3))
    >>> print(weft.rewrite(
    ...     g, lambda a, b: weft.exp(a) * weft.exp(b), lambda a, b: weft.exp(a + b)
    ... ).text(locations=False, history=False))
    graph @lambda(%x: f32[3], %y: f32[3]) {
      %0: f32[3] = add %x, %y
      %1: f32[3] = exp %0
      return %1
    }
    """
    start = time.perf_counter()
    rule = Rule(pattern, replacement, where)
    rule.pattern.prepare(graph, example)
    new = rule.apply(graph)
    plural = "" if rule.count == 1 else "s"
    note = f"{rule.count} replacement{plural} of {_name(pattern)}"
    return new.stamped(Stage("rewrite", time.perf_counter() - start, note))


class Rule:
    """A pattern and what takes its place, each recorded once for each set of types."""

    def __init__(
        self,
        pattern: Callable[..., Any],
        replacement: Callable[..., Any],
        where: Callable[[Match], bool] | None,
    ) -> None:
        self.pattern = Pattern(pattern)
        self.replacement = replacement
        self.where = where
        self.count = 0
        self._replacements: dict[Types, Graph] = {}

    def _record_replacement(self, types: Types, match: Match) -> Graph:
        found = self._replacements.get(types)
        if found is None:
            found = self._replacements[types] = record(self.replacement, types, "replacement")
        given = [value.type for value in found.outputs]
        wanted = [value.type for value in match.outputs]
        if given != wanted:
            raise GraphError(
                f"the replacement gives {_listed(given)} where the pattern gives {_listed(wanted)}",
                op="rewrite",
                operands=types,
                hint="cast or reshape in the replacement, or leave such places out with `where`",
            )
        return found

    # --- one graph ----------------------------------------------------------------------------

    def apply(self, graph: Graph) -> Graph:
        """The new graph; nested graphs are rewritten too."""
        matches = self._matches(graph)
        if any(len(match.outputs) > 1 for match in matches) and not _can_run(graph, matches):
            matches = self._matches(graph, careful=True)
        by_node = {node: match for match in matches for node in match.nodes}
        unused = _unused_constants(graph, matches, by_node)
        builder = Builder(graph, nested=self.apply)
        done: set[Match] = set()
        for node in _run_order(graph, matches, by_node):
            match = by_node.get(node)
            if match is None:
                if node not in unused:
                    builder.copy(node)
            elif match not in done:
                done.add(match)
                self._inline(builder, match)
        self.count += len(matches)
        return builder.finish()

    def _matches(self, graph: Graph, *, careful: bool = False) -> list[Match]:
        """The places to rewrite, in order, none of which overlap.

        With `careful`, one is left out that could not be a single call beside those before it.
        """
        matcher = Matcher(graph)
        taken: set[Node] = set()
        found: list[Match] = []
        for root in graph.nodes:
            match = self._match_at(matcher, root, taken)
            if match is not None and not (careful and not _can_run(graph, [*found, match])):
                found.append(match)
                taken.update(match.nodes)
        return found

    def _match_at(self, matcher: Matcher, root: Node, taken: set[Node]) -> Match | None:
        for skeleton in list(self.pattern.skeletons.values()):
            for rough in matcher.find(skeleton, root):
                values = [rough.values[value] for value in skeleton.inputs]
                types = tuple([value.tensor_type for value in values])
                exact = self.pattern.record(types)
                if exact is None:
                    continue
                fixed = dict(zip(exact.inputs, values, strict=True))
                for found in matcher.find(exact, root, fixed):
                    match = Match(exact, self.pattern.names, found)
                    if (
                        taken.isdisjoint(match.nodes)
                        and matcher.is_whole(exact, found)
                        and (self.where is None or self.where(match))
                    ):
                        return match
        return None

    def _inline(self, builder: Builder, match: Match) -> None:
        """Put the replacement where the match was."""
        types = tuple([value.tensor_type for value in match.inputs.values()])
        recorded = self._record_replacement(types, match)
        location = match.nodes[0].location  # of the root: what the user wrote there
        inner = dict(zip(recorded.inputs, [builder[v] for v in match.inputs.values()], strict=True))
        for node in recorded.nodes:
            new = Node(
                node.op,
                [inner[value] for value in node.inputs],
                node.attrs,
                [value.type for value in node.outputs],
                [nested.clone() for nested in node.graphs],
                location,
            )
            builder.graph.nodes.append(new)
            inner.update(zip(node.outputs, new.outputs, strict=True))
        given = set(recorded.inputs)
        for old, result in zip(match.outputs, recorded.outputs, strict=True):
            if old.name and result not in given and not inner[result].name:
                inner[result].name = old.name
        builder.forward(match.outputs, [inner[result] for result in recorded.outputs])


# --- orders --------------------------------------------------------------------------------------


def _run_order(graph: Graph, matches: list[Match], by_node: dict[Node, Match]) -> list[Node]:
    """The nodes in an order in which the nodes of each match can be one call, at the last of them.

    A match with one result can be where that is made. One with several may have to wait for a later
    input, and then the users of its first result have to wait as well.
    """
    if all(len(match.outputs) == 1 for match in matches):
        # The root, which is first among the nodes of a match, is last in the graph.
        return [n for n in graph.nodes if n not in by_node or by_node[n].nodes[0] is n]
    units = topological_order(_units(graph, by_node))
    return [n for unit in units for n in (unit.nodes if isinstance(unit, Match) else [unit])]


def _units(graph: Graph, by_node: dict[Node, Match]) -> dict[Any, list[Any]]:
    """What follows what, with each match as one: {match or node: [its users]}."""
    edges: dict[Any, list[Any]] = {}
    for node in reversed(graph.nodes):  # each match stands where its last node is
        edges.setdefault(by_node.get(node, node), [])
    edges = dict(reversed(edges.items()))
    for node in graph.nodes:
        to: Any = by_node.get(node, node)
        for value in node.inputs:
            if value.node is not None:
                source: Any = by_node.get(value.node, value.node)
                if source is not to:
                    edges[source].append(to)
    return edges


def _unused_constants(graph: Graph, matches: list[Match], by_node: dict[Node, Match]) -> set[Node]:
    """Constants that only the replaced calls used."""
    users = graph.users()
    needed = {*graph.outputs, *(value for match in matches for value in match.inputs.values())}
    used = {value.node for node in by_node for value in node.inputs}
    return {
        node
        for node in used
        if node is not None
        and is_constant(node)
        and all(
            value not in needed and all(user in by_node for user in users[value])
            for value in node.outputs
        )
    }


def _can_run(graph: Graph, matches: list[Match]) -> bool:
    """Whether matches with several results can all be single calls: they must not form a cycle."""
    by_node = {node: match for match in matches for node in match.nodes}
    try:
        topological_order(_units(graph, by_node))
    except GraphError:
        return False
    return True


def _listed(types: Sequence[Any]) -> str:
    return ", ".join(map(str, types)) or "nothing"


def _name(function: Callable[..., Any]) -> str:
    name: str = getattr(function, "__name__", type(function).__name__)
    return "a pattern" if name == "<lambda>" else name
