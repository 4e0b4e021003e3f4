"""Products of narrow floats with a bias as one node: it is added before the result is rounded.

    astype(matmul(x, w) in float32 + astype(b, float32), bfloat16)  →  matmul_bias(x, w, b)

cuBLASLt does that while it writes the product, so the float32 result is never in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft.base.dims import has_dims
from weft.base.dtypes import bfloat16, float16, float32
from weft.base.shapes import size_of
from weft.ir.graph import Builder, Graph, Node, Value
from weft.ir.op import Cost, Op
from weft.ir.types import TensorType
from weft.ops.cards import ADD, ASTYPE, MATMUL
from weft.passes.dead_code import DeadCode

__all__ = ["MATMUL_BIAS", "biased_products"]

#: Fewer multiplications are left to kernels of one block.
FEWEST = 1 << 20


def _type(x: TensorType, w: TensorType, bias: TensorType) -> TensorType:
    return x.like(shape=(*x.shape[:-1], w.shape[-1]))


def _values(xp: Any, x: Any, w: Any, bias: Any) -> Any:
    wide = [xp.astype(one, xp.float32) for one in (x, w, bias)]
    return xp.astype(xp.matmul(wide[0], wide[1]) + wide[2], x.dtype)


def _cost(inputs: Any, outputs: Any) -> Cost:
    flops = 2 * outputs[0].size * inputs[0].shape[-1]
    return Cost(flops, sum(kind.nbytes for kind in (*inputs, *outputs)))


MATMUL_BIAS = Op("matmul_bias", _type, _values, cost=_cost, kinds="real floating", listed=False)


def biased_products(graph: Graph) -> Graph:
    """The graph with such nodes; nested graphs too."""
    nodes = [node for part in graph.walk() for node in part.nodes]
    if not any(_is_wide(node) for node in nodes):
        return graph
    return DeadCode().run(_biased(graph))


def _biased(graph: Graph) -> Graph:
    users, given = graph.users(), set(graph.outputs)
    builder = Builder(graph, nested=_biased)
    for node in graph.nodes:
        found = _found(node, users, given)
        if found is None:
            builder.copy(node)
            continue
        product, bias = found
        inputs = [builder[value] for value in (*product.inputs, bias)]
        builder.forward(node.outputs, [builder.add(MATMUL_BIAS, *inputs, like=product)])
    return builder.finish()


def _is_wide(node: Node) -> bool:
    """Whether it is a large product of narrow floats by one matrix, with a result in float32."""
    if node.op is not MATMUL or node.out.tensor_type.dtype is not float32:
        return False
    x, w = (value.tensor_type for value in node.inputs)
    if x.dtype not in (bfloat16, float16) or x.ndim < 2 or w.ndim != 2:
        return False
    sizes = (*x.shape, w.shape[-1])
    return not has_dims(sizes) and size_of(sizes) >= FEWEST


def _found(
    node: Node, users: Mapping[Value, Sequence[Node]], given: set[Value]
) -> tuple[Node, Value] | None:
    """The product and the bias, if a node rounds their sum, which nothing else uses."""
    added = node.inputs[0].node if node.op is ASTYPE else None
    if added is None or added.op is not ADD:
        return None
    for value, other in (added.inputs, added.inputs[::-1]):
        product, bias = value.node, _bias(other)
        if product is None or bias is None or not _is_wide(product):
            continue
        dtype = product.inputs[0].tensor_type.dtype
        alone = all(len(users[one]) == 1 and one not in given for one in (value, added.out))
        kinds = {dtype, node.out.tensor_type.dtype, bias.tensor_type.dtype}
        fits = bias.tensor_type.shape == product.out.tensor_type.shape[-1:]
        if alone and fits and len(kinds) == 1:
            return product, bias
    return None


def _bias(value: Value) -> Value | None:
    """The narrow value that was widened."""
    node = value.node
    return node.inputs[0] if node is not None and node.op is ASTYPE else None
