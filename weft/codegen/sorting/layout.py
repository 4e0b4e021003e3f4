"""An axis of a tensor seen as (outer, length, inner)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from weft.base.dims import has_dims, is_zero
from weft.codegen.index import Size, unravel
from weft.codegen.kernel import each_item
from weft.codegen.text import Function, Module

__all__ = ["Axis", "Columns", "axis_of", "columns", "counts_in_32_bits"]


@dataclass(frozen=True, slots=True)
class Axis:
    """The number of elements before an axis, along it, and after it."""

    outer: int
    length: int
    inner: int

    def row_start(self, row: Size) -> Size:
        """The offset of row number `row`, of outer · inner rows."""
        before, behind = unravel(row, [self.outer, self.inner])
        return before * (self.length * self.inner) + behind


def axis_of(shape: Sequence[int], axis: int) -> Axis:
    return Axis(math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))


def counts_in_32_bits(module: Module, length: int) -> bool:
    """Whether positions on an axis fit into 31 bits; if only the run knows, other runs are
    interpreted."""
    if not has_dims((length,)):
        return length < 2**31
    module.sizes.need(2**31 - length)
    return True


@dataclass(frozen=True, slots=True)
class Columns:
    """Neighbouring rows, one in each lane: the offset of their first elements, and a mask.

    `outer` and `first` are the position before the axis and the first one after it.
    """

    outer: Size
    first: Size
    start: Size
    mask: str | None


def column_items(axis: Axis, lanes: int) -> int:
    return axis.outer * -(-axis.inner // lanes)


@contextmanager
def columns(f: Function, axis: Axis, lanes: int) -> Iterator[Columns]:
    """Loop over `%begin … %end`: groups of `lanes` neighbouring rows."""
    groups = -(-axis.inner // lanes)
    with each_item(f) as item:
        outer, group = unravel(item, [axis.outer, groups])
        first = group * lanes
        origin = outer * (axis.length * axis.inner)
        mask = None
        if not is_zero(axis.inner % lanes):
            left = axis.inner - first
            name = f.module.declare(
                f"<{lanes} x i1>", f"llvm.get.active.lane.mask.v{lanes}i1.i64", "i64, i64"
            )
            mask = f(f"call <{lanes} x i1> @{name}(i64 0, i64 {left})")
        yield Columns(outer, first, origin + first, mask)
