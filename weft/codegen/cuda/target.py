"""A GPU as a target: which nodes share generated loops, and which are products of cuBLAS."""

from __future__ import annotations

from weft.base.device import CPU
from weft.base.dims import has_dims
from weft.base.shapes import size_of
from weft.codegen.control.lists import STACK_OPS
from weft.codegen.cuda.convolution import CONVOLUTIONS, convolution_of
from weft.codegen.cuda.fits import within
from weft.codegen.cuda.items import ITEM_OPS
from weft.codegen.cuda.machine import GpuMachine
from weft.codegen.elementwise import has_emitter
from weft.codegen.loops.reduce import JOINS
from weft.codegen.scalar.forms import supported
from weft.ir.graph import Node, Value
from weft.ir.types import StackType, TensorType
from weft.ops.cards import ALL, ANY, CONCAT, MATMUL, NLL, RESHAPE
from weft.passes.lowering.biased_products import MATMUL_BIAS
from weft.passes.lowering.split_products import PRODUCT_OF_PARTS
from weft.schedule.groups import Group
from weft.schedule.layouts import Layout
from weft.schedule.target import Limits, Target

__all__ = ["CudaTarget", "is_host", "is_input"]

#: dtypes of cuBLAS's products.
_PRODUCTS = ("float16", "bfloat16", "float32", "float64")


_GRAD_LAYOUTS = (*[Layout.LINES] * 5, Layout.DENSE, Layout.ROWS)
#: Of nodes of attention: how the kernels read q, k, v, the mask; or q, k, v, the result, its
#: gradient, lse, the mask.
ATTENTION_LAYOUTS = {
    "attention": (*[Layout.LINES] * 3, Layout.ROWS),
    "attention_grad": _GRAD_LAYOUTS,
    "attention_grad_joined": _GRAD_LAYOUTS,
}
#: Operands of a concatenation: the buffers of a kernel are parameters, 4 KiB at most.
MOST_PARTS = 400


#: Bytes of a buffer, and for how many steps its memory is not used again: 64 and 128 MB in all.
LINGERS = ((1 << 20, 64), (1 << 25, 4))


class CudaTarget(Target):
    """A GPU. What has no kernel here is called: its card runs on the GPU's arrays."""

    limits = Limits(nodes=160, buffers=40, total=1 << 12)
    alignment = 256
    recomputes = True

    def __init__(self, machine: GpuMachine) -> None:
        self.machine = machine

    def emits(self, node: Node) -> bool:
        if not _has_elements(node):
            return False
        inputs = [value.type.dtype for value in node.inputs]  # type: ignore[union-attr]
        result = node.outputs[0].type.dtype  # type: ignore[union-attr]
        if node.op.reduction:
            if node.op in (ALL, ANY):
                return inputs[0].kind != "complex"
            return has_emitter(JOINS[node.op.name], [result, result], result)
        return has_emitter(node.op.name, inputs, result)

    def kind(self, node: Node) -> str:
        if node.op.name in ATTENTION_LAYOUTS:
            return node.op.name.removesuffix("_joined")
        if node.op.name in STACK_OPS and not node.op.data_shape:
            return "stack"
        if node.op.name in ITEM_OPS and node.op not in (CONCAT, NLL):
            return "kernel" if _is_here(node) else ""
        if not _has_elements(node):
            return ""
        if node.op is CONCAT:
            fits = len(node.inputs) <= MOST_PARTS
            return "kernel" if fits and supported(node.outputs[0].tensor_type.dtype) else ""
        if node.op is NLL:
            return "kernel" if supported(node.inputs[0].tensor_type.dtype) else ""
        if node.op.name in CONVOLUTIONS:
            fits = self.machine.convolves and convolution_of(node) is not None
            return "kernel" if fits else ""
        if node.op in (MATMUL_BIAS, PRODUCT_OF_PARTS):
            return "kernel"
        if node.op is not MATMUL:
            return ""
        kinds = [value.tensor_type.dtype.name for value in (*node.inputs, *node.outputs)]
        return "kernel" if kinds[0] in _PRODUCTS else ""

    def layout(self, node: Node, place: int) -> Layout:
        if node.op.name in ATTENTION_LAYOUTS:
            return ATTENTION_LAYOUTS[node.op.name][place]
        is_matrix = node.op in (MATMUL, PRODUCT_OF_PARTS)
        is_matrix = is_matrix or (node.op is MATMUL_BIAS and place < 2)
        return Layout.MATRIX if is_matrix else Layout.DENSE

    def lingers(self, size: int) -> int:
        return next((steps for most, steps in LINGERS if size <= most), 0)

    def may_fail(self, group: Group) -> bool:
        node = group.nodes[0]
        if node.op is NLL and group.kind == "kernel":
            return not is_input(node.inputs[1])
        if group.kind == "stack":
            return True  # its memory may be full
        if group.kind == "control":
            return any(map(_may_stop, [node, *within(node)]))
        return group.kind in ("call", "kernel") and bool(node.op.may_fail)


def _may_stop(node: Node) -> bool:
    """Whether a node in control flow may end the run: it fails, or takes memory for stacks."""
    values = (*node.inputs, *node.outputs)
    return bool(node.op.may_fail) or any(isinstance(v.type, StackType) for v in values)


def is_host(value: Value) -> bool:
    """Whether it is a tensor on the CPU."""
    return isinstance(value.type, TensorType) and value.type.device == CPU


def is_input(value: Value) -> bool:
    """Whether it is an input of the graph, perhaps in another shape."""
    while value.node is not None and value.node.op is RESHAPE:
        value = value.node.inputs[0]
    return value.node is None


def _is_here(node: Node) -> bool:
    """Whether its results are filled and on the GPU; what it reads on the CPU is brought there."""
    kinds = [value.type for value in node.inputs]
    return all(map(_filled, node.outputs)) and all(
        isinstance(kind, TensorType) and not has_dims(kind.shape) and size_of(kind.shape) != 0
        for kind in kinds
    )


def _has_elements(node: Node) -> bool:
    """Empty tensors, and those on the CPU, are left to the cards."""
    return all(_filled(value) for value in (*node.inputs, *node.outputs))


def _filled(value: Value) -> bool:
    kind = value.type
    if not isinstance(kind, TensorType) or has_dims(kind.shape):
        return False
    return size_of(kind.shape) != 0 and kind.device != CPU
