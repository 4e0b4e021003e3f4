"""Factorizations of small matrices, and solutions by triangular ones."""

from __future__ import annotations

from weft.codegen.index import Ptr, Size
from weft.codegen.linalg.batch import Batch
from weft.codegen.linalg.cells import Grid, Number, number_of_index
from weft.codegen.scalar.vec import FLOATS, Vec, vector_type

__all__ = ["Elimination", "back_substitute", "cholesky", "substitute"]


class Elimination:
    """Gaussian elimination with partial pivoting: L and U are left in `a`, L⁻¹ P b in `b`.

    order     where each row of P a was, as integers of `integer`, if asked for
    negative  whether an odd number of rows was exchanged, 0 or 1
    singular  whether a pivot was zero, 0 or 1
    """

    def __init__(
        self, batch: Batch, a: Grid, b: Grid | None = None, *, order: bool = False
    ) -> None:
        self.batch, self.a, self.b = batch, a, b
        f = batch.f
        self.integer = FLOATS[batch.kind][1]
        self._whole = vector_type(self.integer, batch.lanes)
        self._negative, self._singular, self._where = (f.var(self._whole) for _ in range(3))
        self._best = f.var(vector_type(batch.kind, batch.lanes))
        self.order: Ptr | None = f.var(self._whole, count=a.rows, align=64) if order else None

    def run(self) -> None:
        batch, a = self.batch, self.a
        zero = Vec(batch.f, self.integer, batch.lanes, "").make(0)
        self._negative.store(zero.name)
        self._singular.store(zero.name)
        if self.order is not None:
            for i in batch.span(0, a.rows):
                (self.order + i).store(self._number(i).name)
        for k in batch.span(0, min(a.rows, a.columns)):
            self._find_pivot(k)
            self._exchange(k)
            pivot = a[k, k]
            none = pivot.is_zero()
            singular = self._int(self._singular) | none.convert("zext", self.integer)
            self._singular.store(singular.name)
            pivot = pivot.like(1.0).picked(none, pivot)
            for i in batch.span(k + 1, a.rows):
                factor = a[i, k] / pivot
                a[i, k] = factor
                for j in batch.span(k + 1, a.columns):
                    a[i, j] = a[i, j].minus_product(factor, a[k, j])
                if self.b is not None:
                    _subtract(batch, self.b, i, factor, k)

    @property
    def singular(self) -> Vec:
        return self._int(self._singular).differs(0)

    @property
    def negative(self) -> Vec:
        return self._int(self._negative).differs(0)

    def _int(self, place: Ptr) -> Vec:
        return Vec(self.batch.f, self.integer, self.batch.lanes, place.load())

    def _number(self, i: Size) -> Vec:
        return number_of_index(self.batch.f, self.batch.kind, self.batch.lanes, i)

    def _find_pivot(self, k: Size) -> None:
        """The first of the largest elements of a column; a NaN counts only on the diagonal. Where
        the order is a result, complex numbers are compared as the card does."""
        batch = self.batch
        size_of = Number.modulus if self.order is not None else Number.magnitude
        self._best.store(size_of(self.a[k, k]).name)
        self._where.store(self._number(k).name)
        for i in batch.span(k + 1, self.a.rows):
            best = Vec(batch.f, batch.kind, batch.lanes, self._best.load())
            size = size_of(self.a[i, k])
            more = size > best
            if self.order is not None:  # as `argmax`, which finds the first NaN
                more = more | (size.is_nan() & ~best.is_nan())
            self._best.store(more.pick(size, best).name)
            self._where.store(more.pick(self._number(i), self._int(self._where)).name)

    def _exchange(self, k: Size) -> None:
        batch = self.batch
        where = self._int(self._where)
        moved = where.differs(self._number(k))
        odd = self._int(self._negative) ^ moved.convert("zext", self.integer)
        self._negative.store(odd.name)
        if batch.lanes == 1 and not batch.unrolled:
            f = batch.f
            wide = where.name if self.integer == "i64" else f(f"sext i32 {where} to i64")
            self._exchange_rows(k, f.index(wide), None)
            return
        for i in batch.span(k + 1, self.a.rows):
            self._exchange_rows(k, i, where.equals(self._number(i)))

    def _exchange_rows(self, k: Size, i: Size, mask: Vec | None) -> None:
        """Exchange rows k and i, in lanes where the mask holds."""
        for grid in (self.a, self.b):
            if grid is not None:
                for j in self.batch.span(0, grid.columns):
                    x, y = grid[k, j], grid[i, j]
                    grid[k, j] = y if mask is None else y.picked(mask, x)
                    grid[i, j] = x if mask is None else x.picked(mask, y)
        if self.order is not None:
            x_at, y_at = self.order + k, self.order + i
            first, second = self._int(x_at), self._int(y_at)
            x_at.store((second if mask is None else mask.pick(second, first)).name)
            y_at.store((first if mask is None else mask.pick(first, second)).name)


def back_substitute(batch: Batch, upper: Grid, b: Grid, *, unit: bool = False) -> None:
    """Replace b by the solution of upper @ x = b."""
    last = upper.rows - 1
    for t in batch.span(0, upper.rows):
        i = last - t
        _divide(batch, upper, b, i, unit=unit)
        for k in batch.span(0, i):
            _subtract(batch, b, k, upper[k, i], i)


def substitute(batch: Batch, lower: Grid, b: Grid, *, unit: bool = False) -> None:
    """Replace b by the solution of lower @ x = b."""
    for i in batch.span(0, lower.rows):
        _divide(batch, lower, b, i, unit=unit)
        for k in batch.span(i + 1, lower.rows):
            _subtract(batch, b, k, lower[k, i], i)


def _divide(batch: Batch, a: Grid, b: Grid, i: Size, *, unit: bool) -> None:
    if not unit:
        pivot = a[i, i]
        for j in batch.span(0, b.columns):
            b[i, j] = b[i, j] / pivot


def _subtract(batch: Batch, b: Grid, to: Size, factor: Number, row: Size) -> None:
    """b[to] -= factor * b[row]."""
    for j in batch.span(0, b.columns):
        b[to, j] = b[to, j].minus_product(factor, b[row, j])


def cholesky(batch: Batch, a: Grid) -> None:
    """Replace the upper triangle of a, all that is read, by U with Uᴴ U = a, the rest by zeros."""
    zero = batch.constant(0.0)
    for k in batch.span(0, a.rows):
        square = a[k, k].re
        positive = square > 0.0  # not for NaN
        batch.fail_if(~positive)
        root = square.intrinsic("sqrt")
        a[k, k] = Number(root, zero)
        for j in batch.span(k + 1, a.rows):
            a[k, j] = a[k, j].over(root)
        for i in batch.span(k + 1, a.rows):
            factor = a[k, i].conj()
            a[i, k] = Number(zero, zero)
            for j in batch.span(i, a.rows):
                a[i, j] = a[i, j].minus_product(factor, a[k, j])
