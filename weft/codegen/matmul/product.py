"""A description of a matrix product: sizes, element type, and layouts of the operands."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from weft.base.dims import has_dims
from weft.base.dtypes import NARROW_FLOATS, DType, float32

__all__ = ["Operand", "Product"]


@dataclass(frozen=True, slots=True)
class Operand:
    """The layout of a batch of matrices, in elements.

    batch   a stride for each batch dimension of the product; 0 if the operand is broadcast
    row     from a row to the next
    column  from a column to the next
    offset  of the first element from the pointer
    """

    batch: tuple[int, ...]
    row: int
    column: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Product:
    """out[…, i, j] = sum over p of a[…, i, p] * b[…, p, j], with m rows, n columns, k terms."""

    m: int
    n: int
    k: int
    dtype: DType
    a: Operand
    b: Operand
    batch: tuple[int, ...] = ()

    @staticmethod
    def dense(
        m: int,
        n: int,
        k: int,
        dtype: DType,
        batch: tuple[int, ...] = (),
        *,
        transpose_a: bool = False,
        transpose_b: bool = False,
    ) -> Product:
        """The product of operands in C order; a transposed one has the shape (k, m) or (n, k)."""
        steps = [math.prod(batch[i + 1 :]) for i in range(len(batch))]
        a = Operand(tuple(s * m * k for s in steps), *((1, m) if transpose_a else (k, 1)))
        b = Operand(tuple(s * k * n for s in steps), *((1, k) if transpose_b else (n, 1)))
        return Product(m, n, k, dtype, a, b, batch)

    @property
    def accumulator(self) -> DType:
        """The dtype that a store gets."""
        return float32 if self.dtype in NARROW_FLOATS else self.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.batch, self.m, self.n)

    @property
    def varies(self) -> bool:
        """Whether some of its sizes or strides are those of a run."""
        steps = (*self.a.batch, self.a.row, self.a.column, *self.b.batch, self.b.row, self.b.column)
        return has_dims((self.m, self.n, self.k, *self.batch, *steps))

    @property
    def stacks(self) -> int:
        return math.prod(self.batch)

    def settled(self) -> Product:
        """The same product with a stride of 1 along every axis of size 1."""
        m, n, k = self.m, self.n, self.k
        a = replace(self.a, row=1 if m == 1 else self.a.row, column=1 if k == 1 else self.a.column)
        b = replace(self.b, row=1 if k == 1 else self.b.row, column=1 if n == 1 else self.b.column)
        return replace(self, a=a, b=b)
