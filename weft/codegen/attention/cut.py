"""Tile sizes of attention."""

from __future__ import annotations

from weft.base import dtypes
from weft.codegen.attention.spec import Attention
from weft.codegen.machine import Machine
from weft.codegen.matmul.numbers import Number, number_of

__all__ = ["number_if_supported", "tile_rows"]

_WIDEST = 1024  # maximum columns of an operand: larger ones do not fit in local memory


def number_if_supported(spec: Attention) -> Number | None:
    """The element type to compute with, or None if there is no kernel."""
    number = number_of(spec.dtype)
    if number is None or spec.dtype.kind != "float":
        return None
    if max(spec.features, spec.values) > _WIDEST or spec.features == 0 or spec.keys == 0:
        return None
    if any(operand.column != 1 for operand in (spec.q, spec.k)) and spec.features > 1:
        return None
    if spec.v.column != 1 and spec.values > 1:
        return None
    if spec.mask is not None:
        if spec.mask.column not in (0, 1) or spec.mask_dtype is None:
            return None
        if spec.mask_dtype not in (dtypes.bool, spec.dtype, number.dtype):
            return None
    return number


def tile_rows(rows: int, machine: Machine) -> int:
    """The number of rows of a tile of two vectors that wastes little work."""
    wide = machine.registers == 32
    most = min(rows, 14 if wide else 6)
    tried = range(min(most, 5 if wide else 3), most + 1)
    return min((-(-rows // r) * r * (1 + 0.3 / r), r) for r in tried)[1]
