"""Dropout: parts of the input become 0 at random, the others grow to make up for it."""

from __future__ import annotations

from weft.base import dtypes
from weft.base.errors import RangeError, ShapeError
from weft.base.shapes import Shape
from weft.core.operands import assign, cast
from weft.core.tensor import Tensor
from weft.ops.random import bernoulli

__all__ = [
    "alpha_dropout",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "feature_alpha_dropout",
]

_SATURATION = -1.7580993408473766  # where selu ends for very negative inputs


def _checked(p: float, op: str) -> None:
    if not 0 <= p <= 1:
        raise RangeError(f"the probability of dropping is {p}, not in 0 … 1", op=op)


def _dropped(
    input: Tensor, p: float, training: bool, inplace: bool, shape: Shape, op: str
) -> Tensor:
    _checked(p, op)
    if not training or p == 0:
        return input
    if p == 1:
        out = input * 0
    else:
        # Drawn as bools, so that a compiled forward can save one byte per element.
        kept = bernoulli(1 - p, shape, dtype=dtypes.bool, device=input.device)
        out = input * (cast(kept, input.dtype) * (1 / (1 - p)))
    if inplace:
        assign(input, out, op)
    return out


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Each element is dropped with probability p; the others are divided by 1 - p."""
    return _dropped(input, p, training, inplace, input.shape, "dropout")


def _channels(input: Tensor, spatial: int, op: str) -> Shape:
    """The shape of a mask that drops whole channels."""
    if input.ndim not in (spatial + 1, spatial + 2):
        raise ShapeError(
            f"the input has {input.ndim} axes, not {spatial + 1} or {spatial + 2}",
            op=op,
            operands=[input.type],
            hint="axes are (batch, channels, …) or (channels, …)",
        )
    return input.shape[: input.ndim - spatial] + (1,) * spatial


def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Whole channels of (batch, channels, length) are dropped."""
    shape = _channels(input, 1, "dropout1d")
    return _dropped(input, p, training, inplace, shape, "dropout1d")


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Whole channels of (batch, channels, height, width) are dropped."""
    shape = _channels(input, 2, "dropout2d")
    return _dropped(input, p, training, inplace, shape, "dropout2d")


def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Whole channels of (batch, channels, depth, height, width) are dropped."""
    shape = _channels(input, 3, "dropout3d")
    return _dropped(input, p, training, inplace, shape, "dropout3d")


def _saturated(
    input: Tensor, p: float, training: bool, inplace: bool, shape: Shape, op: str
) -> Tensor:
    _checked(p, op)
    if not training or p == 0:
        return input
    if p == 1:
        out = input * 0
    else:
        kept = bernoulli(1 - p, shape, dtype=input.dtype, device=input.device)
        scale = ((1 - p) * (1 + p * _SATURATION**2)) ** -0.5
        out = input * (kept * scale) + (1 - kept - p) * (_SATURATION * scale)
    if inplace:
        assign(input, out, op)
    return out


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Dropout for selu: elements saturate instead of becoming 0; mean and variance stay."""
    return _saturated(input, p, training, inplace, input.shape, "alpha_dropout")


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """alpha_dropout of whole channels."""
    shape = input.shape[:2] + (1,) * (input.ndim - 2)
    return _saturated(input, p, training, inplace, shape, "feature_alpha_dropout")
