"""Columns that lie side by side, written as rows."""

from __future__ import annotations

from weft.codegen.matmul.arith import address, least, minus, plus, times
from weft.codegen.matmul.numbers import Number, ones
from weft.codegen.matmul.pack import exchange
from weft.codegen.scalar.forms import store
from weft.codegen.text import Module

__all__ = ["turn_back"]


def turn_back(module: Module, number: Number, columns: int, lanes: int) -> str:
    """The function that writes dst[i, j] = src[j, i], for i < count and j < columns.

        void @turn_back(ptr src, ptr dst, i64 count)

    Rows of `src` are as long as `lanes`; those of `dst` lie without gaps, and nothing behind them
    is written. `count` is at most `lanes`, and a row of `src` can be read as a whole.
    """
    name = f"turn_back.{number}.{columns}x{lanes}"
    # As many at once as `weft.codegen.matmul.pack.turn` has.
    side = min(module.machine.lanes(number.width), 32 // number.width, lanes)

    def make(module: Module) -> None:
        params = [("ptr noalias", "src"), ("ptr noalias", "dst"), ("i64", "count")]
        f = module.function(name, "void", params, "nounwind noinline")
        mask = ones(columns, side) if columns < side else None
        nowhere = f.var(number.kind, count=side, align=64)
        with (
            f.loop("0", "%count", str(side)) as i,
            f.loop("0", str(columns), str(side)) as j,
        ):
            # The last columns may be written twice: they are the same.
            first = least(f, j, str(max(0, columns - side)))
            left = minus(f, "%count", i)
            src = f(
                f"getelementptr {number.kind}, ptr %src, i64 {plus(f, times(f, first, lanes), i)}"
            )
            dst = f(
                f"getelementptr {number.kind}, ptr %dst, i64 {plus(f, times(f, i, columns), first)}"
            )

            def part(t: int, from_: int, count: int, src: str = src) -> str:
                skip = (min(t, columns - 1) * lanes + from_) * number.width
                return number.packed.load(f, address(f, src, str(skip)), count)

            for t, value in enumerate(exchange(f, number, side, part)):
                at = address(f, dst, str(t * columns * number.width))
                there = f(f"icmp slt i64 {t}, {left}")
                at = f(f"select i1 {there}, ptr {at}, ptr {nowhere}")
                store(f, number.dtype, at, value, side, mask)
        f.do("ret void")

    return module.once(name, make)
