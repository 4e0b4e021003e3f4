"""Resizing by interpolation, and the exchange of channels for resolution."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from weft.base.asked_sizes import is_less
from weft.base.dtypes import float32, float64, int64
from weft.base.errors import RangeError, ShapeError
from weft.base.shapes import Shape
from weft.core.operands import constant
from weft.core.tensor import Tensor, type_of
from weft.ops import pool
from weft.ops.creation import arange
from weft.ops.elementwise import abs, floor, maximum, minimum
from weft.ops.index import take
from weft.ops.select import where
from weft.ops.shape import permute_dims, reshape

__all__ = [
    "channel_shuffle",
    "interpolate",
    "pixel_shuffle",
    "pixel_unshuffle",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]

#: Modes that weigh several elements: how many axes they take, and the reach of their kernel.
_WEIGHTED = {"linear": (1, 1), "bilinear": (2, 1), "trilinear": (3, 1), "bicubic": (2, 2)}
_MODES = ("nearest", "nearest-exact", *_WEIGHTED, "area")
#: Of each new element the numbers of the old ones that it is made of, with their weights.
Taps = list[tuple[Tensor, Tensor]]


def _cubic(distance: Tensor, a: float) -> Tensor:
    """Keys' kernel of cubic convolution, for distances from 0 to 2."""
    d = abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((d - 5) * d + 8) * d * a - 4 * a
    return where(d < 1, near, where(d < 2, far, 0.0))


def _ratio(a: int, b: int, device: Any) -> Tensor:
    """a / b; sizes may be symbolic."""
    return constant(a, float64, device) / constant(b, float64, device)


def _nearest(old: int, new: int, scale: float | None, exact: bool, device: Any) -> Tensor:
    """The number of the element that each new one is a copy of, in float32 as in PyTorch."""
    ratio = _ratio(old, new, device) if scale is None else constant(1 / scale, float64, device)
    points = arange(new, dtype=float64, device=device) + (0.5 if exact else 0.0)
    at = points.astype(float32) * ratio.astype(float32)
    return minimum(floor(at).astype(int64), old - 1)


def _weighted(
    old: int, new: int, scale: float | None, mode: str, align_corners: bool, device: Any
) -> Taps:
    points = arange(new, dtype=float64, device=device)
    if align_corners:
        at = points * _ratio(old - 1, new - 1, device) if new > 1 else points * 0
    else:
        at = (points + 0.5) * (_ratio(old, new, device) if scale is None else 1 / scale) - 0.5
    reach = _WEIGHTED[mode][1]
    if reach == 1:
        at = maximum(at, 0)
    low = floor(at)
    taps = []
    for tap in (-1, 0, 1, 2) if reach == 2 else (0, 1):  # no loop of the graph
        distance = at - low - tap
        weight = 1 - abs(distance) if reach == 1 else _cubic(distance, -0.75)
        taps.append((minimum(maximum(low + tap, 0), old - 1).astype(int64), weight))
    return taps


def _smoothed(
    old: int, new: int, scale: float | None, mode: str, align_corners: bool, device: Any
) -> Taps:
    """The same, with a kernel that widens as the image shrinks: it covers each old element.

    How many elements that are depends on the sizes, so they must be known.
    """
    old, new = operator.index(old), operator.index(new)
    ratio = old / new if scale is None else 1 / scale
    if align_corners:
        ratio = (old - 1) / (new - 1) if new > 1 else 0.0
    reach = _WEIGHTED[mode][1]
    wide = max(ratio, 1.0)
    centre = ratio * (arange(new, dtype=float64, device=device) + 0.5)
    first = maximum((centre - reach * wide + 0.5).astype(int64), 0)
    last = minimum((centre + reach * wide + 0.5).astype(int64), old)
    found = []
    for tap in range(math.ceil(2 * reach * wide)):
        number = first + tap
        distance = (number - centre + 0.5) / wide
        kernel = maximum(1 - abs(distance), 0) if reach == 1 else _cubic(distance, -0.5)
        found.append((minimum(number, old - 1), where(number < last, kernel, 0)))
    total: Any = found[0][1]
    for _, weight in found[1:]:
        total = total + weight
    return [(number, weight / total) for number, weight in found]


def _resized(x: Tensor, axis: int, taps: Taps) -> Tensor:
    """Sums of elements of one axis, each with its weight."""
    behind = (1,) * (x.ndim - axis - 1)
    out: Any = None
    for number, weight in taps:
        part = take(x, number, axis=axis) * reshape(weight.astype(x.dtype), (-1, *behind))
        out = part if out is None else out + part
    return out  # type: ignore[no-any-return]  # there is at least one weight


def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """The input resized along its axes after (batch, channels).

    Give the new sizes or the factors. Modes: "nearest", "nearest-exact" (as other libraries round),
    "linear", "bilinear", "trilinear" for one, two and three axes, "bicubic" for two, and "area",
    the means of windows. `antialias` widens the kernel of "bilinear" and "bicubic" where the image
    shrinks. `align_corners` puts the first and last points of both sizes upon each other.

    >>> image = weft.asarray([[[[1.0, 2.0], [3.0, 4.0]]]])
    >>> weft.nn.functional.interpolate(image, scale_factor=2)[0, 0]
    tensor([[1., 1., 2., 2.],
            [1., 1., 2., 2.],
            [3., 3., 4., 4.],
            [3., 3., 4., 4.]])
    """
    old: Shape = input.shape[2:]
    _check_mode(input, mode, align_corners, antialias)
    new, scales = _new_sizes(old, size, scale_factor, bool(recompute_scale_factor))
    if mode == "area":
        return pool.adaptive_avg_pool(input, tuple(new), axes=len(new))
    out = input
    for i, (before, after, scale) in enumerate(zip(old, new, scales, strict=True)):
        if mode in _WEIGHTED:
            if before != after or scale is not None:
                find = _smoothed if antialias else _weighted
                taps = find(before, after, scale, mode, bool(align_corners), out.device)
                out = _resized(out, i + 2, taps)
        else:
            numbers = _nearest(before, after, scale, mode == "nearest-exact", out.device)
            out = take(out, numbers, axis=i + 2)
    return out


def _check_mode(input: Tensor, mode: str, align_corners: bool | None, antialias: bool) -> None:
    spatial = input.ndim - 2
    if mode not in _MODES:
        raise RangeError(
            f"there is no mode {mode!r} of interpolation",
            op="interpolate",
            hint=f"modes are {', '.join(_MODES)}",
        )
    if not 1 <= spatial <= 3 or _WEIGHTED.get(mode, (spatial,))[0] != spatial:
        wanted = f", but one of {_WEIGHTED[mode][0] + 2}" if mode in _WEIGHTED else ""
        raise ShapeError(
            f"mode {mode!r} does not take an input of {input.ndim} axes{wanted}",
            op="interpolate",
            operands=[type_of(input)],
            hint="axes are (batch, channels, sizes…); the modes for 1, 2, 3 sizes are 'linear', "
            "'bilinear' (or 'bicubic') and 'trilinear'",
        )
    if align_corners is not None and mode not in _WEIGHTED:
        raise RangeError(f"align_corners has no meaning for mode {mode!r}", op="interpolate")
    if antialias and mode not in ("bilinear", "bicubic"):
        raise RangeError(f"antialias takes 'bilinear' or 'bicubic', not {mode!r}", op="interpolate")


def _new_sizes(
    old: Shape, size: Any, scale_factor: Any, recompute: bool
) -> tuple[list[int], list[float | None]]:
    spatial = len(old)
    if (size is None) == (scale_factor is None):
        raise RangeError("give either size or scale_factor", op="interpolate")
    if size is not None:
        new = list(size) if isinstance(size, Sequence) else [size] * spatial
        if len(new) != spatial:
            raise ShapeError(f"{len(new)} sizes for {spatial} axes", op="interpolate")
        scales: list[float | None] = [None] * spatial
    else:
        given = scale_factor if isinstance(scale_factor, Sequence) else [scale_factor] * spatial
        if len(given) != spatial:
            raise ShapeError(f"{len(given)} factors for {spatial} axes", op="interpolate")
        factors = [float(factor) for factor in given]
        new = [_scaled(n, factor) for n, factor in zip(old, factors, strict=True)]
        scales = [None if recompute else factor for factor in factors]
    if any(is_less(n, 1) for n in (*old, *new)):
        raise ShapeError(f"sizes {tuple(old)} cannot become {tuple(new)}", op="interpolate")
    return new, scales


def _scaled(size: int, factor: float) -> int:
    """floor(size * factor); by whole numbers where these are exact: then the size may be any."""
    above, below = factor.as_integer_ratio()
    return size * above // below if above < 1 << 20 else math.floor(size * factor)


def upsample(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """The same as `interpolate`."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` with mode "nearest"."""
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` with mode "bilinear" and `align_corners`."""
    return interpolate(input, size, scale_factor, "bilinear", align_corners=True)


# --- channels for resolution -------------------------------------------------------------------


def _divided(input: Tensor, axis: int, parts: int, op: str) -> int:
    if input.ndim < -axis or input.shape[axis] % parts:
        raise ShapeError(
            f"axis {axis} of a tensor of shape {input.shape} does not fall into {parts} parts",
            op=op,
            operands=[type_of(input)],
        )
    return input.shape[axis] // parts


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(…, channels * r², height, width) as (…, channels, height * r, width * r)."""
    r = upscale_factor
    channels = _divided(input, -3, r * r, "pixel_shuffle")
    *front, _, height, width = input.shape
    n = len(front)
    apart = reshape(input, (*front, channels, r, r, height, width))
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return reshape(permute_dims(apart, order), (*front, channels, height * r, width * r))


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(…, channels, height * r, width * r) as (…, channels * r², height, width)."""
    r = downscale_factor
    height = _divided(input, -2, r, "pixel_unshuffle")
    width = _divided(input, -1, r, "pixel_unshuffle")
    *front, channels = input.shape[:-2]
    n = len(front)
    apart = reshape(input, (*front, channels, height, r, width, r))
    order = (*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return reshape(permute_dims(apart, order), (*front, channels * r * r, height, width))


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """The channels (axis 1) of all groups dealt out in turn, as ShuffleNet mixes them."""
    if input.ndim < 3:
        raise ShapeError(
            f"the input has {input.ndim} axes, not (batch, channels, sizes…)",
            op="channel_shuffle",
            operands=[type_of(input)],
        )
    size = _divided(input, 1 - input.ndim, groups, "channel_shuffle")
    batch, channels, *sizes = input.shape
    apart = reshape(input, (batch, groups, size, *sizes))
    order = (0, 2, 1, *range(3, 3 + len(sizes)))
    return reshape(permute_dims(apart, order), (batch, channels, *sizes))
