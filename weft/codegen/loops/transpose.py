"""Transposes columns back to rows."""

from __future__ import annotations

from weft.codegen.index import Ptr, minimum
from weft.codegen.matmul.numbers import Number, ones
from weft.codegen.matmul.pack import transpose_block
from weft.codegen.scalar.forms import store
from weft.codegen.text import Module

__all__ = ["transpose_back"]


def transpose_back(module: Module, number: Number, columns: int, lanes: int) -> str:
    """The function that writes dst[i, j] = src[j, i], for i < count and j < columns.

        void @transpose_back(ptr src, ptr dst, i64 count)

    Rows of `src` have `lanes` elements; those of `dst` are contiguous, and nothing beyond them is
    written. `count` is at most `lanes`, and whole rows of `src` can be read.
    """
    name = f"transpose_back.{number}.{columns}x{lanes}"
    # The block size of `weft.codegen.matmul.pack.transpose`.
    side = min(module.machine.lanes(number.width), 32 // number.width, lanes)

    def make(module: Module) -> None:
        params = [("ptr noalias", "src"), ("ptr noalias", "dst"), ("i64", "count")]
        f = module.function(name, "void", params, "nounwind noinline")
        mask = ones(columns, side) if columns < side else None
        nowhere = f.var(number.kind, count=side, align=64)
        with (
            f.loop(0, f.index("%count"), side) as i,
            f.loop(0, columns, side) as j,
        ):
            # The last columns may be written twice, with the same values.
            first = minimum(j, max(0, columns - side))
            left = f.index("%count") - i
            src = f.ptr("%src", number.kind) + (first * lanes + i)
            dst = f.ptr("%dst", number.kind) + (i * columns + first)

            def part(t: int, from_: int, count: int, src: Ptr = src) -> str:
                return number.packed.load(f, src + (min(t, columns - 1) * lanes + from_), count)

            for t, value in enumerate(transpose_block(f, number, side, part)):
                there = f(f"icmp slt i64 {t}, {left}")
                to = f(f"select i1 {there}, ptr {dst + t * columns}, ptr {nowhere}")
                store(f, number.dtype, f.ptr(to, number.kind), value, side, mask)
        f.do("ret void")

    return module.once(name, make)
