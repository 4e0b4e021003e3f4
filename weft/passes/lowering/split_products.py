"""Products of float32 from bfloat16 parts: each element is the sum of three, with no rest.

    matmul(a, b)  →  product_of_parts(a, b, a1, a2, a3, b1, b2, b3)

The parts are those of the operands times 2**32, so that the last ones are not below what bfloat16
has. They are elementwise ops: loops that compute an operand write its parts too, and products that
read the same matrix, transposed or not, share them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base.device import CPU
from weft.base.dims import has_dims
from weft.base.dtypes import bfloat16, float32
from weft.ir.graph import Builder, Graph, Node, Value
from weft.ir.op import Cost, Op
from weft.ir.types import TensorType
from weft.ops.cards import ASTYPE, FULL, MATMUL, MULTIPLY, PERMUTE_DIMS, SUBTRACT

__all__ = ["PRODUCT_OF_PARTS", "SCALE", "split_products"]

#: What operands are multiplied by before they are split.
SCALE = 2.0**32
#: Of a product: rows, columns, terms, and whether the operands lie transposed.
Fits = Callable[[int, int, int, bool, bool], bool]


def _type(a: TensorType, b: TensorType, *_parts: TensorType) -> TensorType:
    return a.like(shape=(*a.shape[:-1], b.shape[-1]))


def _values(xp: Any, a: Any, b: Any, *_parts: Any) -> Any:
    return xp.matmul(a, b)


def _cost(inputs: Any, outputs: Any) -> Cost:
    flops = 2 * outputs[0].size * inputs[0].shape[-1]
    return Cost(flops, sum(kind.nbytes for kind in (*inputs[2:], *outputs)))


PRODUCT_OF_PARTS = Op(
    "product_of_parts", _type, _values, cost=_cost, kinds="real floating", listed=False
)


def split_products(graph: Graph, fits: Fits) -> Graph:
    """The graph with such products where they fit."""
    if not any(_is_for_parts(node, fits) for node in graph.nodes):
        return graph
    builder = Builder(graph)
    known: dict[Value, list[Value]] = {}
    for node in graph.nodes:
        if not _is_for_parts(node, fits):
            builder.copy(node)
            continue
        given = [builder[value] for value in node.inputs]
        parts = [part for value in node.inputs for part in _parts(builder, value, known, node)]
        builder.forward(node.outputs, [builder.add(PRODUCT_OF_PARTS, *given, *parts, like=node)])
    return builder.finish()


def _is_for_parts(node: Node, fits: Fits) -> bool:
    if node.op is not MATMUL:
        return False
    a, b = (value.tensor_type for value in node.inputs)
    if {a.dtype, b.dtype, node.out.tensor_type.dtype} != {float32} or a.device == CPU:
        return False
    if b.ndim != 2 or a.ndim < 2 or has_dims((*a.shape, *b.shape)):
        return False
    turned = [_source(value) is not value for value in node.inputs]
    if turned[0] and a.ndim > 2:
        return False
    rows = 1
    for size in a.shape[:-1]:
        rows *= int(size)
    return fits(rows, int(b.shape[1]), int(b.shape[0]), *turned)


def _source(value: Value) -> Value:
    """The matrix whose transpose a value is; or the value."""
    node = value.node
    if node is None or node.op is not PERMUTE_DIMS or value.tensor_type.ndim != 2:
        return value
    return node.inputs[0] if tuple(node.attrs["axes"]) == (1, 0) else value


def _parts(
    builder: Builder, value: Value, known: dict[Value, list[Value]], like: Node
) -> list[Value]:
    source = _source(value)
    if source not in known:
        known[source] = _split(builder, builder[source], like)
    parts = known[source]
    if source is value:
        return parts
    return [builder.add(PERMUTE_DIMS, part, like=like, axes=(1, 0)) for part in parts]


def _split(builder: Builder, value: Value, like: Node) -> list[Value]:
    device = value.tensor_type.device
    scale = builder.add(FULL, like=like, shape=(), value=SCALE, dtype=float32, device=device)
    rest = builder.add(MULTIPLY, value, scale, like=like)
    parts = []
    for number in range(3):
        part = builder.add(ASTYPE, rest, like=like, dtype=bfloat16)
        parts.append(part)
        if number < 2:
            wide = builder.add(ASTYPE, part, like=like, dtype=float32)
            rest = builder.add(SUBTRACT, rest, wide, like=like)
    return parts
