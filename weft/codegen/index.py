"""Indices and pointers of generated code.

An index is a Python integer where it is known when the code is written, and an `Index`, the name
of an i64, where it is known at run time only. Both take the same operators, so that one emitter
serves both: integers are computed by Python, `x * 1`, `x + 0` and their like write no instruction.

    i = f.index("%i")
    row = f.ptr("%x", "float") + (i * 12 + 3)     # three instructions
    row.load()                                    # load float
    i * 1 + 0 is i                                # True

Sums and products do not overflow: an index is an offset into memory that exists. Quotients and
remainders (`//`, `%`) are those of indices that are not negative.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from weft.base.errors import InternalError

if TYPE_CHECKING:
    from weft.codegen.text import Function

__all__ = [
    "STEP",
    "Index",
    "Ptr",
    "Size",
    "divide",
    "maximum",
    "minimum",
    "offset",
    "step",
    "unravel",
]

_LIMIT = 1 << 63


class Index:
    """An i64 known at run time: the function it is in, and its name there."""

    __slots__ = ("f", "name")

    def __init__(self, f: Function, name: str) -> None:
        self.f = f
        self.name = name

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Index({self.name})"

    def __format__(self, spec: str) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Index) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def _new(self, word: str, left: Size, right: Size) -> Index:
        known = left if isinstance(left, int) else right
        if isinstance(known, int):
            _checked(known)
        return Index(self.f, self.f(f"{word} i64 {left}, {right}"))

    def __add__(self, other: Size) -> Index:
        return self if other == 0 else self._new("add nsw", self, other)

    def __radd__(self, other: int) -> Index:
        return self if other == 0 else self._new("add nsw", self, other)

    def __sub__(self, other: Size) -> Index:
        return self if other == 0 else self._new("sub nsw", self, other)

    def __rsub__(self, other: int) -> Index:
        return self._new("sub nsw", other, self)

    def __mul__(self, other: Size) -> Size:
        if other == 1:
            return self
        return 0 if other == 0 else self._new("mul nsw", self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Size) -> Index:
        return self if other == 1 else self._new("udiv", self, _divisor(other))

    def __rfloordiv__(self, other: int) -> Size:
        return 0 if other == 0 else self._new("udiv", other, self)

    def __mod__(self, other: Size) -> Size:
        return 0 if other == 1 else self._new("urem", self, _divisor(other))

    def __rmod__(self, other: int) -> Size:
        return 0 if other == 0 else self._new("urem", other, self)


#: An index, a stride or the size of an axis: known now, or at run time.
Size = int | Index


def _checked(number: int) -> int:
    if not -_LIMIT <= number < _LIMIT:
        raise InternalError(f"{number} is not an i64", op="native")
    return number


def _divisor(size: Size) -> Size:
    if isinstance(size, int) and size < 1:
        raise InternalError(f"an index is divided by {size}", op="native")
    return size


def _one_of(word: str, a: Size, b: Size) -> Index:
    f = a.f if isinstance(a, Index) else b.f  # type: ignore[union-attr]  # one of them has it
    name = f.module.declare("i64", f"llvm.{word}.i64", "i64, i64")
    return Index(f, f(f"call i64 @{name}(i64 {a}, i64 {b})"))


def minimum(a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return a if a == b else _one_of("smin", a, b)


def maximum(a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return a if a == b else _one_of("smax", a, b)


def divide(index: Size, by: Size) -> tuple[Size, Size]:
    """The quotient and the remainder of an index that is not negative."""
    return index // by, index % by


def unravel(index: Size, shape: Sequence[Size]) -> list[Size]:
    """The index along each axis of the element that has a number in C order."""
    found: list[Size] = []
    for size in reversed(shape[1:]):
        index, last = divide(index, size or 1)  # of no elements: the code never runs
        found.append(last)
    return [index, *reversed(found)] if shape else []


def offset(start: Size, terms: Iterable[tuple[Size, Size]]) -> Size:
    """start + Σ index · stride."""
    for index, stride in terms:
        start = start + index * stride
    return start


class Ptr:
    """A pointer to elements of an LLVM type: `p + i` points to the element `i` further on."""

    __slots__ = ("f", "kind", "name")

    def __init__(self, f: Function, name: str, kind: str) -> None:
        self.f = f
        self.name = name
        self.kind = kind

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Ptr({self.kind}, {self.name})"

    def __format__(self, spec: str) -> str:
        return self.name

    def __add__(self, index: Size) -> Ptr:
        if index == 0:
            return self
        return Ptr(self.f, self.f(step(self.kind, self.name, index)), self.kind)

    def bytes(self, count: Size) -> Ptr:
        """So many bytes further on."""
        if count == 0:
            return self
        return Ptr(self.f, self.f(step("i8", self.name, count)), self.kind)

    def of(self, kind: str) -> Ptr:
        """The same address, of elements of another type."""
        return self if kind == self.kind else Ptr(self.f, self.name, kind)

    def lanes(self, indices: str, lanes: int) -> str:
        """The addresses of the elements at a vector of i64, as a vector of pointers."""
        return self.f(f"getelementptr {self.kind}, ptr {self.name}, <{lanes} x i64> {indices}")

    def load(self, align: int = 0) -> str:
        """The element; at its type's natural alignment where none is given."""
        return self.f(f"load {self.kind}, ptr {self.name}{f', align {align}' if align else ''}")

    def load_index(self) -> Index:
        """The element, an i64."""
        return Index(self.f, self.load())

    def load_ptr(self, kind: str = "i8") -> Ptr:
        """The element, a pointer to elements of a type."""
        return Ptr(self.f, self.load(), kind)

    def store(self, value: object, align: int = 0) -> None:
        """Write the element: the name of a value, an index or a pointer."""
        more = f", align {align}" if align else ""
        self.f.do(f"store {self.kind} {value}, ptr {self.name}{more}")


def step(kind: str, pointer: str, index: Size | str) -> str:
    """The instruction for the address of an element."""
    if isinstance(index, int):
        _checked(index)
    return f"getelementptr {kind}, ptr {pointer}, i64 {index}"


#: Such a line in the text of a function: the name, the type, the pointer, the index.
STEP = re.compile(r"^  (%[\w.]+) = getelementptr ([^,]+), ptr ([%@][\w.]+), (?:<.*>|i64) ?(.*)$")
