"""Orders in which a graph can be run.

By Kahn's algorithm: a node is ready when its in-degree among the remaining nodes is 0. Of several
ready nodes, the first in the graph is taken, so a graph that is in order does not change. Nothing
here is recursive, so long chains of nodes are no problem.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from weft.base.errors import GraphError
from weft.ir.text import value_names

if TYPE_CHECKING:
    from weft.ir.graph import Graph, Node

__all__ = ["topological_numbers", "topological_order"]

T = TypeVar("T", bound=Hashable)


@overload
def topological_order(graph: Graph) -> list[Node]: ...
@overload
def topological_order(graph: Mapping[T, Iterable[T]]) -> list[T]: ...
def topological_order(graph: Any) -> Any:
    """The nodes in an order in which each comes after all of its predecessors.

    `graph` is a Graph, or a dictionary {node: [successors]}. A cycle is an error that names it.

    >>> weft.topological_order({"loss": [], "x": ["y"], "y": ["loss"], "w": ["y"]})
    ['x', 'w', 'y', 'loss']
    >>> weft.topological_order({"a": ["b"], "b": ["a"]})
    Traceback (most recent call last):
      ...
    weft.errors.GraphError: there is a cycle: a -> b -> a
      at ...
    """
    nodes, successors = _edges(graph)
    order = _kahn(successors)
    if len(order) < len(nodes):
        raise GraphError(f"there is a cycle: {_cycle(graph, nodes, successors, order)}")
    return [nodes[i] for i in order]


@overload
def topological_numbers(graph: Graph) -> dict[Node, int]: ...
@overload
def topological_numbers(graph: Mapping[T, Iterable[T]]) -> dict[T, int]: ...
def topological_numbers(graph: Any) -> Any:
    """The depth of each node: 0 without predecessors, else one more than the deepest of them.

    Nodes with the same number do not depend on each other.

    >>> weft.topological_numbers({"x": ["y", "loss"], "w": ["y"], "y": ["loss"]})
    {'x': 0, 'w': 0, 'y': 1, 'loss': 2}
    """
    nodes, successors = _edges(graph)
    order = _kahn(successors)
    if len(order) < len(nodes):
        raise GraphError(f"there is a cycle: {_cycle(graph, nodes, successors, order)}")
    numbers = [0] * len(nodes)
    for i in order:
        below = numbers[i] + 1
        for j in successors[i]:
            numbers[j] = max(numbers[j], below)
    return {nodes[i]: number for i, number in enumerate(numbers)}


def graph_levels(graph: Graph) -> list[list[Node]]:
    """The nodes by depth: those of one level may run at the same time."""
    numbers = topological_numbers(graph)
    levels: list[list[Node]] = [[] for _ in range(max(numbers.values(), default=-1) + 1)]
    for node, number in numbers.items():
        levels[number].append(node)
    return levels


def _edges(graph: Any) -> tuple[Sequence[Any], list[list[int]]]:
    """The nodes, and for each the positions of its successors."""
    if isinstance(graph, Mapping):
        nodes = list(dict.fromkeys([*graph, *(s for each in graph.values() for s in each)]))
        place = {node: i for i, node in enumerate(nodes)}
        return nodes, [[place[s] for s in graph.get(node, ())] for node in nodes]
    place = {node: i for i, node in enumerate(graph.nodes)}
    successors: list[list[int]] = [[] for _ in graph.nodes]
    for i, node in enumerate(graph.nodes):
        for value in node.inputs:
            made = value.node
            if made is not None and made in place:
                successors[place[made]].append(i)
    return graph.nodes, successors


def _kahn(successors: list[list[int]]) -> list[int]:
    """Positions in order, without those on a cycle or after one."""
    waiting = [0] * len(successors)
    for each in successors:
        for j in each:
            waiting[j] += 1
    ready = [i for i, count in enumerate(waiting) if not count]  # sorted, and so a heap
    order: list[int] = []
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for j in successors[i]:
            waiting[j] -= 1
            if not waiting[j]:
                heapq.heappush(ready, j)
    return order


def _cycle(
    graph: Any, nodes: Sequence[Any], successors: list[list[int]], order: Sequence[int]
) -> str:
    """A cycle among the nodes that are not in the order, as text."""
    left = set(range(len(nodes))).difference(order)
    before: dict[int, int] = {}
    for i in sorted(left):
        for j in successors[i]:
            if j in left:
                before.setdefault(j, i)
    # Each remaining node has a remaining predecessor: going back from any, one comes up twice.
    place = min(left)
    seen: dict[int, None] = {}
    while place not in seen:
        seen[place] = None
        place = before[place]
    back = [*seen]
    around = [*back[back.index(place) :], place][::-1]
    if isinstance(graph, Mapping):
        return " -> ".join(str(nodes[i]) for i in around)
    return _named_cycle(graph, [nodes[i] for i in around])


def _named_cycle(graph: Graph, around: list[Node]) -> str:
    """%a -> multiply -> %b -> add -> %a"""
    names = value_names(graph.values())
    parts: list[str] = []
    for node, after in itertools.pairwise(around):
        used = next(value for value in after.inputs if value.node is node)
        parts += [names.get(used, "%?"), after.op.name]
    return " -> ".join([*parts, parts[0]])
