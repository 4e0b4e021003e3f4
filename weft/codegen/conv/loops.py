"""Small words for IR with places and counts in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from weft.codegen.text import Function

__all__ = [
    "add",
    "at",
    "divide",
    "indices",
    "inside",
    "lane_numbers",
    "least",
    "mul",
    "nest",
    "split_index",
    "spread_i32",
    "table",
]


def add(f: Function, *values: str | int) -> str:
    """The sum of i64 values; Python's are added here."""
    known = sum(value for value in values if isinstance(value, int))
    named = [value for value in values if isinstance(value, str)]
    if known or not named:
        named.append(str(known))
    out = named[0]
    for value in named[1:]:
        out = f(f"add nsw i64 {out}, {value}")
    return out


def mul(f: Function, value: str, factor: int) -> str:
    if factor == 0:
        return "0"
    return value if factor == 1 else f(f"mul nsw i64 {value}, {factor}")


def divide(f: Function, value: str, by: int) -> tuple[str, str]:
    """Quotient and remainder of an i64 that is not negative."""
    if by == 1:
        return value, "0"
    return f(f"udiv i64 {value}, {by}"), f(f"urem i64 {value}, {by}")


def least(f: Function, one: str, other: str, word: str = "slt") -> str:
    """The smaller of two i64 values (the larger one with "sgt")."""
    return f(f"select i1 {f(f'icmp {word} i64 {one}, {other}')}, i64 {one}, i64 {other}")


def at(f: Function, kind: str, pointer: str, *place: str | int) -> str:
    """The address of an element."""
    return f(f"getelementptr {kind}, ptr {pointer}, i64 {add(f, *place)}")


def split_index(f: Function, item: str, sizes: Sequence[int]) -> list[str]:
    """The places along axes of an item's number in their C order."""
    places: list[str] = []
    for size in reversed(sizes[1:]):
        item, place = divide(f, item, size)
        places.append(place)
    return [item, *reversed(places)] if sizes else []


@contextmanager
def nest(f: Function, stops: Sequence[str]) -> Iterator[list[str]]:
    """Loops inside each other, each from 0; one of a single round is none."""
    with ExitStack() as stack:
        yield ["0" if stop == "1" else stack.enter_context(f.loop("0", stop)) for stop in stops]


def lane_numbers(lanes: int, kind: str = "i64", step: int = 1) -> str:
    """The constant vector 0, step, 2 step, …"""
    return "<" + ", ".join(f"{kind} {i * step}" for i in range(lanes)) + ">"


def indices(f: Function, start: str, lanes: int, step: int = 1) -> str:
    """start, start + step, … as <lanes x i64>."""
    whole = f"<{lanes} x i64>"
    first = f(f"insertelement {whole} poison, i64 {start}, i64 0")
    every = f(f"shufflevector {whole} {first}, {whole} poison, <{lanes} x i32> zeroinitializer")
    return f(f"add {whole} {every}, {lane_numbers(lanes, step=step)}")


def table(f: Function, numbers: Sequence[int], place: str) -> str:
    """A number of a constant list, as an i64."""
    if len(set(numbers)) == 1:
        return str(numbers[0])
    if list(numbers) == list(range(len(numbers))):
        return place
    text = "[" + ", ".join(f"i64 {n}" for n in numbers) + "]"
    kept = f.module.constant(f"[{len(numbers)} x i64]", text)
    return f(f"load i64, ptr {at(f, 'i64', kept, place)}")


def spread_i32(f: Function, value: str, lanes: int) -> str:
    """An i64 of less than 31 bits, as i32 in all lanes."""
    whole = f"<{lanes} x i32>"
    small = f(f"trunc i64 {value} to i32")
    first = f(f"insertelement {whole} poison, i32 {small}, i64 0")
    return f(f"shufflevector {whole} {first}, {whole} poison, {whole} zeroinitializer")


def inside(f: Function, start: str, stop: str, lanes: int, step: int = 1) -> str:
    """Which of start, start + step, … lie in 0 … stop: i1, or a mask of lanes."""
    if lanes == 1:
        return f(f"icmp ult i64 {start}, {stop}")
    whole = f"<{lanes} x i32>"
    numbers = lane_numbers(lanes, "i32", step)
    if start != "0":
        numbers = f(f"add {whole} {spread_i32(f, start, lanes)}, {numbers}")
    return f(f"icmp ult {whole} {numbers}, {spread_i32(f, stop, lanes)}")
