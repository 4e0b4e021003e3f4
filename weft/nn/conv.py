"""Convolution layers over one, two or three spatial axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft.base.errors import RangeError, ShapeError
from weft.base.shapes import Shape
from weft.core.tensor import Tensor, type_of
from weft.nn import functional as F
from weft.nn import init
from weft.nn.module import Module
from weft.nn.parameter import Parameter
from weft.ops import conv
from weft.ops.creation import empty

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
]

Sizes = int | Sequence[int]
_MODES = ("zeros", "reflect", "replicate", "circular")


def _each(value: Sizes, axes: int, name: str) -> Shape:
    sizes = (value,) * axes if isinstance(value, int) else tuple(value)
    if len(sizes) != axes:
        raise ShapeError(f"{name} {sizes} is not one int, nor one for each of {axes} axes")
    return sizes


class _Conv(Module):
    """What all convolutions share: their sizes, weight and bias."""

    weight: Parameter
    bias: Parameter | None
    padding: Shape | str
    _axes = 0
    transposed = False

    def _make(
        self,
        channels: tuple[int, int],
        kernel_size: Sizes,
        stride: Sizes,
        padding: Sizes | str,
        output_padding: Sizes,
        dilation: Sizes,
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any,
        dtype: Any,
    ) -> None:
        inputs, outputs = channels
        if groups < 1 or inputs % groups or outputs % groups:
            raise RangeError(
                f"{inputs} and {outputs} channels do not fall into {groups} groups",
                op=type(self).__name__,
            )
        if padding_mode not in _MODES or (self.transposed and padding_mode != "zeros"):
            raise RangeError(
                f"there is no padding_mode {padding_mode!r} here", op=type(self).__name__
            )
        axes = self._axes
        self.in_channels = inputs
        self.out_channels = outputs
        self.kernel_size = _each(kernel_size, axes, "kernel_size")
        self.stride = _each(stride, axes, "stride")
        self.padding = padding if isinstance(padding, str) else _each(padding, axes, "padding")
        self.dilation = _each(dilation, axes, "dilation")
        self.output_padding = _each(output_padding, axes, "output_padding")
        self.groups = groups
        self.padding_mode = padding_mode
        first, second = (inputs, outputs) if self.transposed else (outputs, inputs)
        shape = (first, second // groups, *self.kernel_size)
        self.weight = Parameter(empty(shape, dtype=dtype, device=device))
        shift = Parameter(empty(outputs, dtype=dtype, device=device)) if bias else None
        self.register_parameter("bias", shift)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new first values, as PyTorch does."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan, _ = init.fans(self.weight)
            if fan:
                init.uniform_(self.bias, -1 / math.sqrt(fan), 1 / math.sqrt(fan))

    def extra_repr(self) -> str:
        parts = [
            f"{self.in_channels}, {self.out_channels}",
            f"kernel_size={self.kernel_size}",
            f"stride={self.stride}",
        ]
        usual: dict[str, Any] = {
            "padding": (0,) * self._axes,
            "dilation": (1,) * self._axes,
            "output_padding": (0,) * self._axes,
            "groups": 1,
        }
        for name, value in usual.items():
            given = getattr(self, name)
            if given != value:
                parts.append(f"{name}={given}")
        if self.bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join(parts)


class _Convolution(_Conv):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self._make(
            (in_channels, out_channels),
            kernel_size,
            stride,
            padding,
            0,
            dilation,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def forward(self, input: Tensor) -> Tensor:
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._both_ends(), self.padding_mode)
            padding = 0
        return conv.conv(
            input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        )

    def _both_ends(self) -> list[int]:
        """How much to add before and after each axis, from the last one on."""
        if self.padding == "valid":
            return [0] * (2 * self._axes)
        if isinstance(self.padding, str):  # "same"
            sizes = zip(self.kernel_size, self.dilation, strict=True)
            whole = [d * (k - 1) for k, d in sizes]
            pairs = [(n // 2, n - n // 2) for n in whole]
        else:
            pairs = [(n, n) for n in self.padding]
        return [n for pair in reversed(pairs) for n in pair]


class Conv1d(_Convolution):
    """Weighted sums over windows along (batch, channels, length)."""

    _axes = 1


class Conv2d(_Convolution):
    """Weighted sums over windows along (batch, channels, height, width).

    >>> layer = weft.nn.Conv2d(3, 8, 3, padding=1)
    >>> layer(weft.zeros((5, 3, 28, 28))).shape
    (5, 8, 28, 28)
    """

    _axes = 2


class Conv3d(_Convolution):
    """Weighted sums over windows along (batch, channels, depth, height, width)."""

    _axes = 3


class _ConvolutionTranspose(_Conv):
    transposed = True
    padding: Shape

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self._make(
            (in_channels, out_channels),
            kernel_size,
            stride,
            padding,
            output_padding,
            dilation,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        extra = self.output_padding if output_size is None else self._extra(input, output_size)
        return conv.conv_transpose(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            extra,
            self.groups,
            self.dilation,
        )

    def _extra(self, input: Tensor, output_size: Sequence[int]) -> Shape:
        """The output_padding that makes the result as large as asked for."""
        axes = self._axes
        wanted = tuple(output_size)[-axes:]
        found = []
        for i, size in enumerate(input.shape[-axes:]):
            span = self.dilation[i] * (self.kernel_size[i] - 1) + 1
            least = (size - 1) * self.stride[i] - 2 * self.padding[i] + span
            found.append(wanted[i] - least if i < len(wanted) else -1)
        if any(not 0 <= n < s for n, s in zip(found, self.stride, strict=True)):
            raise ShapeError(
                f"an input of shape {input.shape} cannot become {tuple(output_size)}",
                op=type(self).__name__,
                operands=[type_of(input)],
            )
        return tuple(found)


class ConvTranspose1d(_ConvolutionTranspose):
    """The transpose of Conv1d."""

    _axes = 1


class ConvTranspose2d(_ConvolutionTranspose):
    """The transpose of Conv2d."""

    _axes = 2


class ConvTranspose3d(_ConvolutionTranspose):
    """The transpose of Conv3d."""

    _axes = 3
