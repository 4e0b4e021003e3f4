"""First values of parameters: each function fills a tensor and returns it.

Numbers come from `weft.manual_seed`'s generator, or from the one given.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator
from typing import Any

from weft.base.dtypes import NARROW_FLOATS, float32
from weft.base.errors import RangeError, ShapeError
from weft.base.shapes import size_of
from weft.core.bind import rebind
from weft.core.grad_mode import no_grad
from weft.core.operands import cast
from weft.core.tensor import Tensor
from weft.ops.creation import eye, full, zeros
from weft.ops.elementwise import sign
from weft.ops.linalg_factor import qr
from weft.ops.random import normal, uniform
from weft.ops.reduce import any as any_of
from weft.ops.select import clip, where
from weft.ops.shape import reshape

__all__ = [
    "calculate_gain",
    "constant_",
    "dirac_",
    "eye_",
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "ones_",
    "orthogonal_",
    "sparse_",
    "trunc_normal_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]


class _Skipping(threading.local):
    """Whether this thread makes modules without drawing their first values."""

    on = False


_skipping = _Skipping()


@contextlib.contextmanager
def skipped() -> Iterator[None]:
    """Within this context random first values are not drawn."""
    before, _skipping.on = _skipping.on, True
    try:
        yield
    finally:
        _skipping.on = before


def _fill(tensor: Tensor, value: Tensor) -> Tensor:
    """Give a tensor, also a parameter, its first value."""
    with no_grad():
        rebind(tensor, reshape(cast(value, tensor.dtype), tensor.shape), "init")
    return tensor


def _drawn(tensor: Tensor) -> dict[str, Any]:
    """In what dtype and where numbers for a tensor are drawn."""
    narrow = tensor.dtype in NARROW_FLOATS
    return {"dtype": float32 if narrow else tensor.dtype, "device": tensor.device}


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Fill with numbers drawn uniformly from [a, b)."""
    if _skipping.on:
        return tensor
    return _fill(tensor, uniform(a, b, tensor.shape, generator=generator, **_drawn(tensor)))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Fill with numbers drawn from a normal distribution."""
    if _skipping.on:
        return tensor
    return _fill(tensor, normal(mean, std, tensor.shape, generator=generator, **_drawn(tensor)))


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> Tensor:
    """Fill with numbers drawn from a normal distribution, drawing anew those outside of [a, b]."""
    options = _drawn(tensor)
    if not a < b or mean + 8 * std < a or mean - 8 * std > b:
        raise RangeError(f"hardly a number falls into [{a}, {b}]", op="trunc_normal_")
    values = normal(mean, std, tensor.shape, generator=generator, **options)
    for _ in range(1000):
        outside = (values < a) | (values > b)
        if not any_of(outside):
            break
        again = normal(mean, std, tensor.shape, generator=generator, **options)
        values = where(outside, again, values)
    return _fill(tensor, clip(values, a, b))


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with one number."""
    return _fill(tensor, full(tensor.shape, val, dtype=tensor.dtype, device=tensor.device))


def ones_(tensor: Tensor) -> Tensor:
    """Fill with ones."""
    return constant_(tensor, 1)


def zeros_(tensor: Tensor) -> Tensor:
    """Fill with zeros."""
    return constant_(tensor, 0)


def eye_(tensor: Tensor) -> Tensor:
    """Fill a matrix with ones on the diagonal, zeros elsewhere."""
    if tensor.ndim != 2:
        raise ShapeError(f"a matrix has 2 axes, not {tensor.ndim}", op="eye_")
    return _fill(tensor, eye(*tensor.shape, dtype=tensor.dtype, device=tensor.device))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fill a convolution's weight so that it passes on as many channels as it can unchanged."""
    if tensor.ndim not in (3, 4, 5) or tensor.shape[0] % groups:
        raise ShapeError(f"no convolution of {groups} groups has shape {tensor.shape}", op="dirac_")
    value = zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    size = tensor.shape[0] // groups
    centre = tuple(n // 2 for n in tensor.shape[2:])
    for group in range(groups):
        for channel in range(min(size, tensor.shape[1])):
            value[(group * size + channel, channel, *centre)] = 1
    return _fill(tensor, value)


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Fill a matrix from a normal distribution, but set a share of each column to 0."""
    if tensor.ndim != 2:
        raise ShapeError(f"a matrix has 2 axes, not {tensor.ndim}", op="sparse_")
    options = _drawn(tensor)
    values = normal(0.0, std, tensor.shape, generator=generator, **options)
    order = uniform(0.0, 1.0, tensor.shape, generator=generator, **options)
    rank = order.argsort(axis=0).argsort(axis=0)
    return _fill(tensor, where(rank < math.ceil(sparsity * tensor.shape[0]), 0, values))


# --- by the number of inputs and outputs -------------------------------------------------------

_GAINS: dict[str, float] = {
    **dict.fromkeys(("linear", "sigmoid", "identity"), 1.0),
    **dict.fromkeys((f"conv{n}d" for n in (1, 2, 3)), 1.0),
    **dict.fromkeys((f"conv_transpose{n}d" for n in (1, 2, 3)), 1.0),
    "tanh": 5 / 3,
    "relu": math.sqrt(2),
    "selu": 3 / 4,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """By what factor first values grow to make up for what a nonlinearity takes away."""
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        known = ", ".join((*_GAINS, "leaky_relu"))
        raise RangeError(f"no gain is known for {nonlinearity!r}", hint=f"known are {known}")
    return _GAINS[nonlinearity]


def fans(tensor: Tensor) -> tuple[int, int]:
    """How many inputs each output of a weight has, and how many outputs each input."""
    if tensor.ndim < 2:
        raise ShapeError(
            f"a weight of shape {tensor.shape} has no inputs and outputs to count",
            op="init",
            hint="weights have 2 axes or more; use uniform_ or normal_ for others",
        )
    field = size_of(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Glorot's uniform distribution: the variance is 2 / (inputs + outputs)."""
    bound = gain * math.sqrt(6 / max(sum(fans(tensor)), 1))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Glorot's normal distribution: the variance is 2 / (inputs + outputs)."""
    return normal_(tensor, 0.0, gain * math.sqrt(2 / max(sum(fans(tensor)), 1)), generator)


def _kaiming(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise RangeError(f"mode is 'fan_in' or 'fan_out', not {mode!r}", op="init")
    fan = fans(tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(max(fan, 1))


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """He's uniform distribution: the variance is gain² / inputs (or outputs)."""
    bound = math.sqrt(3) * _kaiming(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """He's normal distribution: the variance is gain² / inputs (or outputs)."""
    return normal_(tensor, 0.0, _kaiming(tensor, a, mode, nonlinearity), generator)


def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Fill with a random matrix whose rows (or columns, if they are fewer) are orthonormal."""
    if tensor.ndim < 2:
        raise ShapeError(f"a matrix has 2 axes or more, not {tensor.ndim}", op="orthogonal_")
    if not tensor.size:
        return tensor
    rows, columns = tensor.shape[0], tensor.size // tensor.shape[0]
    with no_grad():
        long, short = max(rows, columns), min(rows, columns)
        q, r = qr(normal(0.0, 1.0, (long, short), generator=generator, **_drawn(tensor)))
        diagonal = (r * eye(short, dtype=r.dtype, device=r.device)).sum(axis=0)
        q = q * sign(diagonal)  # makes the distribution uniform
        return _fill(tensor, (q if rows >= columns else q.mT) * gain)
