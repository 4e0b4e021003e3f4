"""NumPy arrays as integers of the same order, as in native code (`weft.codegen.sorting.keys`).

NaN is the largest in both directions, -0 and 0 are equal, and descending reverses the order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["order_keys"]

Array = np.ndarray[Any, Any]


def order_keys(x: Array, descending: bool = False) -> Array:
    """Signed integers as wide as the values; a new array, or x itself."""
    if x.dtype.kind == "b":
        x = x.view(np.int8)
    if x.dtype.kind == "i":
        return ~x if descending else x
    signed = np.dtype(f"i{x.itemsize}")
    least = np.iinfo(signed).min
    if x.dtype.kind == "u":
        unsigned = x.view(signed) ^ least
        return ~unsigned if descending else unsigned
    bits = (x + x.dtype.type(0)).view(signed)  # 0 for -0
    keys: Array = bits ^ ((bits >> (8 * x.itemsize - 1)) & np.iinfo(signed).max)
    if descending:
        np.invert(keys, out=keys)
    keys[np.isnan(x)] = np.iinfo(signed).max
    return keys
