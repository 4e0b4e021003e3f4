"""Complex numbers from their parts, and their parts as an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.errors import DTypeError, ShapeError
from weft.core.public import attach_properties, public
from weft.core.tensor import Tensor
from weft.ops.define import binary
from weft.ops.elementwise import atan2, cos, imag, multiply, real, sin
from weft.ops.rules import cast_to
from weft.ops.shape import stack

__all__ = ["angle", "complex", "polar", "view_as_complex", "view_as_real"]


def _joined(x1: Any, x2: Any) -> Any:
    """Part by part: a product with 1j would turn an infinite part into NaN."""
    out = np.empty(np.broadcast_shapes(x1.shape, x2.shape), np.result_type(x1.dtype, np.complex64))
    out.real, out.imag = x1, x2
    return out


complex = binary(
    "complex",
    "The complex numbers with these real and imaginary parts.\n\n"
    "    >>> weft.complex(weft.asarray([1.0, 2.0]), weft.asarray([0.0, -1.0]))\n"
    "    tensor([1.+0.j, 2.-1.j])\n    ",
    kinds="real floating",
    result="complex",
    evaluate=lambda _xp, x1, x2: x1 + x2 * 1j,
    numpy=_joined,
    vjp=(
        lambda xp, g, _out, x1_type, _x2: cast_to(xp, xp.real(g), x1_type.dtype),
        lambda xp, g, _out, _x1, x2_type: cast_to(xp, xp.imag(g), x2_type.dtype),
    ),
)


@public()
def polar(abs: Tensor, angle: Tensor, /) -> Tensor:
    """The complex numbers with these absolute values and angles.

    >>> weft.polar(weft.asarray([2.0]), weft.asarray([0.0]))
    tensor([2.+0.j])
    """
    return complex(multiply(abs, cos(angle)), multiply(abs, sin(angle)))


@public("angle")
def angle(x: Tensor, /) -> Tensor:
    """The angle of a complex number, between -π and π; of a real one 0, or π if it is negative.

    >>> weft.angle(weft.asarray([1.0, -1.0]))
    tensor([0.       , 3.1415927])
    """
    return atan2(imag(x), real(x))


@public("view_as_real")
def view_as_real(x: Tensor, /) -> Tensor:
    """Real and imaginary parts along a new last axis.

    >>> weft.view_as_real(weft.asarray([1.0 + 2.0j]))
    tensor([[1., 2.]])
    """
    if x.dtype.kind != "complex":
        raise DTypeError("x must be complex", op="view_as_real", operands=[x.type])
    return stack([real(x), imag(x)], axis=-1)


@public("view_as_complex")
def view_as_complex(x: Tensor, /) -> Tensor:
    """The last axis, of size 2, as the parts of complex numbers.

    >>> weft.view_as_complex(weft.asarray([[1.0, 2.0]]))
    tensor([1.+2.j])
    """
    if not x.ndim or x.shape[-1] != 2:
        raise ShapeError("the last axis must have size 2", op="view_as_complex", operands=[x.type])
    return complex(x[..., 0], x[..., 1])


def _real(self: Tensor) -> Tensor:
    """The real part; of a real tensor, itself."""
    return real(self) if self.dtype.kind == "complex" else self


# Properties, as in NumPy and PyTorch; `weft.real(x)` is the function.
attach_properties({"real": _real, "imag": imag})
