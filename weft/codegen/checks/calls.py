"""What a program in check mode does around the call of a kernel.

Before the call: poison the results and the kernel's scratch memory, and build a table of what the
kernel may access. After it: if a guard has recorded a fault, or a result has poison (nobody wrote
it, or it was computed of what nobody wrote, as a sum that starts elsewhere), the run
ends with the status CHECKED. `@check_fault` then holds the number of the call and the words of the
kernel's table; `@check_call` is the number of the last call that was begun.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from weft.codegen.checks.frames import (
    ADDRESS,
    FAULT,
    NOTED,
    PLACE,
    UNWRITTEN,
    Entry,
    frame_words,
    write_frame,
)
from weft.codegen.checks.guard import fill, scan
from weft.codegen.checks.module import THUNK, CheckedModule
from weft.codegen.contract import Status
from weft.codegen.control.stacks import copy
from weft.codegen.index import Ptr, Size
from weft.codegen.kernel import PARAMS, Kernel, argument
from weft.codegen.text import Function
from weft.ir.graph import Value
from weft.ir.types import TensorType
from weft.schedule.groups import Group

__all__ = ["REDZONE", "Buffer", "CheckedCall", "Checking"]

#: Bytes between two buffers of the arena: an access beyond a buffer's end hits none.
REDZONE = 64
#: Poison of scratch memory and of floats: a NaN of all float dtypes. What is computed of it is the
#: same NaN, but for its sign, and for a signaling one, as that of float64 is, which becomes quiet.
_NAN = 0xFFF5FFF5FFF5FFF5
_LOOSE = {2: 1 << 15, 4: 1 << 31, 8: 1 << 63 | 1 << 51}
#: Poison of other dtypes: unlikely words.
_BOOL = 0xA5A5A5A5A5A5A5A5
_INTEGER, _STEP = 0xC3A596E15A3C87D2, 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer passed to a kernel: a value, None for scratch memory, `RUN` for the run.

    inputs  for a result that may be written in place of an input: the addresses of those inputs
    """

    value: Any
    address: Ptr
    size: Size
    writable: bool
    inputs: Sequence[Ptr] = ()


class CheckedCall:
    """A call site of a group's kernels. Its table has an entry for each buffer, and one for the
    array of their addresses."""

    _table: Ptr

    def __init__(
        self, checking: Checking, group: Group, kernels: Sequence[str], buffers: Sequence[Buffer]
    ) -> None:
        self.group = group
        self.kernels = kernels
        self.buffers = [buffer.value for buffer in buffers]
        self._given = buffers
        self._checking = checking
        self._number = len(checking.calls)

    def begin(self, f: Function) -> None:
        """Poison the results and the scratch memory."""
        f.do(f"store i64 {self._number}, ptr @check_call")
        for buffer in self._given:
            if buffer.value is None:
                self._checking.poison(f, buffer.address, buffer.size)
            elif (poison := _poison_of(buffer)) is not None:
                with _unless_in_place(f, buffer):
                    fill(f, buffer.address, buffer.size, poison.word, poison.step)

    def arguments(self, f: Function, args: Ptr) -> Ptr:
        """What kernels get in place of `args`: `args` and the table."""
        entries: list[Entry] = [(b.address.name, b.size, b.writable) for b in self._given]
        entries.append((args.name, 8 * len(self._given), False))
        self._words = frame_words(len(entries))
        self._table = f.var("i64", count=self._words, align=16)
        write_frame(f, self._table.name, "null", True, entries)
        both = f.var("ptr", count=2, align=16)
        both.store(args)
        (both + 1).store(self._table)
        return both

    def look(self, f: Function) -> None:
        """After a kernel: end the run if a guard has recorded a fault."""
        with f.when(f(f"icmp ne i64 {(self._table + FAULT).load()}, 0")):
            copy(f, _noted(f, 1), self._table, 8 * min(self._words, NOTED - 1))
            self._end(f)

    def end(self, f: Function) -> None:
        """After all kernels: end the run if a result has poison."""
        for place, buffer in enumerate(self._given):
            poison = _poison_of(buffer)
            if poison is None or (isinstance(buffer.size, int) and poison.size > buffer.size):
                continue
            with _unless_in_place(f, buffer):
                name = scan(f.module, poison.size)
                given = f"i64 {buffer.size // poison.size}, i64 {poison.word}, i64 {poison.step}"
                given += f", i64 {poison.loose}"
                at = f(f"call i64 @{name}(ptr {buffer.address}, {given})")
                with f.when(f(f"icmp sge i64 {at}, 0")):
                    offset = f(f"mul i64 {at}, {poison.size}")
                    for word, value in ((FAULT, UNWRITTEN), (ADDRESS, offset), (PLACE, place)):
                        _noted(f, 1 + word).store(value)
                    self._end(f)

    def _end(self, f: Function) -> None:
        f.do(f"store i64 {self._number}, ptr @check_fault")
        f.do(f"ret i32 {Status.CHECKED:d}")
        f.block(f.fresh("never"))


class Checking:
    """The checked calls of a program that is being written."""

    def __init__(self, module: CheckedModule) -> None:
        self.module = module
        self.calls: list[CheckedCall] = []

    def begin(
        self, f: Function, group: Group, kernels: Sequence[Kernel], buffers: Sequence[Buffer]
    ) -> CheckedCall:
        """Write what precedes the call of a group's kernels."""
        call = CheckedCall(self, group, [kernel.name for kernel in kernels], buffers)
        self.calls.append(call)
        call.begin(f)
        return call

    def poison(self, f: Function, address: Ptr, size: Size) -> None:
        """Poison untyped memory."""
        fill(f, address, size, _NAN, 0)

    def thunk(self, kernel: str) -> str:
        """The function that calls a kernel with its arguments and its table."""
        self.module.kernels.add(kernel)
        name = f"{THUNK}{kernel}"
        if not self.module.has(name):
            f = self.module.function(name, "i32", PARAMS)
            args, table = argument(f, 0), argument(f, 1)
            status = f(f"call i32 @{kernel}(ptr {args}, i64 %begin, i64 %end, ptr {table})")
            f.do(f"ret i32 {status}")
        return name

    def finish(self) -> None:
        """Define the variables that faults are recorded in."""
        zeros = "zeroinitializer, align 64"
        self.module.variable("check_fault", f"[{NOTED} x i64]", zeros, "")
        self.module.variable("check_call", "i64", "0, align 64", "")


def _noted(f: Function, word: int) -> Ptr:
    return f.ptr("@check_fault", "i64") + word


def _unless_in_place(f: Function, buffer: Buffer) -> AbstractContextManager[None]:
    """A condition: the result is not written in place of an input."""
    if not buffer.inputs:
        return nullcontext()
    other = "true"
    for address in buffer.inputs:
        other = f(f"and i1 {other}, {f(f'icmp ne ptr {buffer.address}, {address}')}")
    return f.when(other)


@dataclass(frozen=True, slots=True)
class _Poison:
    """What results hold before they are written.

    size   how many bytes are compared together
    word   the content of 8 bytes
    step   0, or what changes the word from each to the next: any word may be a valid integer, but
           hardly a sequence like this
    loose  bits that are not compared
    """

    size: int
    word: int
    step: int = 0
    loose: int = 0


def _poison_of(buffer: Buffer) -> _Poison | None:
    """The poison of a result; None for anything else."""
    value = buffer.value
    if (
        not buffer.writable
        or not isinstance(value, Value)
        or not isinstance(value.type, TensorType)
    ):
        return None
    dtype = value.type.dtype
    if dtype.kind in ("float", "complex"):
        size = dtype.itemsize // (2 if dtype.kind == "complex" else 1)
        return _Poison(size, _NAN, loose=_LOOSE[size]) if size in _LOOSE else None
    return _Poison(1, _BOOL) if dtype.kind == "bool" else _Poison(8, _INTEGER, _STEP)
