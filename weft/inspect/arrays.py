"""The numbers of tensors, wherever they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.tensor import Tensor
from weft.ir.dispatch import family_of

__all__ = ["array_of", "copy_of"]


def array_of(value: Any) -> np.ndarray[Any, Any] | None:
    """The numbers of a dense tensor as a NumPy array, from its device; None for other values."""
    if not isinstance(value, Tensor):
        return None
    data = value._data
    if isinstance(data, np.ndarray):
        return data
    if not _is_on_gpu(value):
        return None
    found: np.ndarray[Any, Any] = family_of(data).to_numpy(data)
    return found


def copy_of(value: Tensor) -> Any:
    """A copy of a tensor's dense array, where it is; None for other layouts."""
    known = isinstance(value._data, np.ndarray) or _is_on_gpu(value)
    return value._data.copy() if known else None


def _is_on_gpu(value: Tensor) -> bool:
    kind = value.type
    return kind.layout == "dense" and kind.device.kind == "cuda"
