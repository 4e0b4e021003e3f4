"""Shared code of indexing kernels: checked indices, copies, ranges of rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from weft.base.dims import is_zero
from weft.base.dtypes import DType
from weft.codegen.cancel import copy_in_parts
from weft.codegen.contract import Status
from weft.codegen.index import Index, Ptr, Size, maximum, minimum
from weft.codegen.text import Function

__all__ = [
    "copy_block",
    "fail_if",
    "load_index",
    "raw_type",
    "row_range",
    "wrapped",
]


def raw_type(itemsize: int) -> str:
    """The LLVM integer type of an element's size, for elements that are only moved.

    Complex numbers are aligned to their parts only: such moves use `align 1`, which costs nothing.
    """
    return f"i{8 * itemsize}"


def fail_if(f: Function, condition: str) -> None:
    """Return FAILED from the kernel if an i1 holds: calling the card raises the error."""
    bad, good = f.fresh("bad"), f.fresh("good")
    f.branch(condition, bad, good)
    f.block(bad)
    f.do(f"ret i32 {Status.FAILED}")
    f.block(good)


def load_index(f: Function, dtype: DType, pointer: Ptr, place: Size) -> Index:
    """The index at a position, as i64. Values from 2⁶³ on become negative, as in NumPy."""
    kind = raw_type(dtype.itemsize)
    value = (pointer.of(kind) + place).load(dtype.itemsize)
    if dtype.itemsize == 8:
        return f.index(value)
    wider = "sext" if dtype.kind == "int" else "zext"
    return f.index(f(f"{wider} {kind} {value} to i64"))


def wrapped(f: Function, index: Index, size: int) -> tuple[Index, str]:
    """An index with negative values counted from the end, and an i1: whether it is out of range."""
    below = f(f"icmp slt i64 {index}, 0")
    from_end = index + size  # user data: it may overflow
    place = f.index(f(f"select i1 {below}, i64 {from_end}, i64 {index}"))
    return place, f(f"icmp uge i64 {place}, {f.size(size)}")


def copy_block(f: Function, target: Ptr, source: Ptr, size: int, run: Ptr | None = None) -> None:
    """Copy a known number of bytes: a single move if they fit in a register. Polls the run, if
    there is one, in a long copy."""
    if size in (1, 2, 4, 8, 16):
        kind = raw_type(size)
        target.of(kind).store(source.of(kind).load(1), 1)
    elif not is_zero(size):
        copy_in_parts(f, run, target, source, size)


def copy_bytes(f: Function, target: Ptr, source: Ptr, size: Size) -> None:
    """Copy bytes; their number may be known at run time only."""
    name = f.module.declare("void", "llvm.memcpy.p0.p0.i64", "ptr, ptr, i64, i1 immarg")
    f.do(f"call void @{name}(ptr {target}, ptr {source}, i64 {f.size(size)}, i1 false)")


def clear_bytes(f: Function, target: Ptr, size: Size) -> None:
    """Zero bytes; their number may be known at run time only."""
    name = f.module.declare("void", "llvm.memset.p0.i64", "ptr, i8, i64, i1 immarg")
    f.do(f"call void @{name}(ptr {target}, i8 0, i64 {f.size(size)}, i1 false)")


@contextmanager
def row_range(f: Function, length: int) -> Iterator[tuple[Index, Size, Size]]:
    """Loop over `%begin … %end` row by row: gives the row, and the range of elements in it.

    What depends only on the row is then computed once for it.
    """
    begin, end = f.index("%begin"), f.index("%end")
    with f.loop(begin // length, (end + (length - 1)) // length) as row:
        origin = row * length
        start = maximum(begin - origin, 0)
        stop = minimum(end - origin, length)
        yield row, start, stop
