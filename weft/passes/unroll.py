"""Unrolling: short loops of known length become straight-line code."""

from __future__ import annotations

from weft.ir.graph import Builder, Graph, Node, Value
from weft.ir.sizes import local_sizes
from weft.ir.types import StackType, TensorType
from weft.ops.cards import CONCAT, FULL, RESHAPE
from weft.ops.control import SCAN
from weft.ops.index_cards import GETITEM
from weft.passes.contract import Notes, Pass
from weft.passes.nesting import inline

#: A loop is unrolled if it has at most this many iterations, and makes at most this many nodes.
MOST_ITERATIONS = 8
MOST_NODES = 64


class Unroll(Pass):
    """Unrolls scans of a few iterations."""

    name = "unroll"

    def rewrite(self, graph: Graph, notes: Notes) -> Graph:
        if not any(map(is_short, graph.nodes)):
            return graph
        builder = Builder(graph)
        for node in graph.nodes:
            if is_short(node):
                _unroll(node, builder)
                notes.add("loop unrolled")
            else:
                builder.copy(node)
        return builder.finish()


def is_short(node: Node) -> bool:
    """Whether a node is a scan that is worth unrolling.

    A body with sizes of its own is not unrolled: they would have the same name in all iterations.
    """
    if node.op is not SCAN:
        return False
    length = node.attrs["length"]
    body = node.graphs[0]
    if not isinstance(length, int) or length > MOST_ITERATIONS:
        return False
    if length * body.node_count() > MOST_NODES or local_sizes(body):
        return False
    xs = node.inputs[node.attrs["consts"] + node.attrs["carries"] :]
    ys = body.outputs[node.attrs["carries"] :]
    return not any(isinstance(value.type, StackType) for value in (*xs, *ys))


def _unroll(node: Node, builder: Builder) -> None:
    body = node.graphs[0]
    consts, carries = node.attrs["consts"], node.attrs["carries"]
    length, reverse = node.attrs["length"], node.attrs["reverse"]
    given = builder.inputs_of(node)
    fixed, carried = given[:consts], given[consts : consts + carries]
    xs = given[consts + carries :]
    ys: list[list[Value]] = [[] for _ in body.outputs[carries:]]
    for step in reversed(range(length)) if reverse else range(length):
        slices = [builder.add(GETITEM, x, like=node, index=step) for x in xs]
        results = inline(builder, body, [*fixed, *carried, *slices])
        carried = results[:carries]
        for kept, y in zip(ys, results[carries:], strict=True):
            kept.append(y)
    stacked = []
    for value, kept in zip(node.outputs[carries:], ys, strict=True):
        stacked.append(_stacked(builder, node, value, kept[::-1] if reverse else kept))
    builder.forward(node.outputs, [*carried, *stacked])


def _stacked(builder: Builder, node: Node, value: Value, ys: list[Value]) -> Value:
    """The ys of all iterations along a new first axis."""
    kind = value.tensor_type
    if not ys:
        return builder.add(
            FULL, like=node, shape=kind.shape, value=0, dtype=kind.dtype, device=kind.device
        )
    rows = [builder.add(RESHAPE, y, like=node, shape=(1, *_shape(y.tensor_type))) for y in ys]
    return builder.add(CONCAT, *rows, like=node, axis=0) if len(rows) > 1 else rows[0]


def _shape(kind: TensorType) -> tuple[int, ...]:
    return kind.shape
