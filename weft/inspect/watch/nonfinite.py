"""Whether a call created a NaN or an infinity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.core.tensor import Tensor
from weft.inspect.arrays import array_of

__all__ = ["count_text", "created", "summary"]

A = {"NaN": "a NaN", "inf": "an inf"}


def floats_of(value: Any) -> np.ndarray[Any, Any] | None:
    """The array of a floating-point tensor; None for other values."""
    array = array_of(value)
    return array if array is not None and array.dtype.kind in "fcV" else None


def worst(values: Sequence[Any]) -> str:
    """Whether tensors contain a "NaN", else an "inf"; else empty."""
    found = ""
    for value in values:
        array = floats_of(value)
        if array is not None and not np.isfinite(array).all():
            if np.isnan(array).any():
                return "NaN"
            found = "inf"
    return found


def created(inputs: Sequence[Any], outputs: Sequence[Any], inf: bool) -> str:
    """What a call created: "NaN", "inf", or empty.

    It created a NaN if its inputs contain none, and an infinity if its inputs are finite. A call
    without inputs is a constant, and constants such as weft.inf are intended.
    """
    made = worst(outputs)
    if not made or not inputs:
        return ""
    came = worst(inputs)
    if made == "NaN":
        return "" if came == "NaN" else made
    return made if inf and not came else ""


def count_text(outputs: Sequence[Any], what: str) -> str:
    """2 of 6 elements"""
    asks = np.isnan if what == "NaN" else np.isinf
    for value in outputs:
        array = floats_of(value)
        if array is not None and asks(array).any():
            return f"{int(asks(array).sum())} of {array.size} elements"
    return ""


def summary(value: Any) -> str:
    """A tensor's type and range: f32[2,3] in [-1, 0.5]"""
    if not isinstance(value, Tensor):
        return type(value).__name__
    array = array_of(value)
    if array is None or not array.size or array.dtype.kind == "c":
        return str(value.type)
    if array.size == 1:
        return f"{value.type} = {array.reshape(-1)[0]!s}"
    wide = array.astype(np.float64) if array.dtype.kind in "fV" else array
    known = wide[np.isfinite(wide)] if wide.dtype.kind == "f" else wide
    text = f"in [{known.min():.6g}, {known.max():.6g}]" if known.size else "without a number"
    zeros = int((known == 0).sum())
    notes = [f"{zeros} zeros"] if zeros else []
    notes += [f"{known.size} of {array.size} finite"] if known.size < array.size else []
    return f"{value.type} {text}" + (f" ({', '.join(notes)})" if notes else "")
