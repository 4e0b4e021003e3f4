"""What a matrix product is: sizes, element type, and where the operands lie."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from weft.base.dtypes import NARROW_FLOATS, DType, float32

__all__ = ["Operand", "Product"]


@dataclass(frozen=True, slots=True)
class Operand:
    """Where a stack of matrices lies, in elements: the steps from one to the next, and the first.

    batch   one step for each dimension of the product's stack; 0 where the operand is broadcast
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
        turn_a: bool = False,
        turn_b: bool = False,
    ) -> Product:
        """The product of operands in C order; one that is turned lies as (k, m) or (n, k)."""
        steps = [math.prod(batch[i + 1 :]) for i in range(len(batch))]
        a = Operand(tuple(s * m * k for s in steps), *((1, m) if turn_a else (k, 1)))
        b = Operand(tuple(s * k * n for s in steps), *((1, k) if turn_b else (n, 1)))
        return Product(m, n, k, dtype, a, b, batch)

    @property
    def accumulator(self) -> DType:
        """The dtype of what a store is given."""
        return float32 if self.dtype in NARROW_FLOATS else self.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.batch, self.m, self.n)

    @property
    def stacks(self) -> int:
        return math.prod(self.batch)

    def settled(self) -> Product:
        """The same product with a step of 1 along every axis of size 1, where no step is taken."""
        m, n, k = self.m, self.n, self.k
        a = replace(self.a, row=1 if m == 1 else self.a.row, column=1 if k == 1 else self.a.column)
        b = replace(self.b, row=1 if k == 1 else self.b.row, column=1 if n == 1 else self.b.column)
        return replace(self, a=a, b=b)
