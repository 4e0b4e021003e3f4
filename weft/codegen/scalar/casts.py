"""Casts between dtypes, as the card `astype` defines them (see `weft.ops.cast`).

Out-of-range floats saturate, and NaN becomes 0 as an integer; integers wrap; narrower floats round
to nearest even. Where the card goes through float32 (integers to narrow floats, float64 to
bfloat16), it rounds twice, and so does this.
"""

from __future__ import annotations

from weft.base import dtypes
from weft.base.dtypes import NARROW_FLOATS, DType, int_info
from weft.codegen.scalar.forms import compute_kind, rounded
from weft.codegen.scalar.vec import Vec

__all__ = ["cast"]


def cast(x: Vec, source: DType, result: DType) -> Vec:
    """x, of dtype `source`, as `result`, both in compute form."""
    if source is result:
        return x
    if result is dtypes.bool:
        return x.differs(0)
    kind = compute_kind(result)
    if source.kind == "float":
        if result.kind == "float":
            return _between_floats(x, source, result)
        return _saturated(x, result)
    if result.kind == "float":
        number = x.convert("sitofp" if source.kind == "int" else "uitofp", kind)
        return rounded(number, result)
    if result.bits < source.bits and source is not dtypes.bool:
        return x.convert("trunc", kind)
    return x.convert("sext" if source.kind == "int" else "zext", kind)


def _between_floats(x: Vec, source: DType, result: DType) -> Vec:
    if source is dtypes.float64:
        single = _to_odd(x) if result is dtypes.float16 else x.convert("fptrunc", "float")
        return rounded(single, result)
    if result is dtypes.float64:
        return x.convert("fpext", "double")
    exact = source in NARROW_FLOATS and result is dtypes.float32
    return x if exact else rounded(x, result)


def _to_odd(x: Vec) -> Vec:
    """double to float such that a second rounding, to half, gives the correctly rounded result.

    Inexact floats get their last bit set (rounding to odd).
    """
    single = x.convert("fptrunc", "float")
    again = single.convert("fpext", "double")
    beyond = (abs(again) > abs(x)).convert("zext", "i32")
    lost = again.compare("one", x).convert("zext", "i32")
    return ((single.as_bits() - beyond) | lost).convert("bitcast", "float")


def _saturated(x: Vec, result: DType) -> Vec:
    """Floats as integers: truncated, clipped to the range, NaN as 0."""
    info = int_info(result)
    signed = result.kind == "int"
    above = x >= 2.0 ** (result.bits - signed)  # info.max + 1, exact as a float
    # both false for NaN; the smallest integer is selected below
    inside = (x > float(info.min)) & ~above
    kind = compute_kind(result)
    wide = kind if result.bits >= 32 else "i32"  # vectors of short integers are made from those
    number = inside.pick(x, 0.0).convert("fptosi" if signed or wide != kind else "fptoui", wide)
    number = number.convert("trunc", kind)
    number = above.pick(number.make(info.max), number)
    return (x <= float(info.min)).pick(number.make(info.min), number)
