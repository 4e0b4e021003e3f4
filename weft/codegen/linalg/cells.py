"""Numbers and matrices in registers or local memory, real or complex.

A `Number` is a value of one matrix, or of several matrices in the lanes of a vector. A `Grid` is a
matrix of numbers. Algorithms are written once for both, and for all numbers of lanes:

    grid[i, j] = grid[i, j] - factor * grid[k, j]
"""

from __future__ import annotations

from collections.abc import Iterator

from weft.codegen.index import Index, Size
from weft.codegen.scalar.vec import FLOATS, Vec, vector_type
from weft.codegen.text import Function

__all__ = ["Grid", "Number", "number_of_index", "span"]


class Number:
    """A real number, or a complex one as two."""

    __slots__ = ("im", "re")

    def __init__(self, re: Vec, im: Vec | None = None) -> None:
        self.re = re
        self.im = im

    def __add__(self, other: Number) -> Number:
        if self.im is None or other.im is None:
            return Number(self.re + other.re, self.im if other.im is None else other.im)
        return Number(self.re + other.re, self.im + other.im)

    def minus_product(self, a: Number, b: Number) -> Number:
        """self - a * b."""
        re = _minus(self.re, a.re, b.re)
        if self.im is None or a.im is None or b.im is None:
            return Number(re)
        re = _minus(re, -a.im, b.im)
        return Number(re, _minus(_minus(self.im, a.re, b.im), a.im, b.re))

    def __mul__(self, other: Number) -> Number:
        if self.im is None or other.im is None:
            return Number(self.re * other.re)
        re = self.re * other.re - self.im * other.im
        return Number(re, self.re * other.im + self.im * other.re)

    def __truediv__(self, other: Number) -> Number:
        """Complex numbers by Smith's method, which overflows only where the quotient does."""
        if self.im is None or other.im is None:
            return Number(self.re / other.re)
        real = abs(other.re) >= abs(other.im)
        big, small = real.pick(other.re, other.im), real.pick(other.im, other.re)
        a, b = real.pick(self.re, self.im), real.pick(self.im, self.re)
        ratio = small / big
        below = big + small * ratio
        im = (b - a * ratio) / below
        return Number((a + b * ratio) / below, real.pick(im, -im))

    def over(self, real: Vec) -> Number:
        return Number(self.re / real, None if self.im is None else self.im / real)

    def conj(self) -> Number:
        return self if self.im is None else Number(self.re, -self.im)

    def magnitude(self) -> Vec:
        """What pivots are chosen by: the size of a real number, LAPACK's |re| + |im| of others."""
        return abs(self.re) if self.im is None else abs(self.re) + abs(self.im)

    def modulus(self) -> Vec:
        """The absolute value, which is out of range only where the number is."""
        if self.im is None:
            return abs(self.re)
        a, b = abs(self.re), abs(self.im)
        larger = a > b
        big, small = larger.pick(a, b), larger.pick(b, a)
        ratio = small / big.equals(0.0).pick(big.make(1.0), big)
        return big * (ratio * ratio + 1.0).intrinsic("sqrt")

    def is_zero(self) -> Vec:
        zero = self.re.equals(0.0)
        return zero if self.im is None else zero & self.im.equals(0.0)

    def picked(self, mask: Vec, other: Number) -> Number:
        """self where a mask holds, else the other."""
        re = mask.pick(self.re, other.re)
        if self.im is None or other.im is None:
            return Number(re)
        return Number(re, mask.pick(self.im, other.im))

    def like(self, value: float) -> Number:
        """A real constant."""
        return Number(self.re.make(value), None if self.im is None else self.im.make(0.0))


def _minus(x: Vec, a: Vec, b: Vec) -> Vec:
    """x - a * b, in one instruction where there is one."""
    if x.f.module.machine.fuses(x.bits // 8):
        return a.fma(-b, x)
    return x - a * b


class Grid:
    """rows × columns numbers of a matrix, or of `lanes` matrices."""

    def __init__(
        self, f: Function, kind: str, lanes: int, rows: int, columns: int, *, pairs: bool
    ) -> None:
        self.f = f
        self.kind = kind
        self.lanes = lanes
        self.rows = rows
        self.columns = columns
        whole = vector_type(kind, lanes)
        self.parts = [f.var(whole, count=rows * columns, align=64) for _ in range(1 + pairs)]

    def __getitem__(self, at: tuple[Size, Size]) -> Number:
        place = at[0] * self.columns + at[1]
        found = [Vec(self.f, self.kind, self.lanes, (p + place).load()) for p in self.parts]
        return Number(*found)

    def __setitem__(self, at: tuple[Size, Size], value: Number) -> None:
        place = at[0] * self.columns + at[1]
        for part, given in zip(self.parts, (value.re, value.im), strict=False):
            assert given is not None
            (part + place).store(given.name)


def span(f: Function, start: Size, stop: Size, *, unrolled: bool) -> Iterator[Size]:
    """The numbers of a range: one by one where the code is unrolled, else a loop's index."""
    if unrolled:
        assert isinstance(start, int)
        assert isinstance(stop, int)
        yield from range(start, stop)
    else:
        with f.loop(start, stop) as i:
            yield i


def number_of_index(f: Function, kind: str, lanes: int, i: Size) -> Vec:
    """An index as an integer as wide as `kind`, in all lanes."""
    integer = FLOATS[kind][1]
    if not isinstance(i, Index):
        return Vec(f, integer, lanes, "").make(int(i))
    name = i.name if integer == "i64" else f(f"trunc i64 {i.name} to {integer}")
    if lanes == 1:
        return Vec(f, integer, 1, name)
    whole = vector_type(integer, lanes)
    first = f(f"insertelement {whole} poison, {integer} {name}, i64 0")
    zeros = f"<{lanes} x i32> zeroinitializer"
    return Vec(f, integer, lanes, f(f"shufflevector {whole} {first}, {whole} poison, {zeros}"))
