"""The error to show for an op call that failed: the op, its operands, and what is wrong."""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from weft.base.dims import has_dims
from weft.base.errors import (
    CaptureError,
    DeviceError,
    IndexError,
    LinAlgError,
    MemoryError,
    WeftError,
)
from weft.base.shapes import Shape
from weft.core.tensor import Tensor, type_of
from weft.ir.dispatch import family_of
from weft.ir.op import Op


def mixed(inputs: tuple[Tensor, ...]) -> WeftError:
    for tensor in inputs:
        refusal = family_of(tensor._data).refusal
        if refusal:
            return CaptureError(refusal)
    places = ", ".join(dict.fromkeys(f"{t.device} ({t.layout})" for t in inputs))
    return DeviceError(
        f"operands are on different devices or in different layouts: {places}",
        hint="bring them together with x.to_device(...)",
    )


def check_devices(inputs: tuple[Tensor, ...]) -> None:
    """Arrays of one class may still lie on different units of a device: cuda:0 and cuda:1."""
    if len({tensor.device for tensor in inputs}) > 1:
        raise mixed(inputs)


def cause(error: Exception) -> Exception | None:
    return None if isinstance(error, WeftError) else error


def explained(
    op: Op, inputs: tuple[Tensor, ...], attrs: dict[str, Any], error: Exception
) -> Exception:
    """The error to show for what a kernel raised."""
    types = [type_of(tensor) for tensor in inputs]
    if isinstance(error, WeftError):
        return error.about(op.name, types)
    try:
        inferred = op.infer(*types, **attrs)
    except WeftError as clear:
        return clear.about(op.name, types)
    outputs = inferred if isinstance(inferred, tuple) else (inferred,)
    known = [t for t in outputs if not has_dims(t.shape)]  # other sizes depend on values
    if known:
        largest = max(known, key=lambda t: t.nbytes)
        spanned = math.prod(size for size in largest.shape if size) * largest.dtype.itemsize
        if isinstance(error, builtins.MemoryError) or spanned > ADDRESSABLE:
            return out_of_memory(op.name, largest.shape, spanned).about(op.name, types)
    message = str(error)
    if isinstance(error, builtins.IndexError):
        return IndexError(message, op=op.name, operands=types)
    if isinstance(error, np.linalg.LinAlgError):
        return LinAlgError(message, op=op.name, operands=types)
    return error


#: No machine has more; NumPy refuses such arrays, even with an axis of size 0, with a ValueError.
ADDRESSABLE = 2**62


def out_of_memory(op: str, shape: Shape, nbytes: int) -> MemoryError:
    amount = float(nbytes)
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        if amount < 1024 or unit == "EiB":
            break
        amount /= 1024
    return out_of_memory_for(f"a tensor of shape {shape}", f"takes {amount:.4g} {unit},", op)


def out_of_memory_for(what: str, takes: str = "take", op: str = "") -> MemoryError:
    return MemoryError(
        f"{what} {takes} more than there is",
        op=op,
        hint="use a smaller shape or a narrower dtype, or work in parts",
    )
