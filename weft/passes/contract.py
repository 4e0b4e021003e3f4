"""What a pass is: it turns a graph into another one that computes the same.

The contract, which tests check for every pass:

- a valid graph in, a valid graph out, with the same inputs and the same types of outputs;
- the given graph is never changed, and is returned itself if there is nothing to do;
- results keep every bit, including the sign of a zero, infinities and wrapped integers. The only
  exception is a NaN: it stays a NaN, but its sign and payload may change;
- the time is O(n) or O(n log n) in the number of nodes, and nothing recurses along the graph.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any

from weft.base.errors import GraphError
from weft.ir.graph import Builder, Graph

__all__ = ["FunctionPass", "Notes", "Pass", "graph_pass"]


class Notes:
    """What a pass did, counted in words; the pipeline writes it into the graph's history."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, what: str, count: int = 1) -> None:
        """`notes.add("nodes removed", 3)`: counts of equal words are added up."""
        self.counts[what] += count

    def __str__(self) -> str:
        return ", ".join(f"{count} {what}" for what, count in self.counts.most_common() if count)


class Pass:
    """One step of the pipeline. Subclasses have a docstring of one line, and `rewrite`."""

    name: str = ""
    #: Whether `run` also applies it to the graphs nested in nodes, before the graph around them.
    #: A pass that says False handles them itself, or leaves them alone.
    nested: bool = True

    def rewrite(self, graph: Graph, notes: Notes) -> Graph:
        """Rewrite one graph, not its nested ones. Returns the same object if nothing changes."""
        raise NotImplementedError

    def run(self, graph: Graph, notes: Notes | None = None) -> Graph:
        """The graph after this pass; `graph` itself if nothing changed."""
        notes = Notes() if notes is None else notes
        if not self.nested or not any(node.graphs for node in graph.nodes):
            return self._rewritten(graph, notes)
        done: dict[Graph, Graph] = {}
        for inner in reversed(list(graph.walk())):  # inner graphs before outer ones
            done[inner] = self._rewritten(_with_nested(inner, done), notes)
        return done[graph]

    def _rewritten(self, graph: Graph, notes: Notes) -> Graph:
        out = self.rewrite(graph, notes)
        if not isinstance(out, Graph):
            raise GraphError(
                f"the pass {self.name!r} returned {type(out).__name__}, not a graph",
                hint="return the graph itself where there is nothing to do",
            )
        return out

    @property
    def doc(self) -> str:
        """What it does, in one line."""
        return (inspect.getdoc(self) or "").partition("\n")[0]

    def __repr__(self) -> str:
        return f"<pass {self.name}: {self.doc}>"


def _with_nested(graph: Graph, done: dict[Graph, Graph]) -> Graph:
    """The graph with new nested graphs; the same object if none of them changed."""
    if all(done[inner] is inner for node in graph.nodes for inner in node.graphs):
        return graph
    builder = Builder(
        graph, nested=lambda inner: inner.clone() if done[inner] is inner else done[inner]
    )
    for node in graph.nodes:
        builder.copy(node)
    return builder.finish()


class FunctionPass(Pass):
    """A plain function as a pass."""

    def __init__(self, function: Callable[..., Graph], name: str = "", nested: bool = True) -> None:
        self.function = function
        self.name = name or function.__name__
        self.nested = nested
        self.takes_notes = len(inspect.signature(function).parameters) > 1

    def rewrite(self, graph: Graph, notes: Notes) -> Graph:
        return self.function(graph, notes) if self.takes_notes else self.function(graph)

    @property
    def doc(self) -> str:
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    def __call__(self, graph: Graph) -> Graph:
        return self.run(graph)


def graph_pass(function: Any = None, /, *, name: str = "", nested: bool = True) -> Any:
    """Make a pass from a function `(graph) -> graph` or `(graph, notes) -> graph`.

    >>> @weft.graph_pass
    ... def do_nothing(graph):
    ...     "Leaves all as it is."
    ...     return graph
    >>> do_nothing
    <pass do_nothing: Leaves all as it is.>
    """
    if function is None:
        return lambda function: FunctionPass(function, name, nested)
    return FunctionPass(function, name, nested)
