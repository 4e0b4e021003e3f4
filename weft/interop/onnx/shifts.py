"""Rows of shifts: ONNX shifts unsigned integers only, so they are products with powers of two."""

from __future__ import annotations

import numpy as np

from weft.base import dtypes
from weft.base.dtypes import DType
from weft.interop.onnx.table import kind_of, row
from weft.interop.onnx.writer import Writer
from weft.ir.graph import Node


def _distance(w: Writer, x2: str, width: int) -> tuple[str, str]:
    """The distance as a number from 0 to width - 1, and whether it is none of these."""
    wanted = w.cast(x2, dtypes.int64)
    low, high = w.number(0, dtypes.int64), w.number(width - 1, dtypes.int64)
    found = w.call("Min", w.call("Max", wanted, low), high)
    return found, w.call("Not", w.call("Equal", found, wanted))


def _power(w: Writer, distance: str, dtype: DType) -> str:
    """2 ** distance, wrapped."""
    powers = np.left_shift(np.uint64(1), np.arange(dtype.itemsize * 8, dtype=np.uint64))
    return w.call("Gather", w.const(powers.astype(dtype.numpy)), distance, axis=0)


@row("bitwise_left_shift", computes=True)
def _left_shift(w: Writer, node: Node, x1: str, x2: str) -> str:
    dtype = kind_of(node)
    distance, beyond = _distance(w, x2, dtype.itemsize * 8)
    found = w.call("Mul", x1, _power(w, distance, dtype))
    return w.call("Where", beyond, w.number(0, dtype), found)


@row("bitwise_right_shift", computes=True)
def _right_shift(w: Writer, node: Node, x1: str, x2: str) -> str:
    dtype = kind_of(node)
    width, none = dtype.itemsize * 8, w.number(0, dtype)
    distance, beyond = _distance(w, x2, width)
    if dtype.kind == "uint":
        return w.call("Where", beyond, none, w.call("Div", x1, _power(w, distance, dtype)))
    last = w.call("GreaterOrEqual", distance, w.number(width - 1, dtypes.int64))
    sign = w.call("Where", w.call("Less", x1, none), w.number(-1, dtype), none)
    usual = w.call("Where", last, w.number(0, dtypes.int64), distance)
    power = _power(w, usual, dtype)
    rest = w.call("Mod", x1, power)  # not negative, as the power is not
    found = w.call("Div", w.call("Sub", x1, rest), power)
    return w.call("Where", w.call("Or", last, beyond), sign, found)
