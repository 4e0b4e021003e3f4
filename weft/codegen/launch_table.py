"""Launches of many kernels as a loop over tables, so that the code of a deep model is short.

A row of the first table is a launch: its kernel, items, grain (0: it is not shared), number of
operands, and whether the run is polled before it. The second table has the operands of all
launches, each a kind and a number: an offset in the arena, or a place in one of three arrays of
pointers (the inputs and outputs of the graph, the constants of the run, and what the function has
put together: kernels, small constants, the run).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

from weft.base.errors import InternalError
from weft.codegen.contract import RUN, SMALL_CONSTANT
from weft.codegen.index import Ptr
from weft.codegen.kernel import Kernel
from weft.codegen.launch import Launcher, slot
from weft.codegen.text import Function, Module
from weft.ir.graph import Value
from weft.ir.literal import Literal
from weft.schedule.plan import Arena, Constant, GraphPlan, Input, Output, Step

__all__ = ["LEAST", "Launches", "batches"]

#: Fewer kernels in a row are launched one by one: a little faster, and the code is still short.
LEAST = 48
#: Numbers in a row of the first table, and what the low bits of an operand say.
_ROW = 5
_KIND_BITS = 2
_ARENA, _TABLE, _CONSTANTS, _POINTERS = range(4)
_POLL, _MAY_END = 1, 2

_PARAMS = [
    *(("ptr", "arena"), ("ptr", "arrays"), ("ptr", "args"), ("ptr", "run")),
    *(("ptr", "rows"), ("ptr", "operands"), ("i64", "count")),
]


def batches(steps: Sequence[Step], waves: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Where steps that are only launches follow each other, and are many: their first number, and
    the one after their last. The steps of `waves` run at the same time, and not from a table."""
    together = {number for first, end in waves for number in range(first, end)}
    first = kernels = 0
    for number, step in enumerate([*steps, None]):
        if step is not None and number not in together and _is_launch(step):
            kernels += len(step.kernels)
            continue
        if kernels >= LEAST:
            yield first, number
        first, kernels = number + 1, 0


def _is_launch(step: Step) -> bool:
    return step.kind not in ("control", "stack", "call") and not step.tells


class Launches:
    """The launches of some steps of a graph.

    constant    gives the address of a small constant
    number_of   the numbers of other constants, by their digests
    read        the values that some step reads
    """

    def __init__(
        self,
        launcher: Launcher,
        plan: GraphPlan,
        constant: Callable[[Literal], Ptr],
        number_of: Mapping[str, int],
        read: Set[Value],
    ) -> None:
        self.f = launcher.f
        self.launcher = launcher
        self.plan = plan
        self._constant = constant
        self._number_of = number_of
        self._read = read
        self._pointers: dict[str, int] = {}
        self._rows: list[int] = []
        self._operands: list[int] = []
        self._places: dict[Value, int] = {}

    def add(self, step: Step, arguments: Sequence[Any], *, may_end: bool) -> None:
        """The launches of one more step."""
        operands = [self._operand(step, value, may_end) for value in arguments]
        for kernel in step.kernels:
            poll = self.launcher.polls(kernel, may_end=may_end)
            flags = (_POLL if poll else 0) | (_MAY_END if may_end else 0)
            self._rows += [
                *(self._pointer(f"@{kernel.name}"), kernel.items, self._grain(kernel)),
                *(len(operands), flags),
            ]
            self._operands += operands

    def write(self, args: Ptr) -> None:
        """The code that launches them all; `args` has room for the operands of each."""
        f = self.f
        pointers = f.var("ptr", count=len(self._pointers), align=16)
        for name, place in self._pointers.items():
            (pointers + place).store(name)
        arrays = f.var("ptr", count=4, align=16)
        constants = self.launcher.of_run("constants")
        for place, array in enumerate((pointers, "%table", constants, pointers)):
            (arrays + place).store(array)
        rows, operands = (_numbers(f.module, n) for n in (self._rows, self._operands))
        launch = f.module.once("launch.table", _define)
        given = f"ptr %arena, ptr {arrays}, ptr {args}, ptr %run, ptr {rows}, ptr {operands}"
        self.launcher.check(f(f"call i32 @{launch}({given}, i64 {len(self._rows) // _ROW})"))

    def _grain(self, kernel: Kernel) -> int:
        return self.launcher.grain(kernel) if kernel.shared else 0

    def _pointer(self, name: str) -> int:
        return self._pointers.setdefault(name, len(self._pointers))

    def _operand(self, step: Step, value: Any, may_end: bool) -> int:
        if value is RUN:
            return _coded(_POINTERS, self._pointer("%run" if may_end else "null"))
        if value is None:
            room = self.plan.room(step.group)
            return _coded(_ARENA, room.offset) if isinstance(room, Arena) else self._null()
        if value not in self._places:
            self._places[value] = self._place(value)
        return self._places[value]

    def _null(self) -> int:
        return _coded(_POINTERS, self._pointer("null"))

    def _place(self, value: Value) -> int:
        match self.plan.place(value):
            case Input(number):
                return _coded(_TABLE, number)
            case Output(number):
                return _coded(_TABLE, len(self.plan.graph.inputs) + number)
            case Arena(offset):
                return _coded(_ARENA, offset)
            case Constant(literal):
                if literal.array.nbytes > SMALL_CONSTANT:
                    return _coded(_CONSTANTS, self._number_of[literal.digest])
                return _coded(_POINTERS, self._pointer(str(self._constant(literal))))
        if value in self._read:
            raise InternalError(f"{value} is read, and lies nowhere")
        return self._null()  # an unused result


def _coded(kind: int, number: int) -> int:
    return number << _KIND_BITS | kind


def _numbers(module: Module, numbers: Sequence[int]) -> str:
    said = ", ".join([f"i64 {number}" for number in numbers])
    return module.constant(f"[{len(numbers)} x i64]", f"[{said}]")


def _define(module: Module) -> None:
    """`@launch.table`: one launch for each row."""
    f = module.function("launch.table", "i32", _PARAMS, "nounwind noinline")
    arrays, args = f.ptr("%arrays", "ptr"), f.ptr("%args", "ptr")
    pointers = (arrays + _POINTERS).load_ptr("ptr")
    done = f.var("i64", 0)  # operands of the rows before
    with f.loop(0, f.index("%count")) as i:
        row = f.ptr("%rows", "i64") + i * _ROW
        number, items, grain, count, flags = ((row + at).load_index() for at in range(_ROW))
        first = done.load_index()
        with f.loop(0, count) as at:
            _load_operand(f, arrays, (f.ptr("%operands", "i64") + (first + at)).load(), args + at)
        done.store(first + count)
        kernel = (pointers + number).load_ptr()
        with f.when(_has(f, flags, _POLL)):
            poll = functools.partial(slot, f, "%run")
            found = f(f"call i32 {poll(RUN.index('poll'))}(ptr {poll(RUN.index('pool'))})")
            _check(f, found)
        with f.when(f(f"icmp eq i64 {grain}, 0")):
            _check(f, f(f"call i32 {kernel}(ptr %args, i64 0, i64 {items})"))
        with f.when(f(f"icmp ne i64 {grain}, 0")):
            pool, parallel = (slot(f, "%run", RUN.index(word)) for word in ("pool", "parallel"))
            place = f.ptr("%run", "ptr") + RUN.index("stop")
            stop = f(f"select i1 {_has(f, flags, _MAY_END)}, ptr {place}, ptr null")
            given = f"ptr {pool}, ptr {kernel}, ptr %args, i64 {items}, i64 {grain}, ptr {stop}"
            _check(f, f(f"call i32 {parallel}({given})"))
    f.do("ret i32 0")


def _load_operand(f: Function, arrays: Ptr, operand: str, to: Ptr) -> None:
    """Write the pointer of an operand, without a branch."""
    number = f.index(f(f"lshr i64 {operand}, {_KIND_BITS}"))
    kind = f.index(f(f"and i64 {operand}, {(1 << _KIND_BITS) - 1}"))
    in_arena = f(f"icmp eq i64 {kind}, {_ARENA}")
    at = f(f"select i1 {in_arena}, i64 0, i64 {number}")  # of the arena: any place that exists
    found = ((arrays + kind).load_ptr("ptr") + f.index(at)).load()
    offset = f.ptr("%arena").bytes(number)
    to.store(f(f"select i1 {in_arena}, ptr {offset}, ptr {found}"))


def _has(f: Function, flags: object, bit: int) -> str:
    return f(f"icmp ne i64 {f(f'and i64 {flags}, {bit}')}, 0")


def _check(f: Function, status: str) -> None:
    with f.when(f(f"icmp ne i32 {status}, 0")):
        f.do(f"ret i32 {status}")
        f.block(f.fresh("never"))
