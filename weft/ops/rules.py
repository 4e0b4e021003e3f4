"""Type rules and evaluation helpers that several families share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.asked_sizes import same_shape, same_size
from weft.base.dtypes import DType, as_dtype, check_dtype, real_dtype
from weft.base.errors import DeviceError, DTypeError
from weft.base.shapes import Shape, broadcast_shapes
from weft.core.bind import bind
from weft.core.tensor import Tensor
from weft.ir.op import Op
from weft.ir.types import TensorType


def check_kind(operand: TensorType, kinds: str) -> None:
    check_dtype(operand.dtype, kinds)


def check_same(*operands: TensorType) -> None:
    """One dtype and one device; public functions promote before an op is called."""
    first = operands[0]
    for other in operands[1:]:
        if other.dtype is not first.dtype:
            raise DTypeError(
                f"operands have different dtypes: {first.dtype.name} and {other.dtype.name}"
            )
        if (other.device, other.layout) != (first.device, first.layout):
            raise DeviceError(f"operands are on {first.device} and {other.device}")


def _complex_dtype(part: DType) -> DType:
    """The dtype of complex numbers with parts of a dtype; narrow floats become float32."""
    return dtypes.complex128 if part is dtypes.float64 else dtypes.complex64


RESULTS: dict[str, Callable[[DType], DType]] = {
    "same": lambda dtype: dtype,
    "bool": lambda dtype: dtypes.bool,
    "real": real_dtype,
    "complex": _complex_dtype,
}


def unary_rule(kinds: str, result: str) -> Callable[..., TensorType]:
    def infer(x: TensorType) -> TensorType:
        check_kind(x, kinds)
        return x.like(dtype=RESULTS[result](x.dtype))

    return infer


def binary_rule(kinds: str, result: str) -> Callable[..., TensorType]:
    def infer(x1: TensorType, x2: TensorType) -> TensorType:
        check_same(x1, x2)
        check_kind(x1, kinds)
        return x1.like(dtype=RESULTS[result](x1.dtype), shape=broadcast_shapes(x1.shape, x2.shape))

    return infer


def conj_of(xp: Any, x: Any) -> Any:
    """The conjugate; real values are returned as they are."""
    return xp.conj(x) if x.dtype.kind in ("c", "complex") else x  # NumPy's and our name for it


def sum_to(xp: Any, g: Any, shape: Shape) -> Any:
    """A cotangent summed over the axes along which its input was broadcast."""
    if same_shape(g.shape, shape):
        return g
    extra = len(g.shape) - len(shape)
    sizes = enumerate(shape, extra)
    ones = (i for i, size in sizes if same_size(size, 1) and not same_size(g.shape[i], 1))
    axes = (*range(extra), *ones)
    return xp.reshape(xp.sum(g, axis=axes), shape)


def apply(op: Op, *values: Any, **attrs: Any) -> Any:
    """Call another card in a rule: by `bind` for tensors, by its kernel for raw arrays."""
    first = values[op.dispatch_on]
    if isinstance(first, Tensor):
        return bind(op, *values, **attrs)
    if isinstance(first, np.generic):  # what NumPy makes of 0-d arrays
        values = tuple(np.asarray(value) for value in values)
    return op.kernels[type(values[op.dispatch_on])][first.dtype](*values, **attrs)


def cast_to(xp: Any, g: Any, dtype: Any) -> Any:
    """A cotangent in the dtype of its input; the real part if only the cotangent is complex."""
    source, target = as_dtype(g.dtype), as_dtype(dtype)
    if source is target:
        return g
    if source.kind == "complex" and target.kind != "complex":
        g = xp.real(g)
    return g.astype(target.numpy)


def no_slope(xp: Any, g: Any, _out: Any, *_inputs: Any) -> Any:
    """The derivative of a step function: 0."""
    return xp.zeros_like(g)
