"""Sums over ranks of many small tensors become one of all their elements.

A backward pass sums the gradient of each parameter over ranks as soon as it is there. A message has
a cost of its own, so what can travel together does: calls of one card for one group of ranks, of
which none depends on another, up to a size. All ranks have the same graph, and so bundle alike.
"""

from __future__ import annotations

import heapq
from dataclasses import field
from typing import Any

from weft.base.dataclass import dataclass
from weft.ir.attributes import attrs_key
from weft.ir.graph import Builder, Graph, Node, Value
from weft.ir.op import Trait
from weft.ops.cards import GETITEM, RESHAPE
from weft.ops.collective import SUM_JOINED
from weft.passes.contract import Notes, Pass
from weft.passes.facts import dense, is_static

#: What is larger than this travels alone.
MOST_BYTES = 1 << 22
#: A bundle of so many bytes is complete: it is on its way while the next one is computed.
ENOUGH_BYTES = 1 << 19


class Bundles(Pass):
    """Joins sums over ranks that do not depend on each other, so that they are one message."""

    name = "bundles"

    def rewrite(self, graph: Graph, notes: Notes) -> Graph:
        if not any(node.op.collective for node in graph.nodes):
            return graph
        bundles = [bundle for bundle in _bundles(graph) if len(bundle.nodes) > 1]
        if not bundles:
            return graph
        member = {node: bundle for bundle in bundles for node in bundle.nodes}
        builder = Builder(graph)
        for node in _ordered(graph, member):
            bundle = member.get(node)
            if bundle is None:
                builder.copy(node)
            else:
                _bundle(builder, bundle.nodes)
                notes.add("sums over ranks bundled", len(bundle.nodes))
        return builder.finish()


@dataclass(eq=False)
class _Bundle:
    """
    after   numbers of the bundles that its operands depend on, as bits
    """

    number: int
    nodes: list[Node] = field(default_factory=list)
    nbytes: int = 0
    after: int = 0


def _bundles(graph: Graph) -> list[_Bundle]:
    found: list[_Bundle] = []
    open_for: dict[Any, _Bundle] = {}
    depends: dict[Value, int] = {}  # the bundles that a value depends on, as bits

    def reaches(bits: int, target: int) -> bool:
        """Whether a bundle depends on another one, perhaps by way of others."""
        seen, left = 0, bits
        while left:
            if left >> target & 1:
                return True
            seen |= left
            after = 0
            for bundle in found:
                if left >> bundle.number & 1:
                    after |= bundle.after
            left = after & ~seen
        return False

    for node in graph.nodes:
        bits = 0
        for value in node.inputs:
            bits |= depends.get(value, 0)
        key = _key(node)
        if key is not None:
            nbytes = node.out.tensor_type.nbytes
            bundle = open_for.get(key)
            full = bundle is not None and bundle.nbytes >= ENOUGH_BYTES
            if bundle is None or full or reaches(bits, bundle.number):
                bundle = open_for[key] = _Bundle(len(found))
                found.append(bundle)
            bundle.nodes.append(node)
            bundle.nbytes += nbytes
            bundle.after |= bits
            bits |= 1 << bundle.number
        if bits:
            depends.update(dict.fromkeys(node.outputs, bits))
    return found


def _key(node: Node) -> Any:
    """Calls with the same key may be bundled; None for all others."""
    if Trait.BUNDLED not in node.op.traits:
        return None
    kind = dense(node)
    if kind is None or not is_static(kind) or kind.nbytes > MOST_BYTES:
        return None
    return node.op, kind.dtype, kind.device, attrs_key(node.attrs)


def _ordered(graph: Graph, member: dict[Node, _Bundle]) -> list[Node]:
    """The nodes in their order, but each bundle (as its last node) behind all of its operands."""
    place = {node: number for number, node in enumerate(graph.nodes)}

    def stand_in(node: Node) -> Node:
        bundle = member.get(node)
        return node if bundle is None else bundle.nodes[-1]

    users: dict[Node, list[Node]] = {}
    missing: dict[Node, int] = {}
    for node in graph.nodes:
        me = stand_in(node)
        before = {stand_in(value.node) for value in node.inputs if value.node in place}
        missing[me] = missing.get(me, 0) + len(before)
        for other in before:
            users.setdefault(other, []).append(me)
    ready = [place[node] for node, count in missing.items() if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        node = graph.nodes[heapq.heappop(ready)]
        order.append(node)
        for user in users.get(node, ()):
            missing[user] -= 1
            if not missing[user]:
                heapq.heappush(ready, place[user])
    return order


def _bundle(builder: Builder, nodes: list[Node]) -> None:
    last = nodes[-1]
    given = [builder.map.get(node.inputs[0], node.inputs[0]) for node in nodes]
    total = builder.add(SUM_JOINED, *given, like=last, **last.attrs)
    start = 0
    for node in nodes:
        kind = node.out.tensor_type
        part = builder.add(GETITEM, total, like=node, index=(slice(start, start + kind.size),))
        start += kind.size
        builder.forward(node.outputs, [builder.add(RESHAPE, part, like=node, shape=kind.shape)])
