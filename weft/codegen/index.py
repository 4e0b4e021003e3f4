"""Indices and pointers of generated code.

An index that is known when the code is generated is a Python integer; one that is known only at run
time is an `Index`, the name of an i64. Both support the same operators, so the same emitter serves
both: Python computes with integers, and `x * 1`, `x + 0` and the like emit nothing.

    i = f.index("%i")
    row = f.ptr("%x", "float") + (i * 12 + 3)     # three instructions
    row.load()                                    # load float
    i * 1 + 0 is i                                # True

A size that each run tells is a `Dim` until code needs its value: Python computes with it as with an
integer (`B * 12 + 3` is one more size of the run), and where it meets an index, a pointer or the
bounds of a loop, it is loaded: see `weft.codegen.sizes`. In text, write `f.size(dim)`.

Sums and products do not overflow: an index is an offset into existing memory. Quotients and
remainders (`//`, `%`) are for indices that are not negative.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from weft.base.dim_algebra import Dim, dim_max, dim_min
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

_LOWEST, _LIMIT = -(1 << 63), 1 << 63


class Index:
    """An i64 known at run time: its function, and its name there."""

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

    def _new(self, word: str, left: str | Size, right: str | Size) -> Index:
        return Index(self.f, self.f(f"{word} i64 {left}, {right}"))

    def __add__(self, other: Size) -> Index:
        if isinstance(other, int):
            return self._new("add nsw", self.name, _checked(other)) if other else self
        return self._new("add nsw", self.name, self.f.size(other))

    __radd__ = __add__

    def __sub__(self, other: Size) -> Index:
        if isinstance(other, int):
            return self._new("sub nsw", self.name, _checked(other)) if other else self
        return self._new("sub nsw", self.name, self.f.size(other))

    def __rsub__(self, other: int) -> Index:
        left = self.f.size(other) if other.__class__ is Dim else _checked(other)
        return self._new("sub nsw", left, self.name)

    def __mul__(self, other: Size) -> Size:
        if isinstance(other, int):
            if other == 1:
                return self
            return self._new("mul nsw", self.name, _checked(other)) if other else 0
        return self._new("mul nsw", self.name, self.f.size(other))

    __rmul__ = __mul__

    def __floordiv__(self, other: Size) -> Index:
        if isinstance(other, int):
            return self if other == 1 else self._new("udiv", self.name, _divisor(other))
        return self._new("udiv", self.name, self.f.size(other))

    def __rfloordiv__(self, other: int) -> Size:
        if other.__class__ is Dim:
            return self._new("udiv", self.f.size(other), self.name)
        return self._new("udiv", _checked(other), self.name) if other else 0

    def __mod__(self, other: Size) -> Size:
        if isinstance(other, int):
            return 0 if other == 1 else self._new("urem", self.name, _divisor(other))
        return self._new("urem", self.name, self.f.size(other))

    def __rmod__(self, other: int) -> Size:
        if other.__class__ is Dim:
            return self._new("urem", self.f.size(other), self.name)
        return self._new("urem", _checked(other), self.name) if other else 0


#: An index, a stride or the size of an axis: known when code is generated (an integer), at the
#: start of a run (a Dim), or during it.
Size = int | Index


def _checked(number: int) -> int:
    if not _LOWEST <= number < _LIMIT:
        raise InternalError(f"{number} is not an i64", op="native")
    return number


def _divisor(number: int) -> int:
    if not 0 < number < _LIMIT:
        raise InternalError(f"an index is divided by {number}", op="native")
    return number


def _one_of(word: str, a: Size, b: Size) -> Index:
    f = a.f if isinstance(a, Index) else b.f  # type: ignore[union-attr]  # one of them has it
    a, b = f.size(a), f.size(b)
    name = f.module.declare("i64", f"llvm.{word}.i64", "i64, i64")
    return Index(f, f(f"call i64 @{name}(i64 {a}, i64 {b})"))


def minimum(a: Size, b: Size) -> Size:
    if not isinstance(a, Index) and not isinstance(b, Index):
        return dim_min(a, b)
    return a if a == b else _one_of("smin", a, b)


def maximum(a: Size, b: Size) -> Size:
    if not isinstance(a, Index) and not isinstance(b, Index):
        return dim_max(a, b)
    return a if a == b else _one_of("smax", a, b)


def divide(index: Size, by: Size) -> tuple[Size, Size]:
    """The quotient and the remainder of an index that is not negative."""
    return index // by, index % by


def unravel(index: Size, shape: Sequence[Size]) -> list[Size]:
    """The index along each axis of an element, from its index in C order."""
    found: list[Size] = []
    for size in reversed(shape[1:]):
        # Of an empty axis: the code never runs.
        index, last = divide(index, 1 if isinstance(size, int) and size == 0 else size)
        found.append(last)
    return [index, *reversed(found)] if shape else []


def offset(start: Size, terms: Iterable[tuple[Size, Size]]) -> Size:
    """start + Σ index · stride."""
    for index, stride in terms:
        start = start + index * stride
    return start


class Ptr:
    """A pointer to elements of an LLVM type: `p + i` points `i` elements further."""

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
        by = _checked(index) if isinstance(index, int) else self.f.size(index)
        if by == 0:
            return self
        f, kind = self.f, self.kind
        return Ptr(f, f(f"getelementptr {kind}, ptr {self.name}, i64 {by}"), kind)

    def bytes(self, count: Size) -> Ptr:
        """The pointer `count` bytes further."""
        by = _checked(count) if isinstance(count, int) else self.f.size(count)
        if by == 0:
            return self
        f = self.f
        return Ptr(f, f(f"getelementptr i8, ptr {self.name}, i64 {by}"), self.kind)

    def of(self, kind: str) -> Ptr:
        """The same address, as a pointer to elements of another type."""
        return self if kind == self.kind else Ptr(self.f, self.name, kind)

    def lanes(self, indices: str, lanes: int) -> str:
        """The addresses of the elements at a vector of i64 indices, as a vector of pointers."""
        return self.f(f"getelementptr {self.kind}, ptr {self.name}, <{lanes} x i64> {indices}")

    def load(self, align: int = 0) -> str:
        """Load the element; without `align`, at its type's natural alignment."""
        if align:
            return self.f(f"load {self.kind}, ptr {self.name}, align {align}")
        return self.f(f"load {self.kind}, ptr {self.name}")

    def load_index(self) -> Index:
        """Load the element, an i64."""
        f = self.f
        return Index(f, f(f"load i64, ptr {self.name}"))

    def load_ptr(self, kind: str = "i8") -> Ptr:
        """Load the element, a pointer to elements of a type."""
        f = self.f
        return Ptr(f, f(f"load ptr, ptr {self.name}"), kind)

    def store(self, value: object, align: int = 0) -> None:
        """Store a value, an index, a size or a pointer."""
        if value.__class__ is Dim:
            value = self.f.size(value)
        if align:
            self.f.do(f"store {self.kind} {value}, ptr {self.name}, align {align}")
        else:
            self.f.do(f"store {self.kind} {value}, ptr {self.name}")


def step(kind: str, pointer: str, index: Size | str) -> str:
    """The instruction that computes the address of an element."""
    return f"getelementptr {kind}, ptr {pointer}, i64 {index}"


#: Such a line in the text of a function: name, type, pointer and index.
STEP = re.compile(r"^  (%[\w.]+) = getelementptr ([^,]+), ptr ([%@][\w.]+), (?:<.*>|i64) ?(.*)$")
