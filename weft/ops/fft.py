"""`weft.fft`: discrete Fourier transforms.

The Array API's extension of that name. Four cards transform one axis; all else is built from them.
Transforms of float64 and complex128 are computed in double precision, all others in single:
float16 and bfloat16 have complex64 transforms, and integers become the default floating dtype.

>>> weft.fft.rfft(weft.asarray([1.0, 0.0, 0.0, 0.0]))
tensor([1.+0.j, 1.+0.j, 1.+0.j])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base import dtypes
from weft.base.asked_sizes import is_less
from weft.base.device import as_device
from weft.base.dim_algebra import Dim
from weft.base.dtypes import as_dtype
from weft.base.errors import DTypeError, ShapeError
from weft.core.operands import as_tensor, cast, constant
from weft.core.public import public
from weft.core.tensor import Tensor, type_of
from weft.ir.op import Op
from weft.ops.arguments import axes_of, integer
from weft.ops.creation import arange
from weft.ops.elementwise import divide
from weft.ops.fft_axis import (
    FFT,
    IFFT,
    RFFT,
    Norm,
    as_complex,
    as_real,
    check_norm,
    fft,
    hfft,
    ifft,
    ihfft,
    irfft,
    real_inverse,
    rfft,
    transform,
)
from weft.ops.shape import roll

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]

# --- several axes ------------------------------------------------------------------------------


def _plan(
    x: Tensor, s: Sequence[int] | None, axes: Sequence[int] | None, norm: str, op: str
) -> list[tuple[int, int | None]]:
    """The axes to transform, each with its number of points (None: as many as there are)."""
    check_norm(norm, op)
    operands = [type_of(x)]
    along = axes_of(x, axes if axes is None else tuple(axes), op)
    if s is None:
        return [(axis, None) for axis in along]
    if axes is None:
        raise ShapeError(
            "s is given without axes", op=op, operands=operands, hint="name the axes too: axes=..."
        )
    sizes = tuple(s)
    if len(sizes) != len(along):
        raise ShapeError(f"{len(sizes)} sizes for {len(along)} axes", op=op, operands=operands)
    return [(axis, None if n == -1 else n) for axis, n in zip(along, sizes, strict=True)]


def _last(plan: list[tuple[int, int | None]], x: Tensor, op: str) -> tuple[int, int | None]:
    """The axis whose transform is real on one side."""
    if not plan:
        raise ShapeError("at least one axis is needed", op=op, operands=[type_of(x)])
    return plan[-1]


@public(namespace="fft")
def fftn(
    x: Tensor,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Tensor:
    """`fft` along each of `axes` (all by default), to s[i] points along axes[i].

    A size of -1 means as many points as there are.
    """
    return _along_each(FFT, x, s, axes, norm, "fftn")


@public(namespace="fft")
def ifftn(
    x: Tensor,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Tensor:
    """The inverse of `fftn`, with the same arguments."""
    return _along_each(IFFT, x, s, axes, norm, "ifftn")


def _along_each(
    op: Op, x: Tensor, s: Sequence[int] | None, axes: Sequence[int] | None, norm: str, name: str
) -> Tensor:
    out = as_complex(x, name)
    for axis, n in _plan(out, s, axes, norm, name):
        out = transform(op, out, n, axis, norm, name)
    return out.clone() if out is x else out


@public(namespace="fft")
def rfftn(
    x: Tensor,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Tensor:
    """`rfft` along the last of `axes` (all by default), then `fft` along the others."""
    out = as_real(x, "rfftn")
    plan = _plan(out, s, axes, norm, "rfftn")
    axis, n = _last(plan, out, "rfftn")
    out = transform(RFFT, out, n, axis, norm, "rfftn")
    for axis, n in plan[:-1]:
        out = transform(FFT, out, n, axis, norm, "rfftn")
    return out


@public(namespace="fft")
def irfftn(
    x: Tensor,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Tensor:
    """The inverse of `rfftn`. Along the last axis there are 2 * (m - 1) points by default."""
    out = as_complex(x, "irfftn")
    plan = _plan(out, s, axes, norm, "irfftn")
    last, points = _last(plan, out, "irfftn")
    for axis, n in plan[:-1]:
        out = transform(IFFT, out, n, axis, norm, "irfftn")
    return real_inverse(out, points, last, norm, "irfftn")


# --- images: the last two axes ----------------------------------------------------------------


@public(namespace="fft")
def fft2(
    x: Tensor,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: Norm = "backward",
) -> Tensor:
    """`fftn` of two axes, the last ones by default."""
    return fftn(x, s=s, axes=axes, norm=norm)


@public(namespace="fft")
def ifft2(
    x: Tensor,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: Norm = "backward",
) -> Tensor:
    """`ifftn` of two axes, the last ones by default."""
    return ifftn(x, s=s, axes=axes, norm=norm)


@public(namespace="fft")
def rfft2(
    x: Tensor,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: Norm = "backward",
) -> Tensor:
    """`rfftn` of two axes, the last ones by default."""
    return rfftn(x, s=s, axes=axes, norm=norm)


@public(namespace="fft")
def irfft2(
    x: Tensor,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: Norm = "backward",
) -> Tensor:
    """`irfftn` of two axes, the last ones by default."""
    return irfftn(x, s=s, axes=axes, norm=norm)


# --- frequencies and shifts --------------------------------------------------------------------


def _frequencies(counts: Tensor, n: int, d: float, dtype: Any, device: Any, op: str) -> Tensor:
    wanted = dtypes.default_float() if dtype is None else as_dtype(dtype)
    if wanted.kind != "float":
        raise DTypeError(f"dtype must be a real floating one, not {wanted.name}", op=op)
    if d == 0:
        raise ShapeError("the distance d between samples must not be 0", op=op)
    known = not isinstance(n, Dim)
    span: Any = float(n * d) if known else constant(n, dtypes.float64, counts.device) * d
    exact = divide(cast(counts, dtypes.float64), span)
    return cast(exact, wanted).to_device(as_device(device))


def _window(n: Any, op: str) -> int:
    length: int = n if isinstance(n, Dim) else integer(n, "n", op)
    if is_less(length, 1):
        raise ShapeError(f"a window needs at least 1 sample, not {length}", op=op)
    return length


@public(namespace="fft")
def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies that `fft` of n samples, a distance d apart, has values for.

    >>> weft.fft.fftfreq(5, d=0.1)
    tensor([ 0.,  2.,  4., -4., -2.])
    """
    length = _window(n, "fftfreq")
    counts = ifftshift(arange(-(length // 2), (length + 1) // 2))
    return _frequencies(counts, length, d, dtype, device, "fftfreq")


@public(namespace="fft")
def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies that `rfft` of n samples, a distance d apart, has values for.

    >>> weft.fft.rfftfreq(5, d=0.1)
    tensor([0., 2., 4.])
    """
    length = _window(n, "rfftfreq")
    return _frequencies(arange(length // 2 + 1), length, d, dtype, device, "rfftfreq")


@public(namespace="fft")
def fftshift(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """x with the zero frequency moved to the middle of `axes` (all by default)."""
    return _shifted(x, axes, 1, "fftshift")


@public(namespace="fft")
def ifftshift(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """The inverse of `fftshift`: the zero frequency back to the front."""
    return _shifted(x, axes, -1, "ifftshift")


def _shifted(x: Tensor, axes: int | Sequence[int] | None, sign: int, op: str) -> Tensor:
    tensor = as_tensor(x, op)
    along = axes_of(tensor, axes, op)
    out = roll(tensor, tuple(sign * (tensor.shape[axis] // 2) for axis in along), axis=along)
    return out.clone() if out is x else out


def __dir__() -> list[str]:
    return __all__
