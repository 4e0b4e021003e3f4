"""Where the values of one run lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.base.errors import InternalError
from weft.codegen.cuda.emitter import ARENA, EMPTY_STACKS, FLAG, Result, Work
from weft.ir.graph import Value
from weft.runtime.cuda.branches import Part
from weft.schedule.memory import size_of_type
from weft.schedule.plan import Arena, Constant, Input, Output
from weft.schedule.target import Target

if TYPE_CHECKING:
    from weft.runtime.cuda.program import CudaProgram

__all__ = ["Buffers"]


class Buffers:
    """Arrays and addresses of the values of a program's own graph."""

    def __init__(
        self,
        program: CudaProgram,
        inputs: list[Any],
        outputs: list[Any],
        known: dict[Value, Any],
    ) -> None:
        self.program = program
        self.inputs = inputs
        self.outputs = outputs
        self.known = known

    def array(self, value: Value) -> Any:
        program = self.program
        if value in program._fixed:
            return program._fixed[value]
        match program._plan.root.place(value):
            case Input(number):
                return self.inputs[number]
            case Output(number):
                return self.outputs[number].reshape(value.tensor_type.shape)
            case Constant(literal):
                return program._constant(literal)
            case Arena(offset):
                kind = value.tensor_type
                return program._driver.view(program._arena, offset, kind.shape, kind.dtype.numpy)
        raise InternalError(f"{value} lies nowhere")

    def address(self, value: Value | Result | str | None, work: Work) -> int:
        program = self.program
        if isinstance(value, Result):
            found = self.outputs[value.number]
            return 0 if found is None else program._driver.address(found)
        if value == ARENA:
            return program._base
        if value == FLAG:
            return program._driver.address(program._failed)
        if isinstance(value, str):
            if program._stacks is None:
                return 0
            return program._stacks.address(empty=value == EMPTY_STACKS)
        if value is None:
            offset = program._plan.root.memory.offsets.get(work.step.group)
            return 0 if offset is None else program._base + offset
        if value not in program._fixed:
            place = program._plan.root.place(value)
            if isinstance(place, Arena):
                return program._base + place.offset
            if place is None:
                return program._base  # a result that nobody reads
        return program._driver.address(self.array(value))

    def part(self, work: Work, target: Target, touched: frozenset[Any] | None = None) -> Part:
        """What some work reads and writes; `touched`: only of these buffers."""
        named = {value for value in work.buffers if isinstance(value, str)}
        if work.kind == "flow" or not named <= {FLAG}:
            return Part(alone=True)
        step, may_stop = work.step, target.may_fail(work.step.group)
        made = {*step.outputs, *(step.nodes[0].outputs if step.kind != "loop" else ())}
        reads: list[tuple[int, int]] = []
        writes: list[tuple[int, int]] = []
        for value in dict.fromkeys(work.buffers):
            if touched is not None and value not in touched:
                continue
            size = step.room if value is None else 4
            if isinstance(value, Value):
                size = size_of_type(value.type)
            if size:
                is_written = value in made or (may_stop if value == FLAG else value is None)
                (writes if is_written else reads).append((self.address(value, work), size))
        if work.kind == "convolution":
            writes.append((1, 1))  # the memory of the library, as all of them do
        return Part(reads, writes)
