"""Images sampled at any points: grid_sample and affine_grid."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from weft.base import dtypes
from weft.base.errors import RangeError, ShapeError
from weft.base.shapes import Shape, size_of
from weft.core.bind import bind
from weft.core.operands import cast
from weft.core.tensor import Tensor, type_of
from weft.ops.creation import arange, linspace, meshgrid, ones, zeros
from weft.ops.elementwise import abs, floor, round
from weft.ops.embedding import embedding
from weft.ops.matmul import matmul
from weft.ops.select import where
from weft.ops.shape import moveaxis, reshape, stack, swapaxes

__all__ = ["affine_grid", "grid_sample"]

_CUBIC = -0.75


def _reflected(at: Tensor, low: float, high: float) -> Tensor:
    """Coordinates folded back between two mirrors."""
    span = high - low
    if span == 0:
        return at * 0
    away = abs(at - low)
    times = floor(away / span)
    rest = away - times * span
    even = times - 2 * floor(times / 2) == 0
    return where(even, rest, span - rest) + low


def _within(at: Tensor, size: int, padding_mode: str, align_corners: bool) -> Tensor:
    """Coordinates as the padding mode takes those that lie outside."""
    if padding_mode == "zeros":
        return at
    if padding_mode == "reflection":
        edge = 0.0 if align_corners else 0.5
        at = _reflected(at, -edge, size - 1 + edge)
    # As PyTorch has it, an edge itself passes no gradient.
    last = float(size - 1)
    return where(at <= 0, 0.0, where(at >= last, last, at))


def _cubic_weights(t: Tensor) -> list[Tensor]:
    """The weights of the elements at -1, 0, 1 and 2 for a point at t from 0 to 1."""
    a = _CUBIC

    def near(d: Tensor) -> Tensor:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Tensor) -> Tensor:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


class _Image:
    """(batch, channels, sizes…) as rows of channels, which are taken by number."""

    def __init__(self, input: Tensor) -> None:
        self.sizes: Shape = input.shape[2:]
        batch, channels = input.shape[:2]
        rows = moveaxis(input, 1, -1)
        self.rows = reshape(rows, (batch * size_of(self.sizes), channels))
        self.batch = batch

    def at(self, places: Sequence[Tensor]) -> Tensor:
        """The channels at whole coordinates, of which those outside give zeros."""
        inside: Any = None
        number: Any = None
        for place, size in zip(places, self.sizes, strict=True):
            own = (place >= 0) & (place <= size - 1)
            inside = own if inside is None else inside & own
            whole = cast(where(own, place, 0.0), dtypes.int64)
            number = whole if number is None else number * size + whole
        first = arange(self.batch, device=number.device) * size_of(self.sizes)
        number = number + reshape(first, (-1, *(1,) * (number.ndim - 1)))
        found = bind(embedding, self.rows, number, padding_idx=None)
        return where(inside[..., None], found, 0.0)


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """The image at the points of a grid: -1 and 1 are its edges.

    input   (batch, channels, height, width), or with a depth in front of the height
    grid    (batch, new sizes…, 2 or 3): the points as (x, y) or (x, y, z)

    Modes: "bilinear" (trilinear for volumes), "nearest", "bicubic". What lies outside: "zeros",
    "border" or "reflection". With `align_corners`, -1 and 1 are the centres of the outermost
    elements in place of their outer edges.
    """
    axes = input.ndim - 2
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise RangeError(f"there is no mode {mode!r} of sampling", op="grid_sample")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise RangeError(f"there is no padding_mode {padding_mode!r}", op="grid_sample")
    if (
        axes not in (2, 3)
        or grid.ndim != input.ndim
        or grid.shape[-1] != axes
        or grid.shape[0] != input.shape[0]
        or (mode == "bicubic" and axes != 2)
        or any(n == 0 for n in input.shape[2:])
    ):
        raise ShapeError(
            f"an input of shape {input.shape} cannot be sampled ({mode}) at a grid of shape "
            f"{grid.shape}",
            op="grid_sample",
            operands=[type_of(input), type_of(grid)],
            hint="a grid has shape (batch, height, width, 2), or (batch, depth, height, width, 3)",
        )
    image, corners = _Image(input), bool(align_corners)
    places = []
    for axis, size in enumerate(image.sizes):
        given = grid[..., axes - 1 - axis]
        at = (given + 1) / 2 * (size - 1) if corners else ((given + 1) * size - 1) / 2
        if mode != "bicubic":
            at = _within(at, size, padding_mode, corners)
        places.append(at)
    if mode == "nearest":
        return moveaxis(image.at([round(at) for at in places]), -1, 1)
    low = [floor(at) for at in places]
    shares = [at - least for at, least in zip(places, low, strict=True)]
    if mode == "bilinear":
        weights = [[1 - share, share] for share in shares]
        taps = [0.0, 1.0]
    else:
        weights = [_cubic_weights(share) for share in shares]
        taps = [-1.0, 0.0, 1.0, 2.0]
    out: Any = None
    for choice in itertools.product(range(len(taps)), repeat=axes):
        near = [least + taps[k] for least, k in zip(low, choice, strict=True)]
        if mode == "bicubic":
            sized = zip(near, image.sizes, strict=True)
            near = [_within(at, size, padding_mode, corners) for at, size in sized]
        weight: Any = weights[0][choice[0]]
        for axis in range(1, axes):
            weight = weight * weights[axis][choice[axis]]
        part = image.at(near) * weight[..., None]
        out = part if out is None else out + part
    return moveaxis(out, -1, 1)


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The grid for `grid_sample` that an affine map makes of an image's own points.

    theta   (batch, 2, 3) for images, (batch, 3, 4) for volumes
    size    the shape of the result of `grid_sample`: (batch, channels, sizes…)

    >>> same = weft.asarray([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    >>> weft.nn.functional.affine_grid(same, (1, 1, 1, 2))
    tensor([[[[-0.5,  0. ],
              [ 0.5,  0. ]]]])
    """
    sizes = tuple(size)[2:]
    axes = len(sizes)
    if axes not in (2, 3) or theta.ndim != 3 or theta.shape != (size[0], axes, axes + 1):
        raise ShapeError(
            f"theta of shape {theta.shape} is no map for images of shape {tuple(size)}",
            op="affine_grid",
            operands=[type_of(theta)],
            hint="theta has shape (batch, 2, 3) for images, (batch, 3, 4) for volumes",
        )
    as_wide: Any = {"dtype": dtypes.float64, "device": theta.device}
    lines = []
    for n in sizes:
        line = linspace(-1.0, 1.0, n, **as_wide) if n > 1 else zeros(n, **as_wide)
        lines.append(line if align_corners else line * (n - 1) / n)
    points = meshgrid(*lines, indexing="ij")
    base = reshape(stack([*reversed(points), ones(sizes, **as_wide)], axis=-1), (-1, axes + 1))
    grid = matmul(cast(base, theta.dtype), swapaxes(theta, 1, 2))
    return reshape(grid, (size[0], *sizes, axes))
