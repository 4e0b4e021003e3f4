"""Pieces that kernels of this room are made of: offsets, indices that are checked, copies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from weft.base.dtypes import DType
from weft.codegen.cancel import copy_in_parts
from weft.codegen.contract import Status
from weft.codegen.text import Function

__all__ = [
    "copy_block",
    "element",
    "fail_if",
    "load_index",
    "offset",
    "positions",
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


def element(f: Function, pointer: str, place: str, itemsize: int) -> str:
    """The address of the element at a place (an i64)."""
    if place == "0":
        return pointer
    return f(f"getelementptr {words(itemsize)}, ptr {pointer}, i64 {place}")


def offset(f: Function, start: str, terms: Sequence[tuple[str, int]]) -> str:
    """start + Σ position · step, over i64."""
    total = start
    for position, step in terms:
        if not step or position == "0":
            continue
        term = position if step == 1 else f(f"mul i64 {position}, {step}")
        total = term if total == "0" else f(f"add i64 {total}, {term}")
    return total


def positions(f: Function, number: str, sizes: Sequence[int]) -> list[str]:
    """The positions on axes of these sizes of the element with a number, in C order."""
    found: list[str] = []
    for size in reversed(sizes[1:]):
        found.append(f(f"urem i64 {number}, {size}"))
        number = f(f"udiv i64 {number}, {size}")
    return [number, *reversed(found)] if sizes else []


def fail_if(f: Function, condition: str) -> None:
    """Where an i1 holds, the kernel gives 1: the run asks the card for the error."""
    bad, good = f.fresh("bad"), f.fresh("good")
    f.branch(condition, bad, good)
    f.block(bad)
    f.do(f"ret i32 {Status.FAILED}")
    f.block(good)


def load_index(f: Function, dtype: DType, pointer: str, place: str) -> str:
    """The index at a place, as i64. From 2⁶³ on they turn negative, as NumPy has them."""
    value = f(
        f"load {words(dtype.itemsize)}, ptr {element(f, pointer, place, dtype.itemsize)},"
        f" align {dtype.itemsize}"
    )
    if dtype.itemsize == 8:
        return value
    wider = "sext" if dtype.kind == "int" else "zext"
    return f(f"{wider} {words(dtype.itemsize)} {value} to i64")


def wrapped(f: Function, index: str, size: int) -> tuple[str, str]:
    """An index with negative ones counted from the end, and an i1: is it out of range?"""
    below = f(f"icmp slt i64 {index}, 0")
    from_end = f(f"add i64 {index}, {size}")
    place = f(f"select i1 {below}, i64 {from_end}, i64 {index}")
    return place, f(f"icmp uge i64 {place}, {size}")


def copy_block(f: Function, target: str, source: str, size: int, run: str | None = None) -> None:
    """Copy bytes, as many as are known now: one move where a register holds them. Where there is a
    run, it asks in a copy that takes long."""
    if size in (1, 2, 4, 8, 16):
        value = f(f"load {words(size)}, ptr {source}, align 1")
        f.do(f"store {words(size)} {value}, ptr {target}, align 1")
    elif size:
        copy_in_parts(f, run, target, source, size)


def copy_bytes(f: Function, target: str, source: str, size: str) -> None:
    """Copy bytes, as many as an i64 says."""
    name = f.module.declare("void", "llvm.memcpy.p0.p0.i64", "ptr, ptr, i64, i1 immarg")
    f.do(f"call void @{name}(ptr {target}, ptr {source}, i64 {size}, i1 false)")


def clear_bytes(f: Function, target: str, size: str) -> None:
    """Zero bytes, as many as an i64 says."""
    name = f.module.declare("void", "llvm.memset.p0.i64", "ptr, i8, i64, i1 immarg")
    f.do(f"call void @{name}(ptr {target}, i8 0, i64 {size}, i1 false)")


def least(f: Function, a: str, b: str) -> str:
    smaller = f(f"icmp slt i64 {a}, {b}")
    return f(f"select i1 {smaller}, i64 {a}, i64 {b}")


def most(f: Function, a: str, b: str) -> str:
    larger = f(f"icmp sgt i64 {a}, {b}")
    return f(f"select i1 {larger}, i64 {a}, i64 {b}")


@contextmanager
def row_range(f: Function, length: int) -> Iterator[tuple[str, str, str]]:
    """Walk `%begin … %end` as pieces of rows of a length: the row, and from where to where in it.

    So that what depends on the row alone is computed once in it.
    """
    first = f(f"udiv i64 %begin, {length}")
    last = f(f"udiv i64 {f(f'add i64 %end, {length - 1}')}, {length}")
    with f.loop(first, last) as row:
        origin = f(f"mul i64 {row}, {length}")
        start = most(f, f(f"sub i64 %begin, {origin}"), "0")
        stop = least(f, f(f"sub i64 %end, {origin}"), str(length))
        yield row, start, stop
