"""Fourier transforms along one axis: four cards and the functions of `weft.fft` built on them."""

from __future__ import annotations

from typing import Any, Literal

from weft.base.asked_sizes import is_less
from weft.base.dim_algebra import Dim, dim_max, known_less
from weft.base.dims import log2_estimate
from weft.base.dtypes import as_dtype, complex_dtype, real_dtype
from weft.base.errors import DTypeError, ShapeError
from weft.core.bind import bind
from weft.core.operands import as_tensor, cast, common
from weft.core.public import public
from weft.core.tensor import Tensor, type_of
from weft.ir.op import Cost, Op, Trait, Types
from weft.ir.types import TensorType
from weft.ops.arguments import axis_of, integer
from weft.ops.batching import shifted
from weft.ops.creation import zeros
from weft.ops.elementwise import conj
from weft.ops.rules import apply, cast_to, check_kind
from weft.ops.shape import concat
from weft.ops.ways import but_axis

__all__ = ["fft", "hfft", "ifft", "ihfft", "irfft", "rfft"]

Norm = Literal["backward", "ortho", "forward"]

#: A norm says which of a transform and its inverse is divided by n; "ortho" divides both by
#: sqrt(n). The table maps the norm of one to that of the other.
OPPOSITE: dict[str, Norm] = {"backward": "forward", "ortho": "ortho", "forward": "backward"}

# --- cards -------------------------------------------------------------------------------------


def _resized(x: TensorType, axis: int, size: int) -> tuple[int, ...]:
    return (*x.shape[:axis], size, *x.shape[axis + 1 :])


def _complex_type(x: TensorType, *, axis: int, norm: str) -> TensorType:
    check_kind(x, "complex floating")
    return x


def _rfft_type(x: TensorType, *, axis: int, norm: str) -> TensorType:
    check_kind(x, "real floating")
    shape = _resized(x, axis, x.shape[axis] // 2 + 1)
    return x.like(shape=shape, dtype=complex_dtype(x.dtype))


def _irfft_type(x: TensorType, *, n: int, axis: int, norm: str) -> TensorType:
    check_kind(x, "complex floating")
    return x.like(shape=_resized(x, axis, n), dtype=real_dtype(x.dtype))


def _cost(inputs: Types, outputs: Types, *, axis: int, **_attrs: Any) -> Cost:
    """5 n log2(n) operations for each transform; a real one takes half of that."""
    (source,), (result,) = inputs, outputs
    longer = (
        source if result.dtype.kind == "complex" else result
    )  # the longer side of a real transform
    flops = 5 * longer.size * dim_max(log2_estimate(longer.shape[axis]), 1)
    if longer.dtype.kind == "float":
        flops //= 2
    return Cost(flops, sum(t.nbytes for t in (*inputs, *outputs)))


def _edges_kept(xp: Any, z: Any, n: int, axis: int, factor: float) -> Any:
    """z times `factor`, except for values that represent themselves, not a pair.

    In the half z of a transform of n real points, these are the first and, for even n, the last.
    """
    counts = xp.arange(z.shape[axis], device=z.device)
    alone = cast_to(xp, (counts == 0) | (2 * counts == n), real_dtype(as_dtype(z.dtype)).numpy)
    weights = factor + (1 - factor) * alone
    return z * xp.reshape(weights, (-1,) + (1,) * (len(z.shape) - axis - 1))


def _rfft_vjp(xp: Any, g: Any, _out: Any, x_type: Any, *, axis: int, norm: str) -> Any:
    n = x_type.shape[axis]
    half = _edges_kept(xp, g, n, axis, 0.5)
    back = apply(IRFFT, half, n=n, axis=axis, norm=OPPOSITE[norm])
    return cast_to(xp, back, x_type.dtype)


def _irfft_vjp(xp: Any, g: Any, _out: Any, _x: Any, *, n: int, axis: int, norm: str) -> Any:
    return _edges_kept(xp, apply(RFFT, g, axis=axis, norm=OPPOSITE[norm]), n, axis, 2.0)


FFT = Op(
    "fft",
    _complex_type,
    lambda xp, x, *, axis, norm: xp.fft.fft(x, axis=axis, norm=norm),
    kinds="complex floating",
    vjp=(lambda xp, g, _out, _x, *, axis, norm: apply(IFFT, g, axis=axis, norm=OPPOSITE[norm]),),
    batch=shifted("axis"),
    traits=Trait.LINEAR,
    cost=_cost,
    ways=but_axis,
)
IFFT: Op = Op(
    "ifft",
    _complex_type,
    lambda xp, x, *, axis, norm: xp.fft.ifft(x, axis=axis, norm=norm),
    kinds="complex floating",
    vjp=(lambda xp, g, _out, _x, *, axis, norm: apply(FFT, g, axis=axis, norm=OPPOSITE[norm]),),
    batch=shifted("axis"),
    traits=Trait.LINEAR,
    cost=_cost,
    ways=but_axis,
)
RFFT = Op(
    "rfft",
    _rfft_type,
    lambda xp, x, *, axis, norm: xp.fft.rfft(x, axis=axis, norm=norm),
    kinds="real floating",
    vjp=(_rfft_vjp,),
    batch=shifted("axis"),
    traits=Trait.LINEAR | Trait.WIDEN,
    cost=_cost,
    ways=but_axis,
)
IRFFT = Op(
    "irfft",
    _irfft_type,
    lambda xp, x, *, n, axis, norm: xp.fft.irfft(x, n=n, axis=axis, norm=norm),
    kinds="complex floating",
    vjp=(_irfft_vjp,),
    batch=shifted("axis"),
    traits=Trait.LINEAR,
    cost=_cost,
    ways=but_axis,
)


# --- arguments ---------------------------------------------------------------------------------


def as_complex(x: Any, op: str) -> Tensor:
    """x as a complex tensor; real ones become complex."""
    tensor = as_tensor(x, op)
    return cast(tensor, complex_dtype(tensor.dtype))


def as_real(x: Any, op: str) -> Tensor:
    """x as a real floating tensor; a complex one is an error."""
    (tensor,) = common((x,), op, at_least="float")
    if tensor.dtype.kind == "complex":
        raise DTypeError(
            f"x must be real, not {tensor.dtype.name}",
            op=op,
            operands=[type_of(tensor)],
            hint=f"use weft.fft.{_OF_COMPLEX[op]}, or weft.real(x)",
        )
    return tensor


_OF_COMPLEX = {"rfft": "fft", "rfftn": "fftn", "ihfft": "ifft"}


def check_norm(norm: str, op: str) -> None:
    if norm not in OPPOSITE:
        raise ShapeError(f"norm must be 'backward', 'ortho' or 'forward', not {norm!r}", op=op)


def _length(n: Any, x: Tensor, op: str, *, inverse_real: bool = False) -> int:
    """The number of points of a transform, at least 1."""
    length: int = n if isinstance(n, Dim) else integer(n, "n", op, x)
    if is_less(length, 1):
        hint = "the axis is too short: pass n, the length of the result" if inverse_real else ""
        raise ShapeError(
            f"a transform needs at least 1 point, not {length}",
            op=op,
            operands=[type_of(x)],
            hint=hint,
        )
    return length


def _fitted(x: Tensor, size: int, axis: int) -> Tensor:
    """x trimmed, or padded with zeros, to `size` along `axis`."""
    old = x.shape[axis]
    if size == old:
        return x
    if not known_less(old, size):
        x = x[(slice(None),) * axis + (slice(size),)]
    if known_less(size, old):
        return x
    shape = (*x.shape[:axis], dim_max(size - old, 0), *x.shape[axis + 1 :])
    return concat([x, zeros(shape, dtype=x.dtype, device=x.device)], axis=axis)


# --- one axis ----------------------------------------------------------------------------------


def transform(op: Op, x: Tensor, n: Any, axis: int, norm: str, name: str) -> Tensor:
    """fft, ifft or rfft of `n` points along `axis`."""
    check_norm(norm, name)
    along = axis_of(x, axis, name)
    length = _length(x.shape[along] if n is None else n, x, name)
    out: Tensor = bind(op, _fitted(x, length, along), axis=along, norm=norm)
    return out


def real_inverse(x: Tensor, n: Any, axis: int, norm: str, name: str) -> Tensor:
    """irfft to `n` points along `axis`."""
    check_norm(norm, name)
    along = axis_of(x, axis, name)
    given = 2 * (x.shape[along] - 1) if n is None else n
    length = _length(given, x, name, inverse_real=n is None)
    half = _fitted(x, length // 2 + 1, along)
    out: Tensor = bind(IRFFT, half, n=length, axis=along, norm=norm)
    return out


@public(namespace="fft")
def fft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The Fourier transform along `axis`: out[k] = sum(x[j] * exp(-2πi jk / n)).

    With `n`, x is trimmed or padded with zeros to n points first. The norm "forward" divides by n,
    "ortho" by sqrt(n), "backward" leaves the division by n to the inverse.

    >>> weft.fft.fft(weft.asarray([1.0, 1.0, 1.0, 1.0]))
    tensor([4.+0.j, 0.+0.j, 0.+0.j, 0.+0.j])
    """
    return transform(FFT, as_complex(x, "fft"), n, axis, norm, "fft")


@public(namespace="fft")
def ifft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The inverse of `fft`, with the same arguments."""
    return transform(IFFT, as_complex(x, "ifft"), n, axis, norm, "ifft")


@public(namespace="fft")
def rfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The first n // 2 + 1 values of the `fft` of a real x, which determine the others."""
    return transform(RFFT, as_real(x, "rfft"), n, axis, norm, "rfft")


@public(namespace="fft")
def irfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The inverse of `rfft`: `n` real points, 2 * (m - 1) by default where x has m.

    For an odd number of points, n must be given.
    """
    return real_inverse(as_complex(x, "irfft"), n, axis, norm, "irfft")


@public(namespace="fft")
def hfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The real transform of a signal with x[-j] = conj(x[j]); x is its first half."""
    check_norm(norm, "hfft")
    return real_inverse(conj(as_complex(x, "hfft")), n, axis, OPPOSITE[norm], "hfft")


@public(namespace="fft")
def ihfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The inverse of `hfft`: the first half of a signal whose transform is real."""
    check_norm(norm, "ihfft")
    return conj(transform(RFFT, as_real(x, "ihfft"), n, axis, OPPOSITE[norm], "ihfft"))
