"""Integer and bool results: arithmetic, order, sums and places of integers, logic of masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuzzing.graphs import GraphWriter, Shape

DTYPES = ["int64", "int64", "int32", "int8", "uint8", "uint32", "int16"]


def _operand(w: GraphWriter, shape: Shape, dtype: str) -> str:
    known = w.pool.get((shape, dtype), [])
    if known and w.chance(0.5):
        found: str = w.pick(known)
        return found
    if w.chance(0.4) and len(shape) > 1:
        return f"{w.argument((*shape[:-2], shape[-1], shape[-2]), dtype, below=120)}.mT"
    if w.chance(0.3) and shape and w.fits(shape, 2):
        return f"{w.argument((2 * shape[0], *shape[1:]), dtype, below=120)}[::2]"
    return w.argument(shape, dtype, below=120)


def _arithmetic(w: GraphWriter, shape: Shape, dtype: str) -> str:
    one, two = _operand(w, shape, dtype), _operand(w, shape, dtype)
    made: str = w.pick(
        [
            f"({one} + {two})",
            f"({one} * {two})",
            f"({one} - {two})",
            f"({one} // {two})",
            f"({one} % {two})",
            f"({one} & {two})",
            f"({one} ^ {two})",
            f"({one} << ({two} % 5))",
            f"({one} >> 2)",
            f"weft.maximum({one}, {two})",
            f"weft.where({one} > {two}, {one}, {two})",
            f"weft.bitwise_invert({one})",
            f"{one}.astype(weft.{w.pick(DTYPES)}).astype(weft.{dtype})",
            f"({one} ** 2)",
        ]
    )
    return made


def _ordered(w: GraphWriter, shape: Shape, dtype: str) -> str:
    x = _operand(w, shape, dtype)
    if not shape:
        return f"weft.abs({x})"
    axis = w.rng.randrange(len(shape))
    made: str = w.pick(
        [
            f"weft.sort({x}, axis={axis}, descending={w.chance(0.5)})",
            f"weft.argsort({x}, axis={axis})",
            f"weft.cumulative_sum({x}, axis={axis})",
            f"weft.flip({x}, axis={axis})",
            f"weft.sum({x}, axis={axis})",
            f"weft.count_nonzero({x}, axis={axis})",
            f"({x} == {_operand(w, shape, dtype)}).any(axis={axis})",
        ]
    )
    return made


def _product(w: GraphWriter, shape: Shape, dtype: str) -> str:
    if len(shape) < 2:
        return _arithmetic(w, shape, dtype)
    return f"({_operand(w, (*shape[:-1], 3), dtype)} @ {_operand(w, (3, shape[-1]), dtype)})"


def _masks(w: GraphWriter, shape: Shape, _: str) -> str:
    one, two = w.condition(shape), w.condition(shape)
    made: str = w.pick(
        [
            one,
            f"({one} & {two})",
            f"({one} | {two})",
            f"({one} ^ {two})",
            f"weft.logical_not({one})",
            f"weft.isfinite({w.tensor(shape)})",
            f"{one}.astype(weft.int32)",
        ]
    )
    return made


INTEGERS: list[Callable[[GraphWriter, Shape, str], str]] = [
    *(_arithmetic, _arithmetic, _ordered, _product, _masks),
]
