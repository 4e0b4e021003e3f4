"""What generated code can do: which nodes have kernels, and of what kind."""

from __future__ import annotations

from weft.base.shapes import size_of
from weft.codegen.elementwise import has_emitter
from weft.codegen.tables import KERNELS, LAYOUTS, PRODUCTS
from weft.ir.graph import Node, Value
from weft.ir.types import TensorType
from weft.schedule.groups import IN_REGISTERS, Group
from weft.schedule.layouts import Layout

__all__ = ["emits", "layout", "may_fail", "special"]

_REDUCE_WITH = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}


def emits(node: Node) -> bool:
    """Whether a node is computed in generated loops: elementwise, or a reduction."""
    if not _has_elements(node):
        return False
    inputs = [value.type.dtype for value in node.inputs]  # type: ignore[union-attr]
    result = node.outputs[0].type.dtype  # type: ignore[union-attr]
    if node.op.reduction:
        if node.op.name in ("all", "any"):
            return has_emitter("logical_not", inputs, inputs[0]) or inputs[0].kind != "complex"
        return has_emitter(_REDUCE_WITH[node.op.name], [result, result], result)
    return has_emitter(node.op.name, inputs, result)


def special(node: Node) -> str:
    """The kind of its group where a node has kernels of its own, else ""."""
    if not _has_elements(node):
        return ""
    if node.op.name in PRODUCTS:
        return "product"
    if node.op.name in ("attention", "attention_grad"):
        return node.op.name
    return "kernel" if node.op.name in KERNELS else ""


def layout(node: Node, place: int) -> Layout:
    """How the emitter of a node reads one of its operands."""
    declared = LAYOUTS.get(node.op.name, ())
    return declared[place] if place < len(declared) else Layout.DENSE


def may_fail(group: Group) -> bool:
    """Whether the code of a group may end the run with an error."""
    if group.kind == "kernel":
        return bool(group.nodes[0].op.may_fail)
    return group.kind not in ("loop", "attention_grad", *IN_REGISTERS)


def _has_elements(node: Node) -> bool:
    """Empty tensors are left to the cards: there is nothing to compute, and much to get wrong."""
    return all(_filled(value) for value in (*node.inputs, *node.outputs))


def _filled(value: Value) -> bool:
    kind = value.type
    return isinstance(kind, TensorType) and size_of(kind.shape) != 0
