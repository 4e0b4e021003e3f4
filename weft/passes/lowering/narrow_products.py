"""Products of bfloat16 or float16 matrices that were widened to float32 read them as they are.

Products of narrow floats are exact in float32, and GPUs sum them in float32: the result is that of
the wide matrices, at the speed of narrow ones.
"""

from __future__ import annotations

from weft.base.device import CPU
from weft.base.dtypes import bfloat16, float16, float32
from weft.ir.graph import Builder, Graph, Node, Value
from weft.ir.types import TensorType
from weft.ops.cards import ASTYPE, MATMUL, PERMUTE_DIMS
from weft.passes.dead_code import DeadCode

__all__ = ["narrow_products"]


def narrow_products(graph: Graph) -> Graph:
    """The graph with products of narrow operands and wide results, where that changes nothing."""
    if not any(_is_wide_product(node) for part in graph.walk() for node in part.nodes):
        return graph
    return DeadCode().run(_narrow(graph))


def _narrow(graph: Graph) -> Graph:
    builder = Builder(graph, nested=_narrow)
    for node in graph.nodes:
        if not _is_wide_product(node):
            builder.copy(node)
            continue
        given = [_narrow_operand(builder, value) for value in node.inputs]
        made = Node(MATMUL, given, node.attrs, [node.out.type], (), node.location)
        builder.graph.nodes.append(made)
        builder.forward(node.outputs, made.outputs)
    return builder.finish()


def _is_wide_product(node: Node) -> bool:
    if node.op is not MATMUL or node.out.tensor_type.dtype is not float32:
        return False
    if node.out.tensor_type.device == CPU:  # there, cards compute, in one dtype
        return False
    sources = [_source(value) for value in node.inputs]
    kinds = {source.tensor_type.dtype for source in sources if source is not None}
    return None not in sources and len(kinds) == 1


def _source(value: Value) -> Value | None:
    """The narrow value that was widened, perhaps with its axes in another order."""
    node = value.node
    if node is not None and node.op is PERMUTE_DIMS:
        node = node.inputs[0].node
    if node is None or node.op is not ASTYPE or not isinstance(node.inputs[0].type, TensorType):
        return None
    return node.inputs[0] if node.inputs[0].type.dtype in (bfloat16, float16) else None


def _narrow_operand(builder: Builder, value: Value) -> Value:
    source = _source(value)
    assert source is not None
    found = builder[source]
    if value.node is not None and value.node.op is PERMUTE_DIMS:
        return builder.add(PERMUTE_DIMS, found, like=value.node, **value.node.attrs)
    return found
