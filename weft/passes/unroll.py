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

    def __init__(self, iterations: int = MOST_ITERATIONS, nodes: int = MOST_NODES) -> None:
        """Of at most so many iterations, which make at most so many nodes."""
        self.iterations = iterations
        self.nodes = nodes

    def rewrite(self, graph: Graph, notes: Notes) -> Graph:
        short = {node for node in graph.nodes if is_short(node, self.iterations, self.nodes)}
        if not short:
            return graph
        builder = Builder(graph)
        for node in graph.nodes:
            if node in short:
                _unroll(node, builder)
                notes.add("loop unrolled")
            else:
                builder.copy(node)
        return builder.finish()


def is_short(node: Node, iterations: int = MOST_ITERATIONS, nodes: int = MOST_NODES) -> bool:
    """Whether a node is a scan that is worth unrolling.

    A body with sizes of its own is not unrolled: they would have the same name in all iterations.
    """
    if node.op is not SCAN:
        return False
    length = node.attrs["length"]
    body = node.graphs[0]
    if not isinstance(length, int) or length > iterations:
        return False
    if length * body.node_count() > nodes or local_sizes(body):
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
        slices = [_row(builder, node, x, step) for x in xs]
        results = inline(builder, body, [*fixed, *carried, *slices])
        carried = results[:carries]
        for kept, y in zip(ys, results[carries:], strict=True):
            kept.append(y)
    stacked = []
    for value, kept in zip(node.outputs[carries:], ys, strict=True):
        stacked.append(_stacked(builder, node, value, kept[::-1] if reverse else kept))
    builder.forward(node.outputs, [*carried, *stacked])


def _row(builder: Builder, node: Node, x: Value, step: int) -> Value:
    """x[step]; if x was stacked by another unrolled loop, what was stacked there."""
    made = x.node
    stacked = made is not None and made.op is CONCAT and made.attrs["axis"] == 0
    parts = [part.tensor_type for part in made.inputs] if made is not None and stacked else []
    if made is not None and parts and all(part.shape[0] == 1 for part in parts):
        shape = parts[step].shape[1:]
        return builder.add(RESHAPE, made.inputs[step], like=node, shape=shape)
    return builder.add(GETITEM, x, like=node, index=step)


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
