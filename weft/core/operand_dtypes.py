"""Operands in another dtype, as mixed precision and in-place ops ask for."""

from __future__ import annotations

from typing import Any

from weft.base.dtypes import NARROW_FLOATS, float32
from weft.core.tensor import Tensor

__all__ = ["CAST", "in_dtype"]

#: The dtypes that autocast is about.
CAST = NARROW_FLOATS | {float32}


def in_dtype(inputs: tuple[Any, ...], dtype: Any) -> tuple[Any, ...]:
    """Operands with the tensors among them in a dtype whose dtype is float32 or narrower.

    Beside a float64 or complex tensor all stay as they are: they compute in its dtype.
    """
    if any(isinstance(x, Tensor) and x._data.dtype.char in "dFD" for x in inputs):
        return inputs
    return tuple(
        [
            x.astype(dtype)
            if isinstance(x, Tensor) and x.dtype in CAST and x.dtype is not dtype
            else x
            for x in inputs
        ]
    )
