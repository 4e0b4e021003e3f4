"""Values as integers of the same order: one comparison instead of several.

NaN is last in both directions, -0 and 0 are equal, and descending reverses the order.
"""

from __future__ import annotations

from weft.base.dtypes import DType, bfloat16, float16, float32, float64, int8, int16, int32, int64
from weft.codegen.index import Ptr
from weft.codegen.indexing.access import raw_type
from weft.codegen.scalar.forms import load
from weft.codegen.scalar.vec import Vec
from weft.codegen.text import Function

__all__ = ["has_keys", "load_key"]

#: The bits of infinity; NaNs are above.
_INFINITY = {
    float16: 0x7C00,
    bfloat16: 0x7F80,
    float32: 0x7F800000,
    float64: 0x7FF0000000000000,
}
_RAW = {1: int8, 2: int16, 4: int32, 8: int64}


def has_keys(dtype: DType) -> bool:
    return dtype.kind in ("bool", "int", "uint") or dtype in _INFINITY


def load_key(
    f: Function,
    dtype: DType,
    pointer: Ptr,
    descending: bool,
    lanes: int = 1,
    mask: str | None = None,
) -> Vec:
    """The keys of the values from an address on: signed integers as wide as the values."""
    size = dtype.itemsize
    raw = load(f, _RAW[size], pointer, lanes, mask)
    value = Vec(f, raw_type(size), lanes, raw)
    sign = -(1 << (8 * size - 1))
    if dtype.kind != "float":
        key = value ^ sign if dtype.kind == "uint" else value
        return ~key if descending else key
    magnitude = value & ~sign
    number = magnitude.equals(0).pick(magnitude, value)
    key = number ^ ((number >> (8 * size - 1)) & ~sign)
    key = ~key if descending else key
    return magnitude.compare("ugt", _INFINITY[dtype]).pick(key.make(~sign), key)
