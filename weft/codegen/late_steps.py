"""The code of a graph around sizes that the run itself tells.

What has such sizes lies in memory that is allocated while the graph runs (`weft.schedule.late`).
Its addresses are in an array, `%late`: those of chunks, results, and values popped off stacks.
The function of such a graph is therefore in two parts: `@name` provides the array, calls
`@name.body`, and frees the chunks, however the body ended.

A result with a late size is a box, as is such a value on a stack: its address, then the sizes of
its axes. The memory behind boxes is that of stacks, which lives as long as the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from weft.codegen.contract import NotNative, Status
from weft.codegen.control.boxes import write_box
from weft.codegen.control.heap import heap
from weft.codegen.control.stacks import copy
from weft.codegen.index import Index, Ptr
from weft.codegen.launch import slot
from weft.codegen.text import Function
from weft.ir.graph import Value
from weft.ir.types import TensorType
from weft.schedule.memory import size_of_type
from weft.schedule.plan import Arena, GraphPlan, Late, Step

if TYPE_CHECKING:
    from weft.codegen.program import CpuEmitter

__all__ = ["LateWriter"]

#: Kernels that rely on no size: with an empty operand they do what their cards do.
_TAKE_EMPTY = frozenset(("add_at", "concat", "scatter_add", "setitem"))
#: Reductions that have a result for no elements.
_OF_NOTHING = frozenset(("all", "any", "prod", "sum"))


def _takes_empty(step: Step, is_late: Callable[[int], bool]) -> bool:
    """Whether the kernels of a step are right where a tensor is empty."""
    if step.kind == "kernel":
        return step.nodes[0].op.name in _TAKE_EMPTY
    if step.kind != "loop":
        return False
    for node in step.group.in_order():
        if node.op.reduction and node.op.name not in _OF_NOTHING:
            shape = node.inputs[0].tensor_type.shape
            if any(is_late(shape[axis]) for axis in node.attrs["axis"]):
                return False
    return True


_PARAMS = [("ptr", "table"), ("ptr", "arena"), ("ptr", "run")]


class LateWriter:
    """Writes what concerns late sizes in the function of one graph."""

    def __init__(self, program: CpuEmitter, plan: GraphPlan) -> None:
        self.module = program.module
        self.plan = plan
        self.late = plan.late
        self._program = program

    def function(self) -> Function:
        """The function to write the graph to."""
        if not self.late.pointers:
            self.f = self.module.function(self.plan.name, "i32", _PARAMS)
        else:
            params = [*_PARAMS, ("ptr", "late")]
            self.f = self.module.function(f"{self.plan.name}.body", "i32", params)
        return self.f

    def finish(self) -> None:
        """Write the function around it."""
        count = self.late.pointers
        if not count:
            return
        f = self.module.function(self.plan.name, "i32", _PARAMS)
        own = f.var("ptr", count=count, align=16)
        f.do(f"store [{count} x ptr] zeroinitializer, ptr {own}")
        given = "ptr %table, ptr %arena, ptr %run"
        status = f(f"call i32 @{self.plan.name}.body({given}, ptr {own})")
        f.module.declare("void", "free", "ptr")
        for number in range(len(self.late.chunks)):
            f.do(f"call void @free(ptr {(own + number).load()})")
        f.do(f"ret i32 {status}")

    # --- memory ---------------------------------------------------------------------------------

    def room(self, place: Arena | Late) -> Ptr:
        if isinstance(place, Arena):
            return self.f.ptr("%arena").bytes(place.offset)
        return slot(self.f, "%late", place.pointer).bytes(place.offset)

    def allocate(self, step: int) -> None:
        """Allocate what has its sizes after a step."""
        f = self.f
        for number, chunk in enumerate(self.late.chunks):
            if chunk.step == step:
                f.module.declare("ptr", "aligned_alloc", "i64, i64")
                made = f(f"call ptr @aligned_alloc(i64 64, i64 {f.size(chunk.size)})")
                self._unless_null(made, Status.NO_ROOM)
                (f.ptr("%late", "ptr") + number).store(made)
        for value, told in self.late.results.items():
            if told == step:
                made_at = self._boxed(self.plan.outputs[value], value)
                pointer = self.late.pointer(value)
                assert pointer is not None
                (f.ptr("%late", "ptr") + pointer).store(made_at)

    def _boxed(self, number: int, value: Value) -> Ptr:
        """Memory for a result; its box is written."""
        f = self.f
        size = f.size(size_of_type(value.type) + 1)  # there is no memory of 0 bytes
        made = f.ptr(f(f"call ptr @{heap(f.module)}(ptr %run, i64 {size})"))
        self._unless_null(made.name, Status.OUT_OF_MEMORY)
        kind = self.plan.graph.outputs[number].type  # that of a view of the value, perhaps
        write_box(f, slot(f, "%table", len(self.plan.graph.inputs) + number), made, kind)
        return made

    def _unless_null(self, pointer: str, status: Status) -> None:
        f = self.f
        with f.when(f(f"icmp eq ptr {pointer}, null")):
            f.do(f"ret i32 {status:d}")
            f.block(f.fresh("never"))

    def copy_to_box(self, number: int, value: Value, source: Ptr) -> None:
        """A result that is elsewhere."""
        copy(self.f, self._boxed(number, value), source, size_of_type(value.type))

    # --- sizes ----------------------------------------------------------------------------------

    def tell(self, step: Step, numbers: Mapping[str, Index], check: Callable[[str], None]) -> None:
        """Note the numbers of names, compute what depends on them, and allocate memory. A card
        that was called has noted its own."""
        if step.tells:
            self._note(step.tells, numbers, check)
        self.allocate(self.plan.steps.index(step))

    def _note(
        self, names: Sequence[str], numbers: Mapping[str, Index], check: Callable[[str], None]
    ) -> None:
        f, sizes = self.f, self.module.sizes
        for name in names:
            place = sizes.place_of(name)
            if name in numbers:
                (f.ptr(f.size_table(), "i64") + place).store(numbers[name])
        function = self._program.tellers.name(names)
        check(f(f"call i32 @{function}(ptr {f.size_table()})"))

    def unpack(self, step: Step, check: Callable[[str], None]) -> None:
        """After a pop: the addresses of values from their boxes, and the sizes that these tell."""
        f, number = self.f, self.plan.steps.index(step)
        for value in step.outputs:
            place, pointer = self.plan.room(value), self.late.pointer(value)
            if place is not None and pointer is not None:
                address = self.room(place).of("ptr").load()
                (f.ptr("%late", "ptr") + pointer).store(address)
        for found in self.late.solved.get(number, ()):
            place = self.plan.room(found.value)
            if place is None:
                raise NotNative(f"nothing reads what tells the size {found.name}")
            whole = (self.room(place).of("i64") + (1 + found.axis)).load_index()
            self._note([found.name], {found.name: (whole - found.rest) // found.factor}, check)
        self.allocate(number)

    # --- empty tensors --------------------------------------------------------------------------

    def empty(self, step: Step) -> str | None:
        """An i1: whether a tensor of a step is empty; None if none can be."""
        if step.kind in ("control", "stack", "call"):
            return None
        if _takes_empty(step, self.module.sizes.is_late):
            return None
        return self._less_than_1(self._sizes(step))

    def all_empty(self, step: Step) -> str | None:
        """Of a step with an empty tensor, an i1: whether all results are empty, too. None if they
        always are."""
        f, sizes = self.f, self._sizes(step)
        shapes = [value.tensor_type.shape for value in step.outputs]
        if len(sizes) == 1 and all(sizes[0] in shape for shape in shapes):
            return None
        found = "true"
        for shape in shapes:
            late = [size for size in shape if self.module.sizes.is_late(size)]
            found = f(f"and i1 {found}, {self._less_than_1(late) or 'false'}")
        return found

    def _sizes(self, step: Step) -> list[int]:
        """The late sizes of the tensors in a step."""
        found: dict[int, None] = {}
        if self.module.sizes.late:
            for node in step.group.in_order():
                for value in (*node.inputs, *node.outputs):
                    if isinstance(value.type, TensorType):
                        shape = value.type.shape
                        found.update((n, None) for n in shape if self.module.sizes.is_late(n))
        return list(found)

    def _less_than_1(self, sizes: Sequence[int]) -> str | None:
        f, found = self.f, ""
        for size in sizes:
            one = f(f"icmp slt i64 {f.size(size)}, 1")
            found = f(f"or i1 {found}, {one}") if found else one
        return found or None
