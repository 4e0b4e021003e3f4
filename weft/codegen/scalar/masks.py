"""Masks of the first lanes of a vector."""

from __future__ import annotations

from weft.codegen.index import Size
from weft.codegen.text import Function

__all__ = ["enabled", "first_lanes", "mask_literal"]


def mask_literal(lanes: int, count: int) -> str:
    """A mask of the first `count` of some lanes."""
    return "<" + ", ".join(f"i1 {'true' if i < count else 'false'}" for i in range(lanes)) + ">"


def first_lanes(f: Function, lanes: int, count: Size) -> str:
    """A mask of the first `count` of some lanes, a number that perhaps only the run knows."""
    if isinstance(count, int):
        return mask_literal(lanes, count)
    steps = ", ".join(f"i32 {lane}" for lane in range(lanes))
    short = f(f"trunc i64 {f.size(count)} to i32")
    one = f(f"insertelement <{lanes} x i32> poison, i32 {short}, i64 0")
    all_ = f(
        f"shufflevector <{lanes} x i32> {one}, <{lanes} x i32> poison, "
        f"<{lanes} x i32> zeroinitializer"
    )
    return f(f"icmp slt <{lanes} x i32> <{steps}>, {all_}")


def enabled(f: Function, mask: str, lanes: int) -> Size:
    """How many lanes a mask enables: they are the first ones."""
    bits = f(f"bitcast <{lanes} x i1> {mask} to i{lanes}")
    name = f.module.declare(f"i{lanes}", f"llvm.ctpop.i{lanes}", f"i{lanes}")
    ones = f(f"call i{lanes} @{name}(i{lanes} {bits})")
    return f.index(f(f"zext i{lanes} {ones} to i64"))
