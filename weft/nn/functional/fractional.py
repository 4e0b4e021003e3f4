"""Fractional max pooling: windows at random distances that make any size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base import dtypes
from weft.base.errors import RangeError, ShapeError
from weft.base.shapes import size_of
from weft.core.operands import cast
from weft.core.tensor import Tensor, type_of
from weft.ops.creation import arange, full
from weft.ops.elementwise import trunc
from weft.ops.index import take_along_axis
from weft.ops.random import uniform
from weft.ops.reduce import argmax
from weft.ops.shape import broadcast_to, concat, expand_dims, permute_dims, reshape, squeeze
from weft.ops.windows import per_axis

__all__ = ["fractional_max_pool2d", "fractional_max_pool3d"]

Sizes = int | Sequence[int]


def _starts(sample: Tensor, size: int, taps: int, count: int) -> Tensor:
    """Where the windows of each plane begin: (planes, count), from one random number each."""
    last = full((sample.shape[0], 1), size - taps, dtype=dtypes.int64, device=sample.device)
    if count == 1:
        return last
    step = (size - taps) / (count - 1)
    numbers = arange(count - 1, device=sample.device)
    found = trunc((cast(numbers, sample.dtype) + sample[:, None]) * step) - trunc(
        sample[:, None] * step
    )
    return concat([cast(found, dtypes.int64), last], axis=1)


def _fractional(axes: int) -> Callable[..., Any]:
    name = f"fractional_max_pool{axes}d"

    def function(
        input: Tensor,
        kernel_size: Sizes,
        output_size: Sizes | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> Any:
        """The largest element of each window; windows begin at random distances (Graham, 2014)."""
        if input.ndim not in (axes + 1, axes + 2):
            raise ShapeError(
                f"the input has {input.ndim} axes, not {axes + 2}, or {axes + 1} without a batch",
                op=name,
                operands=[type_of(input)],
            )
        kernel = per_axis(kernel_size, axes, "kernel_size", name, least=1)
        front, sizes = input.shape[:-axes], input.shape[-axes:]
        counts = _counts(output_size, output_ratio, sizes, axes, name)
        wrong = [n + k - 1 > size for n, k, size in zip(counts, kernel, sizes, strict=True)]
        if any(wrong):
            raise RangeError(f"{counts} windows of {kernel} do not fit into {sizes}", op=name)
        planes = size_of(front)
        if _random_samples is None:
            shape = (planes, axes)
            samples = cast(uniform(0.0, 1.0, shape, device=input.device), dtypes.float64)
        else:
            samples = reshape(_random_samples, (planes, axes))
        x, places = reshape(input, (planes, *sizes)), []
        for axis in range(axes):
            # PyTorch's samples of two axes are those of width and height, in this order.
            sample = samples[:, axis if axes == 3 else 1 - axis]
            starts = _starts(sample, sizes[axis], kernel[axis], counts[axis])
            rows = expand_dims(starts, -1) + arange(kernel[axis], device=input.device)
            along = [planes] + [1] * axes
            along[axis + 1] = counts[axis] * kernel[axis]
            rows = reshape(rows, tuple(along))
            wanted = (*x.shape[: axis + 1], along[axis + 1], *x.shape[axis + 2 :])
            x = take_along_axis(x, broadcast_to(rows, wanted), axis=axis + 1)
            places.append(rows)
        at: Any = None  # the number of each element in its plane
        for rows, size in zip(places, sizes, strict=True):
            at = rows if at is None else at * size + rows
        windows, numbers = (_windows(t, counts, kernel) for t in (x, broadcast_to(at, x.shape)))
        best = expand_dims(argmax(windows.detach(), axis=-1), -1)
        out = reshape(squeeze(take_along_axis(windows, best, axis=-1), -1), (*front, *counts))
        if not return_indices:
            return out
        found = squeeze(take_along_axis(numbers, best, axis=-1), -1)
        return out, reshape(found, (*front, *counts))

    function.__name__ = function.__qualname__ = name
    return function


def _windows(x: Tensor, counts: Any, kernel: Any) -> Tensor:
    """(planes, counts * kernel…) as (planes, counts…, all taps)."""
    pairs = [n for pair in zip(counts, kernel, strict=True) for n in pair]
    axes = len(counts)
    order = (0, *range(1, 2 * axes, 2), *range(2, 2 * axes + 1, 2))
    apart = permute_dims(reshape(x, (x.shape[0], *pairs)), order)
    return reshape(apart, (x.shape[0], *counts, size_of(kernel)))


def _counts(output_size: Any, output_ratio: Any, sizes: Any, axes: int, op: str) -> Any:
    if (output_size is None) == (output_ratio is None):
        raise RangeError("give either output_size or output_ratio", op=op)
    if output_size is not None:
        return per_axis(output_size, axes, "output_size", op, least=1)
    ratios = output_ratio if isinstance(output_ratio, Sequence) else [output_ratio] * axes
    if len(ratios) != axes or not all(0 < ratio < 1 for ratio in ratios):
        raise RangeError(f"output_ratio is between 0 and 1, not {output_ratio}", op=op)
    return tuple(int(n * ratio) for n, ratio in zip(sizes, ratios, strict=True))


fractional_max_pool2d, fractional_max_pool3d = map(_fractional, (2, 3))
