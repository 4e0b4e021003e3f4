"""Pieces that kernels of this room are made of: offsets, indices that are checked, copies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from weft.base.dtypes import DType
from weft.codegen.cancel import copy_in_parts
from weft.codegen.contract import Status
from weft.codegen.index import Index, Ptr, Size, maximum, minimum
from weft.codegen.text import Function

__all__ = [
    "copy_block",
    "fail_if",
    "load_index",
    "row_range",
    "words",
    "wrapped",
]


def words(itemsize: int) -> str:
    """The LLVM type that holds an element of a size, when it is only moved.

    The parts of complex numbers are aligned, not these as a whole: such moves say `align 1`, which
    costs nothing.
    """
    return f"i{8 * itemsize}"


def fail_if(f: Function, condition: str) -> None:
    """Where an i1 holds, the kernel gives 1: the run asks the card for the error."""
    bad, good = f.fresh("bad"), f.fresh("good")
    f.branch(condition, bad, good)
    f.block(bad)
    f.do(f"ret i32 {Status.FAILED}")
    f.block(good)


def load_index(f: Function, dtype: DType, pointer: Ptr, place: Size) -> Index:
    """The index at a place, as i64. From 2⁶³ on they turn negative, as NumPy has them."""
    kind = words(dtype.itemsize)
    value = (pointer.of(kind) + place).load(dtype.itemsize)
    if dtype.itemsize == 8:
        return f.index(value)
    wider = "sext" if dtype.kind == "int" else "zext"
    return f.index(f(f"{wider} {kind} {value} to i64"))


def wrapped(f: Function, index: Index, size: int) -> tuple[Index, str]:
    """An index with negative ones counted from the end, and an i1: is it out of range?"""
    below = f(f"icmp slt i64 {index}, 0")
    from_end = index + size  # of the user's numbers: it may overflow
    place = f.index(f(f"select i1 {below}, i64 {from_end}, i64 {index}"))
    return place, f(f"icmp uge i64 {place}, {size}")


def copy_block(f: Function, target: Ptr, source: Ptr, size: int, run: Ptr | None = None) -> None:
    """Copy bytes, as many as are known now: one move where a register holds them. Where there is a
    run, it asks in a copy that takes long."""
    if size in (1, 2, 4, 8, 16):
        kind = words(size)
        target.of(kind).store(source.of(kind).load(1), 1)
    elif size:
        copy_in_parts(f, run, target, source, size)


def copy_bytes(f: Function, target: Ptr, source: Ptr, size: Size) -> None:
    """Copy bytes, as many as an i64 says."""
    name = f.module.declare("void", "llvm.memcpy.p0.p0.i64", "ptr, ptr, i64, i1 immarg")
    f.do(f"call void @{name}(ptr {target}, ptr {source}, i64 {size}, i1 false)")


def clear_bytes(f: Function, target: Ptr, size: Size) -> None:
    """Zero bytes, as many as an i64 says."""
    name = f.module.declare("void", "llvm.memset.p0.i64", "ptr, i8, i64, i1 immarg")
    f.do(f"call void @{name}(ptr {target}, i8 0, i64 {size}, i1 false)")


@contextmanager
def row_range(f: Function, length: int) -> Iterator[tuple[Index, Size, Size]]:
    """Walk `%begin … %end` as pieces of rows of a length: the row, and from where to where in it.

    So that what depends on the row alone is computed once in it.
    """
    begin, end = f.index("%begin"), f.index("%end")
    with f.loop(begin // length, (end + (length - 1)) // length) as row:
        origin = row * length
        start = maximum(begin - origin, 0)
        stop = minimum(end - origin, length)
        yield row, start, stop
