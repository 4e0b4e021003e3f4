"""Convolutions and pooling over one, two or three spatial axes, under PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base.errors import ShapeError
from weft.core.tensor import Tensor, type_of
from weft.ops import conv, pool

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "max_pool1d",
    "max_pool1d_with_indices",
    "max_pool2d",
    "max_pool2d_with_indices",
    "max_pool3d",
    "max_pool3d_with_indices",
]

Sizes = int | Sequence[int]
Function = Callable[..., Any]
_AXES = {1: "(length)", 2: "(height, width)", 3: "(depth, height, width)"}


def _named(function: Function, name: str, axes: int) -> Function:
    function.__name__ = function.__qualname__ = f"{name}{axes}d"
    function.__doc__ = f"{(function.__doc__ or '').strip()} Spatial axes: {_AXES[axes]}."
    return function


def _check_weight(input: Tensor, weight: Tensor, axes: int, op: str) -> None:
    if weight.ndim != axes + 2:
        raise ShapeError(
            f"the weight has {weight.ndim} axes, not {axes + 2}",
            op=op,
            operands=[type_of(input), type_of(weight)],
        )


def _conv(axes: int) -> Function:
    def function(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
    ) -> Tensor:
        """Weighted sums over windows that slide along the last axes."""
        _check_weight(input, weight, axes, f"conv{axes}d")
        return conv.conv(input, weight, bias, stride, padding, dilation, groups)

    return _named(function, "conv", axes)


def _conv_transpose(axes: int) -> Function:
    def function(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        dilation: Sizes = 1,
    ) -> Tensor:
        """The transpose of a convolution: each element is spread over a window of the result."""
        _check_weight(input, weight, axes, f"conv_transpose{axes}d")
        return conv.conv_transpose(
            input, weight, bias, stride, padding, output_padding, groups, dilation
        )

    return _named(function, "conv_transpose", axes)


def _max_pool(axes: int) -> Function:
    def function(
        input: Tensor,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        """The largest element of each window, and with `return_indices` where it lies."""
        return pool.max_pool(
            input, kernel_size, stride, padding, dilation, ceil_mode, return_indices, axes=axes
        )

    return _named(function, "max_pool", axes)


def _avg_pool(axes: int) -> Function:
    def function(
        input: Tensor,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        """The mean of each window."""
        return pool.avg_pool(
            input,
            kernel_size,
            stride,
            padding,
            ceil_mode,
            count_include_pad,
            divisor_override,
            axes=axes,
        )

    return _named(function, "avg_pool", axes)


def _adaptive_max_pool(axes: int) -> Function:
    def function(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        """The largest elements of `output_size` windows that share each axis evenly."""
        return pool.adaptive_max_pool(input, output_size, return_indices, axes=axes)

    return _named(function, "adaptive_max_pool", axes)


def _adaptive_avg_pool(axes: int) -> Function:
    def function(input: Tensor, output_size: Any) -> Tensor:
        """The means of `output_size` windows that share each axis evenly."""
        return pool.adaptive_avg_pool(input, output_size, axes=axes)

    return _named(function, "adaptive_avg_pool", axes)


conv1d, conv2d, conv3d = map(_conv, (1, 2, 3))
conv_transpose1d, conv_transpose2d, conv_transpose3d = map(_conv_transpose, (1, 2, 3))
max_pool1d, max_pool2d, max_pool3d = map(_max_pool, (1, 2, 3))
avg_pool1d, avg_pool2d, avg_pool3d = map(_avg_pool, (1, 2, 3))
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = map(_adaptive_max_pool, (1, 2, 3))


def _with_indices(pooled: Function) -> Function:
    def function(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        return pooled(input, *args, **{**kwargs, "return_indices": True})

    function.__name__ = function.__qualname__ = f"{pooled.__name__}_with_indices"
    function.__doc__ = f"`{pooled.__name__}` with `return_indices`."
    return function


max_pool1d_with_indices = _with_indices(max_pool1d)
max_pool2d_with_indices = _with_indices(max_pool2d)
max_pool3d_with_indices = _with_indices(max_pool3d)
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = map(_adaptive_avg_pool, (1, 2, 3))
