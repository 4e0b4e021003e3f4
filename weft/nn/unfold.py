"""Layers over sliding blocks: Unfold, Fold, what undoes max pooling, and other norms of windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.core.tensor import Tensor
from weft.nn import functional as F
from weft.nn.module import Module

__all__ = [
    "Fold",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "LocalResponseNorm",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
    "Unfold",
]

Sizes = int | Sequence[int]


class Unfold(Module):
    """Sliding blocks of (batch, channels, height, width) as columns."""

    def __init__(
        self, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, "
            f"stride={self.stride}"
        )


class Fold(Unfold):
    """The transpose of Unfold: blocks laid back to their places, and added up."""

    def __init__(
        self,
        output_size: Sizes,
        kernel_size: Sizes,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        stride: Sizes = 1,
    ) -> None:
        super().__init__(kernel_size, dilation, padding, stride)
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        options = (self.kernel_size, self.dilation, self.padding, self.stride)
        return F.fold(input, self.output_size, *options)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}, {super().extra_repr()}"


class _MaxUnpool(Module):
    _function = staticmethod(F.max_unpool1d)

    def __init__(self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding

    def forward(
        self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None
    ) -> Tensor:
        out: Tensor = self._function(
            input, indices, self.kernel_size, self.stride, self.padding, output_size
        )
        return out

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """Elements laid back to where MaxPool1d with `return_indices` took them."""


class MaxUnpool2d(_MaxUnpool):
    """Elements laid back to where MaxPool2d with `return_indices` took them."""

    _function = staticmethod(F.max_unpool2d)


class MaxUnpool3d(_MaxUnpool):
    """Elements laid back to where MaxPool3d with `return_indices` took them."""

    _function = staticmethod(F.max_unpool3d)


class _LPPool(Module):
    _function = staticmethod(F.lp_pool1d)

    def __init__(
        self,
        norm_type: float,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        out: Tensor = self._function(
            input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode
        )
        return out

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPool):
    """The p-norm of each window along the length."""


class LPPool2d(_LPPool):
    """The p-norm of each window along height and width."""

    _function = staticmethod(F.lp_pool2d)


class LPPool3d(_LPPool):
    """The p-norm of each window along depth, height and width."""

    _function = staticmethod(F.lp_pool3d)


class _FractionalMaxPool(Module):
    _random_samples: Tensor | None
    _function = staticmethod(F.fractional_max_pool2d)

    def __init__(
        self,
        kernel_size: Sizes,
        output_size: Sizes | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.output_size = output_size
        self.output_ratio = output_ratio
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)

    def forward(self, input: Tensor) -> Any:
        options = (self.output_size, self.output_ratio, self.return_indices)
        return self._function(input, self.kernel_size, *options, self._random_samples)

    def extra_repr(self) -> str:
        wanted = f"output_size={self.output_size}"
        if self.output_size is None:
            wanted = f"output_ratio={self.output_ratio}"
        return f"kernel_size={self.kernel_size}, {wanted}"


class FractionalMaxPool2d(_FractionalMaxPool):
    """The largest elements of windows at random distances, along height and width."""


class FractionalMaxPool3d(_FractionalMaxPool):
    """The largest elements of windows at random distances, along three axes."""

    _function = staticmethod(F.fractional_max_pool3d)


class LocalResponseNorm(Module):
    """input / (k + alpha * mean of squares of `size` neighbouring channels) ** beta."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
