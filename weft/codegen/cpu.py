"""CPUs as a target: which nodes have emitters, and which layouts they can read."""

from __future__ import annotations

from collections.abc import Set
from typing import NoReturn

from weft.base.dim_algebra import Dim
from weft.base.shapes import size_of
from weft.codegen.contract import NotNative
from weft.codegen.control.lists import STACK_OPS
from weft.codegen.control.rows import in_rows
from weft.codegen.elementwise import has_emitter
from weft.codegen.loops.reduce import JOINS
from weft.codegen.machine import Machine
from weft.codegen.pooled import pools
from weft.codegen.products import packs
from weft.codegen.sizes import RunSizes
from weft.codegen.tables import KERNELS, LAYOUTS, PRODUCTS
from weft.ir.dispatch import is_replaced
from weft.ir.graph import Node, Value
from weft.ir.types import TensorType
from weft.ops.cards import ALL, ANY
from weft.ops.stacks import STACK_POP
from weft.passes.lowering.attention.cards import ATTENTION, ATTENTION_GRAD
from weft.schedule.groups import IN_REGISTERS, Group
from weft.schedule.late import mentions
from weft.schedule.layouts import Layout
from weft.schedule.scan_rows import RowScan
from weft.schedule.target import Costs, Target
from weft.schedule.views import View

__all__ = ["CpuTarget"]


class CpuTarget(Target):
    """A CPU with its threads. `padding`: see `Target`."""

    separates = True

    def __init__(self, machine: Machine, padding: int = 0) -> None:
        self.machine = machine
        self.padding = padding
        if machine.has_many_cores:
            self.costs = Costs(share=5_000.0, piece=2_000.0)
            self.abreast = True
        #: The sizes of the run, of the program that is being made.
        self.sizes: RunSizes | None = None
        self.late: Set[str] = frozenset()

    def emits(self, node: Node) -> bool:
        if not _has_elements(node) or _is_replaced(node):
            return False
        inputs = [value.type.dtype for value in node.inputs]  # type: ignore[union-attr]
        result = node.outputs[0].type.dtype  # type: ignore[union-attr]
        if node.op.reduction:
            if node.op in (ALL, ANY):
                return has_emitter("logical_not", inputs, inputs[0]) or inputs[0].kind != "complex"
            return has_emitter(JOINS[node.op.name], [result, result], result)
        return has_emitter(node.op.name, inputs, result)

    def kind(self, node: Node) -> str:
        if node.op.name in STACK_OPS:
            return "stack"
        if not _has_elements(node) or _is_replaced(node):
            return ""
        if node.op.name in PRODUCTS:
            return "product"
        if node.op in (ATTENTION, ATTENTION_GRAD):
            return node.op.name
        return "kernel" if node.op.name in KERNELS else ""

    def layout(self, node: Node, place: int) -> Layout:
        declared = LAYOUTS.get(node.op.name, ())
        return declared[place] if place < len(declared) else Layout.DENSE

    def late_in(self, size: int) -> Set[str]:
        if not isinstance(size, Dim) or self.sizes is None or not self.late:
            return frozenset()
        return self.sizes.late_names(size)

    def let(self, text: str, low: int = 1, high: int | None = None) -> int:
        assert self.sizes is not None
        return self.sizes.let(text, low, high)

    def tells(self, node: Node) -> bool:
        return node.op.data_shape or node.op is STACK_POP

    def refuse(self, reason: str) -> NoReturn:
        raise NotNative(reason)

    def may_fail(self, group: Group) -> bool:
        if self.late and any(mentions(node, self.late) for node in group.in_order()):
            return True  # a card may fail where it gets an empty tensor
        if group.kind == "kernel":
            return bool(group.nodes[0].op.may_fail)
        return group.kind not in ("loop", "attention_grad", *IN_REGISTERS)

    def packs(self, node: Node, side: int, left: View, right: View) -> bool:
        return packs(self.machine, node, side, left, right)

    def pools(self, product: Node, node: Node) -> bool:
        return pools(self.machine, product, node)

    def rows(self, node: Node) -> RowScan | None:
        return in_rows(node, self, self.machine, None if self.sizes is None else self.sizes.let)


def _is_replaced(node: Node) -> bool:
    kinds = [value.type for value in node.inputs if isinstance(value.type, TensorType)]
    return node.op.kernels.overridden and is_replaced(node.op, [kind.dtype for kind in kinds])


def _has_elements(node: Node) -> bool:
    """Empty tensors are left to the cards."""
    return all(_filled(value) for value in (*node.inputs, *node.outputs))


def _filled(value: Value) -> bool:
    kind = value.type
    return isinstance(kind, TensorType) and size_of(kind.shape) != 0
