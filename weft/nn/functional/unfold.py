"""Sliding blocks as columns (`unfold`), back again (`fold`), and what undoes or varies pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base.asked_sizes import is_less
from weft.base.errors import RangeError, ShapeError
from weft.base.shapes import Shape, size_of
from weft.core.bind import bind
from weft.core.tensor import Tensor, labelled, type_of
from weft.nn.functional.checks import below
from weft.nn.functional.padding import pad
from weft.ops import pool
from weft.ops.activations import relu
from weft.ops.creation import arange, zeros
from weft.ops.elementwise import abs, pow, sign
from weft.ops.embedding import row_sums
from weft.ops.index import take
from weft.ops.shape import expand_dims, permute_dims, reshape, squeeze
from weft.ops.windows import per_axis

__all__ = [
    "fold",
    "local_response_norm",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
    "unfold",
]

Sizes = int | Sequence[int]
Function = Callable[..., Any]


class _Blocks:
    """Where the blocks of a sliding window lie on two padded axes."""

    def __init__(
        self, x: Tensor, op: str, sizes: Shape, kernel: Any, dilation: Any, padding: Any, step: Any
    ):
        device = x.device
        self.kernel = per_axis(kernel, 2, "kernel_size", op, least=1)
        dilations = per_axis(dilation, 2, "dilation", op, least=1)
        self.padding = per_axis(padding, 2, "padding", op, least=0)
        strides = per_axis(step, 2, "stride", op, least=1)
        self.sizes = [n + 2 * p for n, p in zip(sizes, self.padding, strict=True)]
        self.counts: list[int] = []
        self.rows: list[Tensor] = []  # (taps, blocks): the place of each tap of each block
        for size, k, d, s in zip(self.sizes, self.kernel, dilations, strides, strict=True):
            count = (size - d * (k - 1) - 1) // s + 1
            if is_less(count, 1):
                raise ShapeError(
                    f"blocks of {self.kernel} with dilation {dilations} do not fit into sizes "
                    f"{tuple(sizes)} with padding {self.padding}",
                    op=op,
                )
            self.counts.append(count)
            taps = arange(k, device=device)[:, None] * d
            self.rows.append(taps + arange(count, device=device) * s)


def unfold(
    input: Tensor,
    kernel_size: Sizes,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    stride: Sizes = 1,
) -> Tensor:
    """Sliding blocks of (batch, channels, height, width) as columns.

    The result has shape (batch, channels * taps, blocks). A convolution is a product with them.

    >>> weft.nn.functional.unfold(weft.zeros((1, 3, 10, 12)), (4, 5)).shape
    (1, 60, 56)
    """
    if input.ndim not in (3, 4):
        raise ShapeError(
            f"the input has {input.ndim} axes, not 4, or 3 without a batch",
            op="unfold",
            operands=[type_of(input)],
        )
    x = expand_dims(input, 0) if input.ndim == 3 else input
    blocks = _Blocks(x, "unfold", x.shape[2:], kernel_size, dilation, padding, stride)
    high, wide = blocks.padding
    if high or wide:
        x = pad(x, (wide, wide, high, high))
    for axis, rows in zip((2, 3), blocks.rows, strict=True):
        x = take(x, reshape(rows, (-1,)), axis=axis)
    batch, channels = x.shape[:2]
    (kh, kw), (oh, ow) = blocks.kernel, blocks.counts
    x = permute_dims(reshape(x, (batch, channels, kh, oh, kw, ow)), (0, 1, 2, 4, 3, 5))
    x = reshape(x, (batch, channels * kh * kw, oh * ow))
    return squeeze(x, 0) if input.ndim == 3 else x


def fold(
    input: Tensor,
    output_size: Sizes,
    kernel_size: Sizes,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    stride: Sizes = 1,
) -> Tensor:
    """The transpose of `unfold`: blocks laid back to their places and added up."""
    if input.ndim not in (2, 3):
        raise ShapeError(
            f"the input has {input.ndim} axes, not 3 (batch, channels * taps, blocks), or 2 "
            "without a batch",
            op="fold",
            operands=[type_of(input)],
        )
    x = expand_dims(input, 0) if input.ndim == 2 else input
    sizes = per_axis(output_size, 2, "output_size", "fold", least=1)
    blocks = _Blocks(x, "fold", sizes, kernel_size, dilation, padding, stride)
    (kh, kw), (oh, ow) = blocks.kernel, blocks.counts
    batch = x.shape[0]
    if x.shape[1] % (kh * kw) or x.shape[2] != oh * ow:
        raise ShapeError(
            f"an input of shape {input.shape} is not made of {kh * kw} taps and {oh * ow} blocks",
            op="fold",
            operands=[type_of(input)],
            hint=f"for output_size {sizes} it has shape (…, channels * {kh * kw}, {oh * ow})",
        )
    channels = x.shape[1] // (kh * kw)
    high, wide = blocks.sizes
    places = blocks.rows[0][:, None, :, None] * wide + blocks.rows[1][None, :, None, :]
    apart = permute_dims(reshape(x, (batch * channels, kh, kw, oh, ow)), (1, 2, 3, 4, 0))
    sums = bind(row_sums, apart, places, rows=high * wide, padding_idx=None)
    out = reshape(permute_dims(sums, (1, 0)), (batch, channels, high, wide))
    top, left = blocks.padding
    out = out[:, :, top : high - top, left : wide - left]
    return squeeze(out, 0) if input.ndim == 2 else out


# --- what undoes max pooling -------------------------------------------------------------------


def _max_unpool(axes: int) -> Function:
    name = f"max_unpool{axes}d"

    def function(
        input: Tensor,
        indices: Tensor,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        output_size: Sequence[int] | None = None,
    ) -> Tensor:
        """Elements laid back to where max pooling took them, and zeros elsewhere."""
        if input.ndim not in (axes + 1, axes + 2) or indices.shape != input.shape:
            raise ShapeError(
                f"the input has shape {input.shape}, the indices {indices.shape}; both have "
                f"{axes + 2} axes, or {axes + 1} without a batch",
                op=name,
                operands=[type_of(input), type_of(indices)],
            )
        kernel = per_axis(kernel_size, axes, "kernel_size", name, least=1)
        step = per_axis(kernel if stride is None else stride, axes, "stride", name, least=1)
        edge = per_axis(padding, axes, "padding", name, least=0)
        front, small = input.shape[:-axes], input.shape[-axes:]
        sizes = tuple(
            (n - 1) * s - 2 * p + k for n, s, p, k in zip(small, step, edge, kernel, strict=True)
        )
        if output_size is not None:
            wanted = tuple(output_size)[-axes:]
            if len(wanted) != axes or any(
                not n - s < w < n + s for n, s, w in zip(sizes, step, wanted, strict=True)
            ):
                raise RangeError(
                    f"output_size {tuple(output_size)} is not within a stride of {sizes}", op=name
                )
            sizes = wanted
        planes, each, large = size_of(front), size_of(small), size_of(sizes)
        first = arange(planes, dtype=indices.dtype, device=input.device)[:, None] * large
        own = below(indices, large, f"an index is none of {large} elements of {sizes}", name)
        places = reshape(reshape(own, (planes, each)) + first, (-1,))
        out = zeros(planes * large, dtype=input.dtype, device=input.device)
        labelled(out, input._result_class)
        out[places] = reshape(input, (-1,))
        return reshape(out, (*front, *sizes))

    function.__name__ = function.__qualname__ = name
    return function


max_unpool1d, max_unpool2d, max_unpool3d = map(_max_unpool, (1, 2, 3))


# --- other norms of windows --------------------------------------------------------------------


def _lp_pool(axes: int) -> Function:
    name = f"lp_pool{axes}d"

    def function(
        input: Tensor,
        norm_type: float,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        ceil_mode: bool = False,
    ) -> Tensor:
        """The p-norm of each window: the p-th root of the sum of p-th powers."""
        taps = size_of(per_axis(kernel_size, axes, "kernel_size", name, least=1))
        powers = pow(input, norm_type)
        means = pool.avg_pool(powers, kernel_size, stride, 0, ceil_mode, True, None, axes=axes)
        return pow(sign(means) * relu(abs(means)) * taps, 1.0 / norm_type)

    function.__name__ = function.__qualname__ = name
    return function


lp_pool1d, lp_pool2d, lp_pool3d = map(_lp_pool, (1, 2, 3))


def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """input / (k + alpha * mean of squares of `size` neighbouring channels) ** beta."""
    if input.ndim < 3:
        raise ShapeError(
            f"the input has {input.ndim} axes, not (batch, channels, sizes…)",
            op="local_response_norm",
            operands=[type_of(input)],
        )
    if not input.size:
        return input
    batch, channels = input.shape[:2]
    squares = reshape(input * input, (batch, 1, channels, size_of(input.shape[2:])))
    squares = pad(squares, (0, 0, size // 2, (size - 1) // 2))
    means = pool.avg_pool(squares, (size, 1), 1, 0, False, True, None, axes=2)
    return input / pow(reshape(means, input.shape) * alpha + k, beta)
