"""Pooling layers over one, two or three spatial axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.core.tensor import Tensor
from weft.nn.module import Module
from weft.ops import pool

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
]

Sizes = int | Sequence[int]


class _MaxPool(Module):
    _axes = 0

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Any:
        return pool.max_pool(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
            axes=self._axes,
        )

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPool):
    """The largest element of each window along (batch, channels, length)."""

    _axes = 1


class MaxPool2d(_MaxPool):
    """The largest element of each window along (batch, channels, height, width)."""

    _axes = 2


class MaxPool3d(_MaxPool):
    """The largest element of each window along (batch, channels, depth, height, width)."""

    _axes = 3


class _AvgPool(Module):
    _axes = 0

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        return pool.avg_pool(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
            axes=self._axes,
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPool):
    """The mean of each window along (batch, channels, length)."""

    _axes = 1


class AvgPool2d(_AvgPool):
    """The mean of each window along (batch, channels, height, width)."""

    _axes = 2


class AvgPool3d(_AvgPool):
    """The mean of each window along (batch, channels, depth, height, width)."""

    _axes = 3


class _AdaptivePool(Module):
    _axes = 0

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Any:
        return pool.adaptive_avg_pool(input, self.output_size, axes=self._axes)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptivePool):
    """The means of `output_size` windows that share the length evenly."""

    _axes = 1


class AdaptiveAvgPool2d(_AdaptivePool):
    """The means of `output_size` windows that share height and width evenly."""

    _axes = 2


class AdaptiveAvgPool3d(_AdaptivePool):
    """The means of `output_size` windows that share depth, height and width evenly."""

    _axes = 3


class _AdaptiveMaxPool(_AdaptivePool):
    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        return pool.adaptive_max_pool(input, self.output_size, self.return_indices, axes=self._axes)


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The largest elements of `output_size` windows that share the length evenly."""

    _axes = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The largest elements of `output_size` windows that share height and width evenly."""

    _axes = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The largest elements of `output_size` windows that share all three axes evenly."""

    _axes = 3
