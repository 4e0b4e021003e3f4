"""A second target: plans as Python, each node evaluated by its card on NumPy arrays.

Values lie where the plan puts them, in one arena of bytes. All of it is poisoned before a run, and
a value's place after its last use: so a plan that reads too early, too late or elsewhere gives NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.shapes import size_of
from weft.core.bind import bind
from weft.core.grad_mode import no_grad
from weft.core.tensor import wrap
from weft.ir.graph import Node, Value
from weft.ir.interpret import run_node
from weft.ir.types import TensorType
from weft.schedule.groups import Group, Leaf, Operand
from weft.schedule.layouts import Layout
from weft.schedule.memory import size_of_type
from weft.schedule.plan import Arena, Constant, GraphPlan, Input, Kernel, Output, ProgramPlan, Step
from weft.schedule.target import Emitter, Limits, Target
from weft.schedule.views import View

Array = np.ndarray[Any, Any]
Program = Callable[[Sequence[Array]], list[Array]]

POISON = 0xFF


class ReferenceTarget(Target):
    """It fuses all that it can, in small kernels, and packs the operands of every product."""

    limits = Limits(nodes=12, buffers=6, total=64)
    alignment = 16
    padding = 32

    def emits(self, node: Node) -> bool:
        kinds = [value.type for value in (*node.inputs, *node.outputs)]
        return all(isinstance(k, TensorType) and size_of(k.shape) != 0 for k in kinds)

    def kind(self, node: Node) -> str:
        if not self.emits(node):
            return ""
        if node.op.name in ("attention", "attention_grad"):
            return node.op.name
        return "product" if node.op.name == "matmul" else "kernel"

    def layout(self, node: Node, _place: int) -> Layout:
        return Layout.MATRIX if node.op.name == "matmul" else Layout.DENSE

    def may_fail(self, group: Group) -> bool:
        return group.kind not in ("loop", "product")

    def packs(self, node: Node, _side: int, _left: View, _right: View) -> bool:
        return node.op.name == "matmul"


class ReferenceEmitter(Emitter):
    target = ReferenceTarget()

    def kernels(self, step: Step, name: str) -> list[Kernel] | None:
        if not step.nested:
            return [Kernel(name, 1, 1.0)]
        carries = sum(map(_room, _carried(step)))
        room = _inner(step) + carries + 64 * (1 + len(step.nodes[0].outputs))
        return [Kernel("", 0, 0.0, room)]

    def emit(self, plan: ProgramPlan) -> Program:
        """A function of the inputs. Outputs that the plan lets take the place of inputs do."""

        def program(inputs: Sequence[Array]) -> list[Array]:
            given = [np.array(array) for array in inputs]
            taken: dict[int, int] = {}
            for output, number in plan.root.in_place:  # each output and each input once
                if output not in taken and number not in taken.values():
                    taken[output] = number
            outputs = [
                given[taken[i]].reshape(value.tensor_type.shape) if i in taken else _empty(value)
                for i, value in enumerate(plan.root.graph.outputs)
            ]
            arena = np.empty(plan.root.arena, np.uint8)
            with no_grad(), np.errstate(all="ignore"):
                _Run(plan.root, arena, given, outputs).run()
            return outputs

        return program


def _empty(value: Value) -> Array:
    kind = value.tensor_type
    made = np.empty(kind.shape, kind.dtype.numpy)
    made.reshape(-1).view(np.uint8).fill(POISON)
    return made


def _carried(step: Step) -> list[Value]:
    node, inputs = step.nodes[0], step.nested[-1].graph.inputs
    first = node.attrs.get("consts", len(inputs))
    return list(inputs[first : first + node.attrs.get("carries", len(inputs))])


def _room(value: Value) -> int:
    return -(-max(1, size_of_type(value.type)) // 64) * 64


def _inner(step: Step) -> int:
    return -(-max(plan.arena for plan in step.nested) // 64) * 64


class _Run:
    """One run of one graph."""

    def __init__(
        self, plan: GraphPlan, arena: Array, inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> None:
        self.plan, self.arena, self.inputs, self.outputs = plan, arena, inputs, outputs

    def run(self) -> None:
        self.arena[: self.plan.arena] = POISON
        for number, step in enumerate(self.plan.steps):
            (self._control if step.nested else self._compute)(step)
            for value, last in self.plan.memory.dies.items():
                if last == number and isinstance(value, Value):
                    self._buffer(value).view(np.uint8)[:] = POISON
        for number, value in enumerate(self.plan.results):
            if self.plan.outputs.get(value) != number:
                self.outputs[number].reshape(-1)[:] = self._buffer(value)

    def _buffer(self, value: Value) -> Array:
        """All elements of a value, where the plan has them."""
        match self.plan.place(value):
            case Input(number):
                return self.inputs[number].reshape(-1)
            case Output(number):
                return self.outputs[number].reshape(-1)
            case Constant(literal):
                return literal.array.reshape(-1)
            case Arena(offset):
                part = self.arena[offset : offset + size_of_type(value.type)]
                return part.view(value.tensor_type.dtype.numpy)
        raise AssertionError(f"{value} lies nowhere")

    def _read(self, leaf: Leaf) -> Array:
        buffer = self._buffer(leaf.root)
        steps = [step * buffer.itemsize for step in leaf.view.strides]
        return np.lib.stride_tricks.as_strided(buffer[leaf.view.offset :], leaf.view.shape, steps)

    # --- nodes ----------------------------------------------------------------------------------

    def _compute(self, step: Step) -> None:
        """Evaluate the nodes of a group; its results are written when all is done."""
        group, known = step.group, dict[Value, Array]()
        for node in group.in_order():
            operands = group.operands.get(node, node.inputs)  # a tail's come from registers
            given = [self._operand(node, i, operands[i], known) for i in range(len(node.inputs))]
            known.update(zip(node.outputs, _evaluated(node, given), strict=True))
        for value in group.outputs:
            self._buffer(value)[:] = known[value].reshape(-1)

    def _operand(
        self, node: Node, number: int, operand: Operand, known: dict[Value, Array]
    ) -> Array:
        value = node.inputs[number]
        if isinstance(operand, Value) or (isinstance(operand, Leaf) and operand.root in known):
            root = operand if isinstance(operand, Value) else operand.root
            return _viewed(value, root, known[root])
        if isinstance(operand, Leaf):
            return self._read(operand)
        kind = value.tensor_type
        return np.broadcast_to(np.asarray(operand.number, kind.dtype.numpy), kind.shape)

    # --- control flow ---------------------------------------------------------------------------

    def _control(self, step: Step) -> None:
        node, at = step.nodes[0], self.plan.memory.offsets.get(step.group, 0)
        own = self.arena[at : at + step.room]
        own[:] = POISON
        given = [self._read(op) for op in step.group.operands[node] if isinstance(op, Leaf)]
        wanted = [
            _empty(value)
            if self.plan.place(value) is None
            else self._buffer(value).reshape(value.tensor_type.shape)
            for value in node.outputs
        ]

        def call(number: int, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
            _Run(step.nested[number], own, inputs, outputs).run()

        if node.op.name in ("if", "switch"):
            last = len(step.nested) - 1
            number = min(max(int(given[0]), 0), last)
            call(last - number if node.op.name == "if" else number, given[1:], wanted)
            return
        carried = _carried(step)
        first, count = node.attrs["consts"], len(carried)
        second, offset = [], _inner(step)
        for value in carried:
            kind = value.tensor_type
            part = own[offset : offset + kind.nbytes].view(kind.dtype.numpy)
            second.append(part.reshape(kind.shape))
            offset += _room(value)
        consts, now, turns = given[:first], given[first : first + count], (wanted[:count], second)
        if node.op.name == "while":
            assert not node.attrs["counted"], "stacks are no arrays"
            done, turn = _empty(step.nested[0].graph.outputs[0]), 0
            while not (call(0, [*consts, *now], [done]) or not done):
                call(1, [*consts, *now], turns[turn % 2])
                now, turn = turns[turn % 2], turn + 1
        else:
            order = range(node.attrs["length"])
            for turn, i in enumerate(reversed(order) if node.attrs["reverse"] else order):
                xs, ys = [x[i] for x in given[first + count :]], [y[i, ...] for y in wanted[count:]]
                call(0, [*consts, *now, *xs], [*turns[turn % 2], *ys])
                now = turns[turn % 2]
        for result, last_one in zip(wanted, now, strict=False):
            result[...] = last_one


def _evaluated(node: Node, given: Sequence[Array]) -> list[Array]:
    return [np.asarray(made._data) for made in run_node(node, [wrap(x) for x in given], bind)]


def _viewed(value: Value, root: Value, array: Array) -> Array:
    """A value that is a view of another, whose elements are known."""
    if value is root:
        return array
    assert value.node is not None
    (made,) = _evaluated(value.node, [_viewed(value.node.inputs[0], root, array)])
    return made
