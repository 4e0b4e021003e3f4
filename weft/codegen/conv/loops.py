"""Helpers for code with many loops and lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from weft.codegen.index import Size
from weft.codegen.text import Function

__all__ = ["in_lanes", "indices", "inside", "kept_table", "lane_numbers", "nest", "splat_i32"]
__all__ += ["table"]


@contextmanager
def nest(f: Function, stops: Sequence[Size]) -> Iterator[list[Size]]:
    """Nested loops, each from 0; a loop of one iteration is left out."""
    with ExitStack() as stack:
        yield [0 if stop == 1 else stack.enter_context(f.loop(0, stop)) for stop in stops]


def in_lanes(
    f: Function, stop: Size, lanes: int, masked: bool, body: Callable[[Size, int, str | None], None]
) -> None:
    """Write `body(i, lanes, mask)` for all of 0 … stop: with masks, or without them and with the
    last elements one by one."""
    if lanes == 1 or masked:
        with f.loop(0, stop, lanes) as i:
            body(i, lanes, inside(f, 0, stop - i, lanes) if lanes > 1 else None)
        return
    whole = stop // lanes * lanes
    with f.loop(0, whole, lanes) as i:
        body(i, lanes, None)
    if whole != stop:
        with f.loop(whole, stop) as i:
            body(i, 1, None)


def lane_numbers(lanes: int, kind: str = "i64", step: int = 1) -> str:
    """The constant vector 0, step, 2 step, …"""
    return "<" + ", ".join(f"{kind} {i * step}" for i in range(lanes)) + ">"


def indices(f: Function, start: Size, lanes: int, step: int = 1) -> str:
    """start, start + step, … as <lanes x i64>."""
    whole = f"<{lanes} x i64>"
    first = f(f"insertelement {whole} poison, i64 {f.size(start)}, i64 0")
    every = f(f"shufflevector {whole} {first}, {whole} poison, <{lanes} x i32> zeroinitializer")
    return f(f"add {whole} {every}, {lane_numbers(lanes, step=step)}")


def table(f: Function, numbers: Sequence[int], place: Size) -> Size:
    """An element of a constant list, as an i64."""
    if len(set(numbers)) == 1:
        return numbers[0]
    if list(numbers) == list(range(len(numbers))):
        return place
    text = "[" + ", ".join(f"i64 {n}" for n in numbers) + "]"
    kept = f.module.constant(f"[{len(numbers)} x i64]", text)
    return (f.ptr(kept, "i64") + place).load_index()


def kept_table(f: Function, numbers: Sequence[Size]) -> Callable[[Size], Size]:
    """`table` of numbers that may be those of the run: local memory has them from here on."""
    known = [number for number in numbers if number.__class__ is int]
    if len(known) == len(numbers):
        return lambda place: table(f, known, place)
    room = f.var("i64", count=len(numbers))
    for i, number in enumerate(numbers):
        (room + i).store(number)
    return lambda place: (room + place).load_index()


def splat_i32(f: Function, value: Size, lanes: int) -> str:
    """An i64 that fits in 31 bits, as i32 in all lanes."""
    whole = f"<{lanes} x i32>"
    small = f(f"trunc i64 {f.size(value)} to i32")
    first = f(f"insertelement {whole} poison, i32 {small}, i64 0")
    return f(f"shufflevector {whole} {first}, {whole} poison, {whole} zeroinitializer")


def inside(f: Function, start: Size, stop: Size, lanes: int, step: int = 1) -> str:
    """Which of start, start + step, … are in 0 … stop: an i1, or a mask of lanes."""
    if lanes == 1:
        return f(f"icmp ult i64 {f.size(start)}, {f.size(stop)}")
    whole = f"<{lanes} x i32>"
    numbers = lane_numbers(lanes, "i32", step)
    if start != 0:
        numbers = f(f"add {whole} {splat_i32(f, start, lanes)}, {numbers}")
    return f(f"icmp ult {whole} {numbers}, {splat_i32(f, stop, lanes)}")
