"""Updates that leave the epilogues of products, so that they can be done in place.

The update of a weight may run in the epilogue of the product that computes its gradient, which
saves reading the gradient again. But often the backward still reads the weight after that product.
And nothing is written in place where a run takes long after its first write to an input, as it
could no longer be cancelled (`weft.schedule.in_place`). Then parameters and moments would exist
twice. If they are large, their updates get loops of their own, at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

from weft.base.dims import typical
from weft.ir.graph import Graph, Node, Value
from weft.ir.types import TensorType
from weft.schedule.groups import IN_REGISTERS, Group, Leaf

__all__ = ["bytes_in_place", "separate_updates"]

#: From this many bytes of results on. Less is not worth a second grouping.
LARGE = 16 << 20


def bytes_in_place(graph: Graph, pairs: Iterable[tuple[int, int]]) -> int:
    """The bytes of the outputs that are written to inputs."""
    return sum(_bytes(graph.outputs[output]) for output, _ in pairs)


def separate_updates(
    groups: Sequence[Group], results: Sequence[Value], inputs: Set[Value], kept: Set[Value]
) -> set[Node]:
    """The nodes of updates in epilogues that are not done in place; none if they are small.

    `kept`: the results that are written in place.
    """
    wanted = set(results)
    nodes: set[Node] = set()
    total = 0
    for group in groups:
        if group.kind not in IN_REGISTERS:
            continue
        types = {value.type for value in group.reads() if value in inputs}
        lost = [v for v in group.outputs if v in wanted and v not in kept and v.type in types]
        lost = [value for value in lost if value is not group.nodes[0].outputs[0]]
        if lost:
            total += sum(map(_bytes, lost))
            nodes |= _only_for(group, set(lost))
    return nodes if total >= LARGE else set()


def _only_for(group: Group, lost: Set[Value]) -> set[Node]:
    """The nodes of an epilogue that no other result of the group needs."""
    makers = {value: node for node in group.nodes for value in node.outputs}
    todo = [makers[value] for value in group.outputs if value not in lost and value in makers]
    needed: set[Node] = {group.nodes[0]}
    while todo:
        node = todo.pop()
        if node not in needed:
            needed.add(node)
            operands = [op for op in group.operands[node] if not isinstance(op, Leaf)]
            todo += [makers[op] for op in operands if isinstance(op, Value) and op in makers]
    return {node for node in group.nodes if node not in needed}


def _bytes(value: Value) -> int:
    return typical(value.type.nbytes) if isinstance(value.type, TensorType) else 0
