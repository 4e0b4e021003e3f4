"""Conversion between dtypes.

Casts that cannot keep a value have one documented result, the same in every mode:

- floating to integer truncates towards zero and saturates: too large is the largest integer, too
  small the smallest, NaN is 0;
- integer to integer wraps;
- to bool is `x != 0`, so NaN is True;
- to a narrower float rounds to nearest even, and overflows to infinity;
- complex to real is an error: say `weft.real(x)` or `weft.abs(x)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.device import as_device
from weft.base.dtypes import NARROW_FLOATS, DType, as_dtype, int_info
from weft.base.errors import DTypeError, OverflowError
from weft.core.bind import bind
from weft.core.public import attach, public
from weft.core.tensor import Tensor
from weft.ir.op import Op, Trait
from weft.ir.types import TensorType
from weft.ops.batching import leading
from weft.ops.rules import cast_to
from weft.ops.ways import converted

__all__ = ["astype"]


def _astype_type(x: TensorType, *, dtype: DType) -> TensorType:
    if x.dtype.kind == "complex" and dtype.kind not in ("complex", "bool"):
        raise DTypeError(
            f"a cast from {x.dtype.name} to {dtype.name} would drop the imaginary part",
            hint="use weft.real(x) or weft.abs(x)",
        )
    return x.like(dtype=dtype)


def _convert(xp: Any, x: Any, *, dtype: DType) -> Any:
    source = as_dtype(x.dtype)
    if source.kind == "complex" and dtype.kind not in ("complex", "bool"):
        raise TypeError("complex to real")  # the type rule says the rest
    if source.kind == "float" and dtype.kind in ("int", "uint"):
        return _saturated(xp, x, dtype)
    return xp.astype(x, dtype.numpy)


def _saturated(xp: Any, x: Any, dtype: DType) -> Any:
    """Floats as integers: truncated, clipped to the range, NaN as 0."""
    if as_dtype(x.dtype) in NARROW_FLOATS:
        x = xp.astype(x, dtypes.float32.numpy)
    info = int_info(dtype)
    above = x >= 2.0 ** (dtype.bits - (dtype.kind == "int"))  # info.max + 1, exact as a float
    below = x <= float(info.min)
    outside = above | below | (x != x)
    inside = xp.astype(xp.where(outside, xp.zeros_like(x), x), dtype.numpy)
    limits = xp.where(above, xp.asarray(info.max, dtype=dtype.numpy), inside)
    return xp.where(below, xp.asarray(info.min, dtype=dtype.numpy), limits)


_astype = Op(
    "astype",
    _astype_type,
    _convert,
    vjp=(lambda xp, g, _out, x_type, *, dtype: cast_to(xp, g, x_type.dtype),),
    traits=Trait.ELEMENTWISE,
    ways=converted,
)


@public("astype")
def astype(x: Tensor, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """x in another dtype; see the rules of conversion in the op reference.

    >>> weft.asarray([1.9, -1.9, float("nan"), 300.0]).astype(weft.int8)
    tensor([  1,  -1,   0, 127], dtype=int8)
    """
    wanted = as_dtype(dtype)
    out: Tensor = x
    if x.dtype is not wanted:
        out = bind(_astype, x, dtype=wanted)
    elif copy:
        out = x.clone()
    return out if device is None else out.to_device(as_device(device))


def _caster(dtype: DType) -> Any:
    def method(self: Tensor) -> Tensor:
        return astype(self, dtype)

    method.__doc__ = f"x.astype(weft.{dtype.name})"
    return method


attach(
    {
        "bool": _caster(dtypes.bool),  # PyTorch's short names
        "int": _caster(dtypes.int32),
        "long": _caster(dtypes.int64),
        "short": _caster(dtypes.int16),
        "byte": _caster(dtypes.uint8),
        "char": _caster(dtypes.int8),
        "cfloat": _caster(dtypes.complex64),
        "cdouble": _caster(dtypes.complex128),
        "half": _caster(dtypes.float16),
        "bfloat16": _caster(dtypes.bfloat16),
        "float": _caster(dtypes.float32),
        "double": _caster(dtypes.float64),
    }
)


# --- Python integers in graphs -------------------------------------------------------------------

#: From this on, a Python integer counts as too large for int64. The margin allows for the rounding
#: of estimates, and for counters, whose small steps are not checked.
TOO_LARGE = 2.0**63 - 2.0**40


def _fits_type(x: TensorType, estimate: TensorType) -> TensorType:
    if x.dtype is not dtypes.int64 or estimate != x.like(dtype=dtypes.float64):
        raise DTypeError(f"{x} is no int64 with an estimate in float64 of its own, {estimate}")
    return x


def _fits(xp: Any, x: Any, estimate: Any) -> Any:
    if bool(xp.any(xp.isnan(estimate))):
        raise ValueError("cannot convert float NaN to integer")
    if not bool(xp.all(xp.abs(estimate) < TOO_LARGE)):
        raise OverflowError(
            "a Python integer is too large for the int64 that stands for it in a graph",
            hint="use a float, or take a remainder in each step; in plain Python integers have no "
            "limit",
        )
    return x


FITS_INT64 = Op(
    "fits_int64", _fits_type, _fits, vjp=(None, None), batch=leading, traits=Trait.COUNTS
)

# --- Python's own errors in graphs ---------------------------------------------------------------

#: Functions of Python's that are not defined for all numbers, by name; of two operands, the second.
PARTIAL: dict[str, Callable[[Any], Any]] = {
    "/": lambda x: 1.0 / x,
    "//": lambda x: 1 // x,
    "%": lambda x: 1 % x,
    **{name: getattr(math, name) for name in ("sqrt", "exp", "expm1", "log", "log2", "log10")},
    **{
        name: getattr(math, name) for name in ("log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh")
    },
}


def _no_kind(x: Any) -> Any:
    raise ArithmeticError(
        "a power of a number that only the graph knows is of another kind than the recording took "
        "it for: an integer to a negative power, or a negative number to a fraction"
    )


PARTIAL |= {"2 ** -1": _no_kind, "(-8.0) ** 0.5": _no_kind}


def _defined_type(x: TensorType, holds: TensorType, *, function: str) -> TensorType:
    if holds != x.like(dtype=dtypes.bool) or x.dtype not in (dtypes.int64, dtypes.float64):
        raise DTypeError(f"{holds} says of no number of Python's, {x}, that it is in order")
    return x


def _defined(xp: Any, x: Any, holds: Any, *, function: str) -> Any:
    if not bool(xp.all(holds)):
        for number, right in zip(np.ravel(x), np.ravel(holds), strict=True):
            if not right:
                PARTIAL[function](number.item())  # raises Python's own error
        raise ArithmeticError(f"{function} is not defined for {x}")
    return x


DEFINED = Op("python_defined", _defined_type, _defined, vjp=(None, None), batch=leading)
