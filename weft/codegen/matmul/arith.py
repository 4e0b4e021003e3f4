"""Index arithmetic, with what is known when the code is written done there."""

from __future__ import annotations

from collections.abc import Sequence

from weft.codegen.text import Function

__all__ = ["address", "divided", "least", "minus", "plus", "times", "unravel"]


def times(f: Function, value: str, factor: int) -> str:
    if _known(value):
        return str(int(value) * factor)
    return value if factor == 1 else f(f"mul nsw i64 {value}, {factor}")


def plus(f: Function, value: str, other: str) -> str:
    if _known(value) and _known(other):
        return str(int(value) + int(other))
    if value == "0":
        return other
    return value if other == "0" else f(f"add nsw i64 {value}, {other}")


def minus(f: Function, value: str, other: str) -> str:
    if _known(value) and _known(other):
        return str(int(value) - int(other))
    return value if other == "0" else f(f"sub nsw i64 {value}, {other}")


def least(f: Function, value: str, limit: str) -> str:
    if _known(value) and _known(limit):
        return str(min(int(value), int(limit)))
    name = f.module.declare("i64", "llvm.smin.i64", "i64, i64")
    return f(f"call i64 @{name}(i64 {value}, i64 {limit})")


def divided(f: Function, value: str, by: int) -> tuple[str, str]:
    """The quotient and the remainder of a value that is not negative."""
    if _known(value):
        quotient, rest = divmod(int(value), by)
        return str(quotient), str(rest)
    if by == 1:
        return value, "0"
    return f(f"udiv i64 {value}, {by}"), f(f"urem i64 {value}, {by}")


def unravel(f: Function, value: str, shape: Sequence[int]) -> list[str]:
    """The index, one for each dimension, of the element that has a number in C order."""
    index: list[str] = []
    for size in reversed(shape[1:]):
        value, last = divided(f, value, size)
        index.insert(0, last)
    return [value, *index] if shape else []


def address(f: Function, base: str, offset: str) -> str:
    """So many bytes further."""
    return base if offset == "0" else f(f"getelementptr i8, ptr {base}, i64 {offset}")


def _known(value: str) -> bool:
    return value.lstrip("-").isdigit()
