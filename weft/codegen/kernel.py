"""What a kernel is, and how kernels made by different rooms fit together.

A kernel is a function of the module

    i32 @name(ptr %args, i64 %begin, i64 %end)

`args` points to an array of pointers: the inputs of the node in their order, then its results,
then, where `scratch` is not 0, memory of the kernel's own. All lie dense in C order, at the natural
alignment of their dtype and no better. `begin … end` are the items of work to do: any cut of the
range `0 … items` into ranges, run at the same time by several threads, must give the same bits.
It gives 0, or something else where the node fails as its card would (an index out of range): the
run ends there, and the card itself is asked for the error. Room for one thread is `var`: what is
large lies on the heap, and not on the thread's stack, which may be small. A node may take several
kernels, run one after the other.

Where a `Kernel` has scratch, that is the last pointer of `args`; one that `stops` has the run (null
where it must not end) after all others: see `weft.codegen.cancel`.

bools are i8 (0 or 1) in memory; bfloat16 is i16 (there is no arithmetic on it), float16 is half.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from weft.codegen.index import Index, Ptr, Size, step
from weft.codegen.text import Function
from weft.schedule.plan import Kernel

__all__ = ["PARAMS", "Kernel", "Store", "argument", "each_item"]

PARAMS = [("ptr", "args"), ("i64", "begin"), ("i64", "end")]


class Store(Protocol):
    """What happens to elements of a result that are still in registers: epilogues are fused so.

    `begin` is called once at the start of the kernel's function; `put` with a vector (or, where
    `lanes` is 1, a scalar) of the accumulator's dtype, the index of its first element in the result
    (i64 values, one for each dimension of the result as the kernel sees it; the lanes run along
    the last one) and, where not all lanes count, a mask <lanes x i1>.
    """

    def begin(self, f: Function) -> None: ...

    def put(
        self, f: Function, value: str, lanes: int, index: Sequence[Size], mask: str | None = None
    ) -> None: ...


def argument(f: Function, place: Size, kind: str = "i8") -> Ptr:
    """The pointer at a place of `%args`, to elements of a type."""
    slot = f(step("ptr", "%args", place)) if place != 0 else "%args"
    return Ptr(f, f(f"load ptr, ptr {slot}"), kind)


def each_item(f: Function) -> AbstractContextManager[Index]:
    """A loop over the items of work of this call."""
    return f.loop(f.index("%begin"), f.index("%end"))
