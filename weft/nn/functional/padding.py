"""Padding at the edges, and resizing by interpolation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.dim_algebra import known_less
from weft.base.errors import RangeError, ShapeError
from weft.base.shapes import Shape
from weft.core.tensor import Tensor, type_of
from weft.ops.creation import asarray, full
from weft.ops.index import take
from weft.ops.shape import broadcast_to, concat, flip, reshape

__all__ = ["interpolate", "pad"]


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: Any = None) -> Tensor:
    """The input with its axes made longer (or, with negative numbers, shorter) at both ends.

    `pad` names them from the last axis on: (before, after) the last, (before, after) the one in
    front of it, and so on. Modes: "constant" with `value`, "reflect", "replicate", "circular".
    """
    amounts = list(pad)
    if len(amounts) % 2 or len(amounts) > 2 * input.ndim:
        raise ShapeError(
            f"{len(amounts)} amounts of padding for a tensor of {input.ndim} axes",
            op="pad",
            operands=[type_of(input)],
            hint="give two for each axis, from the last axis on",
        )
    if mode not in ("constant", "reflect", "replicate", "circular"):
        raise RangeError(f"there is no mode {mode!r} of padding", op="pad")
    pairs = [
        (input.ndim - 1 - i // 2, amounts[i], amounts[i + 1]) for i in range(0, len(amounts), 2)
    ]
    x = _cropped(input, [(axis, min(a, 0), min(b, 0)) for axis, a, b in pairs])
    grown = [(axis, max(a, 0), max(b, 0)) for axis, a, b in pairs if a > 0 or b > 0]
    if not grown:
        return x if x is not input else input.clone()
    if mode == "constant":
        return _with_constant(x, grown, 0 if value is None else value)
    for axis, before, after in grown:
        x = _extended(x, axis, before, after, mode)
    return x


def _part(x: Tensor, axis: int, start: int, stop: int) -> Tensor:
    return x[(*(slice(None),) * axis, slice(start, stop))]


def _cropped(x: Tensor, pairs: list[tuple[int, int, int]]) -> Tensor:
    for axis, before, after in pairs:
        if before or after:
            size = x.shape[axis]
            if known_less(size, -before - after):
                raise ShapeError(
                    f"axis {axis} of size {size} cannot lose {-before - after}", op="pad"
                )
            x = _part(x, axis, -before, size + after)
    return x


def _with_constant(x: Tensor, pairs: list[tuple[int, int, int]], value: Any) -> Tensor:
    shape = list(x.shape)
    places = [slice(None)] * x.ndim
    for axis, before, after in pairs:
        places[axis] = slice(before, before + shape[axis])
        shape[axis] += before + after
    out = full(shape, value, dtype=x.dtype, device=x.device)
    out[tuple(places)] = x
    return out


def _extended(x: Tensor, axis: int, before: int, after: int, mode: str) -> Tensor:
    """The axis continued by what is already on it."""
    size = x.shape[axis]
    needed = max(before, after)
    least = {"reflect": needed + 1, "circular": needed, "replicate": 1}[mode]
    if known_less(size, least):
        raise ShapeError(
            f"{mode} padding of {needed} needs a longer axis {axis} than {size}",
            op="pad",
            operands=[type_of(x)],
        )
    if mode == "circular":
        ends = [_part(x, axis, size - before, size), _part(x, axis, 0, after)]
    elif mode == "reflect":
        ends = [
            flip(_part(x, axis, 1, before + 1), axis=axis),
            flip(_part(x, axis, size - 1 - after, size - 1), axis=axis),
        ]
    else:
        ends = []
        for edge, amount in (
            (_part(x, axis, 0, 1), before),
            (_part(x, axis, size - 1, size), after),
        ):
            shape = (*x.shape[:axis], amount, *x.shape[axis + 1 :])
            ends.append(broadcast_to(edge, shape))
    parts = [ends[0], x, ends[1]]
    return concat([part for part in parts if part.shape[axis] != 0], axis=axis)


# --- resizing ----------------------------------------------------------------------------------

_LINEAR = {"linear": 1, "bilinear": 2, "trilinear": 3}


def _positions(
    old: int, new: int, scale: float | None, mode: str, align_corners: bool
) -> np.ndarray[Any, Any]:
    """Where on an axis of size `old` the `new` points lie."""
    points = np.arange(new, dtype=np.float64)
    ratio = old / new if scale is None else 1 / scale
    if mode == "nearest":
        return np.minimum(np.floor(points * ratio), old - 1)
    if mode == "nearest-exact":
        return np.minimum(np.floor((points + 0.5) * ratio), old - 1)
    if align_corners:
        return points * ((old - 1) / (new - 1)) if new > 1 else points * 0
    return np.clip((points + 0.5) * ratio - 0.5, 0, None)


def _resized(x: Tensor, axis: int, at: np.ndarray[Any, Any], linear: bool) -> Tensor:
    low = np.floor(at).astype(np.int64)
    first = take(x, asarray(low, device=x.device), axis=axis)
    if not linear:
        return first
    high = np.minimum(low + 1, x.shape[axis] - 1)
    share = asarray((at - low).astype(x.dtype.numpy), device=x.device)
    share = reshape(share, (-1, *(1,) * (x.ndim - axis - 1)))
    second = take(x, asarray(high, device=x.device), axis=axis)
    return first * (1 - share) + second * share


def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
) -> Tensor:
    """The input resized along its axes after (batch, channels).

    Give the new sizes or the factors. Modes: "nearest", "nearest-exact", and "linear", "bilinear",
    "trilinear" for one, two and three axes.
    """
    spatial = input.ndim - 2
    if mode not in ("nearest", "nearest-exact", *_LINEAR):
        raise RangeError(f"there is no mode {mode!r} of interpolation here", op="interpolate")
    if spatial < 1 or _LINEAR.get(mode, spatial) != spatial:
        raise ShapeError(
            f"mode {mode!r} does not take an input of {input.ndim} axes",
            op="interpolate",
            operands=[type_of(input)],
        )
    if (size is None) == (scale_factor is None):
        raise RangeError("give either size or scale_factor", op="interpolate")
    old: Shape = input.shape[2:]
    scales: list[float | None] = [None] * spatial
    if size is not None:
        new = list(size) if isinstance(size, Sequence) else [size] * spatial
    else:
        given = scale_factor if isinstance(scale_factor, Sequence) else [scale_factor] * spatial
        factors = [float(f) for f in given if f is not None]
        new = [math.floor(n * f) for n, f in zip(old, factors, strict=True)]
        scales = [None if recompute_scale_factor else f for f in factors]
    if len(new) != spatial:
        raise ShapeError(f"{len(new)} sizes for {spatial} axes", op="interpolate")
    out = input
    for i, (before, after, scale) in enumerate(zip(old, new, scales, strict=True)):
        if before != after or mode in ("nearest-exact", "nearest") or scale is not None:
            at = _positions(before, after, scale, mode, bool(align_corners))
            out = _resized(out, i + 2, at, mode in _LINEAR)
    return out
