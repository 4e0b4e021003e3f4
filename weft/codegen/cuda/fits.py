"""Which control flow one block of a GPU runs, as one kernel."""

from __future__ import annotations

import math
from collections.abc import Iterator

from weft.base.device import CPU
from weft.base.dims import has_dims
from weft.base.shapes import size_of
from weft.codegen.control.lists import STACK_OPS
from weft.codegen.cuda.builder import MOST_BUFFERS
from weft.codegen.cuda.convolution import CONVOLUTIONS
from weft.ir.graph import Graph, Node, Value
from weft.ir.literal import CONSTANT
from weft.ir.op import Trait
from weft.ir.types import StackType, TensorType
from weft.ops.cards import FIRST_TOKEN, MATMUL
from weft.schedule.nodes import is_view, literal_of
from weft.schedule.target import Target

__all__ = ["block_threads", "whole_threads", "within"]

#: Elements of a value, multiplications of a product and bytes of a constant that one block handles
#: faster than the whole GPU does, which must start a kernel for each step.
ELEMENTS, PRODUCTS, CONSTANT_BYTES = 1 << 15, 1 << 20, 4096
#: Of a whole program as one block: elements of a value, elements of all nodes, and how many nodes
#: it has that no loop joins, at least.
WHOLE, TOTAL, STEPS = 1 << 14, 1 << 18, 3


def block_threads(node: Node, target: Target, most: int) -> int:
    """How many threads run a node of control flow as one block; 0 if it is not for one block."""
    largest = 1
    if len(node.inputs) + len(node.outputs) > MOST_BUFFERS - 4:
        return 0
    for graph in node.graphs:
        found = _of_graph(graph, target)
        if not found:
            return 0
        largest = max(largest, found)
    return min(most, max(32, 1 << (largest - 1).bit_length()))


def whole_threads(graph: Graph, target: Target, most: int) -> int:
    """How many threads run a whole graph as one block; 0 if it is not for one block."""
    host = {value for value in graph.inputs if _is_host(value)}
    largest = products = steps = total = 0
    for node in graph.nodes:
        fits = _is_for_block(node, target) and all(map(_is_small, node.outputs))
        if host.issuperset(node.inputs) and (not fits or all(map(_is_host, node.outputs))):
            host.update(node.outputs)  # the CPU does it before
            continue
        if not fits or not all(value in host or _is_small(value) for value in node.inputs):
            return 0
        inner = [_of_graph(one, target) for one in node.graphs]
        if not all(inner):
            return 0
        sizes = [*map(_elements, (*node.inputs, *node.outputs)), *inner]
        largest = max(largest, *sizes)
        if node.op is MATMUL:
            terms = node.inputs[0].tensor_type.shape[-1]
            products += math.prod(node.out.tensor_type.shape) * int(terms)
        if not is_view(node):
            total += max(sizes)
            steps += not node.op.elementwise
    if steps < STEPS or largest > WHOLE or products > PRODUCTS or total > TOTAL:
        return 0
    return min(most, max(32, 1 << (largest - 1).bit_length()))


def _is_host(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.device == CPU


def within(node: Node) -> Iterator[Node]:
    """The nodes in the graphs of a node."""
    for graph in node.graphs:
        for inner in graph.nodes:
            yield inner
            yield from within(inner)


def _of_graph(graph: Graph, target: Target) -> int:
    """The elements of its largest value; 0 if it has something that is not for one block."""
    values = [*graph.inputs, *(value for node in graph.nodes for value in node.outputs)]
    if not all(map(_is_small, values)):
        return 0
    largest = 1
    for node in graph.nodes:
        if not _is_for_block(node, target):
            return 0
        for inner in node.graphs:
            found = _of_graph(inner, target)
            if not found:
                return 0
            largest = max(largest, found)
    return max([largest, *map(_elements, values)])


def _has_code(kind: object) -> bool:
    if isinstance(kind, StackType):
        return not has_dims(kind.innermost.shape) and kind.innermost.device != CPU
    return isinstance(kind, TensorType) and kind.device != CPU and not has_dims(kind.shape)


def _is_small(value: Value) -> bool:
    kind = value.type
    if not _has_code(kind):
        # A number that is known needs no place.
        return isinstance(kind, TensorType) and literal_of(value) is not None
    return 0 < _elements(value) <= ELEMENTS


def _elements(value: Value) -> int:
    kind = value.type
    tensor = kind.innermost if isinstance(kind, StackType) else kind
    assert isinstance(tensor, TensorType)
    return size_of(tensor.shape)


def _is_for_block(node: Node, target: Target) -> bool:
    traits = node.op.traits
    if node.graphs:
        return node.op.branch or node.op.loop
    if traits & (Trait.EFFECT | Trait.DATA_SHAPE):
        return False
    if traits & Trait.STACK:
        return node.op.name in STACK_OPS and node.op is not FIRST_TOKEN
    if is_view(node) or literal_of(node.outputs[0]) is not None:
        return True
    if node.op is CONSTANT:
        return int(node.outputs[0].tensor_type.nbytes) <= CONSTANT_BYTES
    if node.op.elementwise or node.op.reduction:
        return target.emits(node)
    if node.op is MATMUL:
        terms = node.inputs[0].tensor_type.shape[-1]
        fits = math.prod(node.out.tensor_type.shape) * int(terms) <= PRODUCTS
        return fits and target.kind(node) == "kernel"
    return target.kind(node) == "kernel" and node.op.name not in CONVOLUTIONS
