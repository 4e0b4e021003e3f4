"""What a kernel is: the calling convention that all emitters share.

A kernel is a function of the module

    i32 @name(ptr %args, i64 %begin, i64 %end)

`args` points to an array of pointers: the inputs of the node in order, then its results, then, if
`scratch` is not 0, scratch memory. All are dense in C order, at the natural alignment of their
dtype and no better. `begin … end` are the items of work to process: cutting the range `0 … items`
in any way, and running the parts in parallel, must give the same bits. A kernel returns 0, or
another status if the node fails as its card would (an index out of range): then the run ends, and
calling the card raises the error. Memory of one thread is `var`: large variables are on the heap
and not on the thread's stack, which may be small. A node may take several kernels, run one after
the other.

Where a program has sizes that each run tells, `args[-1]` is the address of their table: see
`Function.size`.

If a `Kernel` has scratch memory, that is the last pointer of `args`; one that `stops` has the run
(null if it must not be cancelled) after all others: see `weft.codegen.cancel`.

bools are i8 (0 or 1) in memory; bfloat16 is i16 (there is no arithmetic on it), float16 is half.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from weft.codegen.index import Index, Ptr, Size, step
from weft.codegen.text import Function
from weft.schedule.plan import Kernel

__all__ = ["PARAMS", "Kernel", "Store", "args_table", "argument", "each_item"]

PARAMS = [("ptr", "args"), ("i64", "begin"), ("i64", "end")]


class Store(Protocol):
    """What happens to results that are still in registers: this is how epilogues are fused.

    `begin` is called once at the start of the kernel's function. `put` gets a vector (a scalar if
    `lanes` is 1) of the accumulator's dtype, the index of its first element in the result (one for
    each dimension as the kernel sees it; lanes run along the last one), and a mask <lanes x i1> if
    not all lanes are valid.
    """

    def begin(self, f: Function) -> None: ...

    def put(
        self, f: Function, value: str, lanes: int, index: Sequence[Size], mask: str | None = None
    ) -> None: ...


def args_table(f: Function, count: int) -> Ptr:
    """Room for the `%args` of a kernel. Where the program has sizes of the run, their address
    precedes the pointers: at -1."""
    if not f.module.varies:
        return f.var("ptr", count=count, align=16)
    return f.var("ptr", count=count + 2, align=16) + 2


def argument(f: Function, place: Size, kind: str = "i8") -> Ptr:
    """The pointer at a position of `%args`, to elements of type `kind`."""
    slot = f(step("ptr", "%args", place)) if place != 0 else "%args"
    return Ptr(f, f(f"load ptr, ptr {slot}"), kind)


def each_item(f: Function) -> AbstractContextManager[Index]:
    """A loop over the items of this call."""
    return f.loop(f.index("%begin"), f.index("%end"))
