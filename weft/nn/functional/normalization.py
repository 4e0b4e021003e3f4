"""Normalization: mean 0 and variance 1 over some axes, then a learned scale and shift."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.dim_algebra import Dim
from weft.base.dtypes import NARROW_FLOATS, float32, float_info
from weft.base.errors import ShapeError
from weft.base.shapes import Shape, size_of
from weft.core.autocast import autocasts
from weft.core.bind import bind
from weft.core.composite import composite
from weft.core.grad_mode import no_grad
from weft.core.operands import assign, cast, constant
from weft.core.tensor import Tensor, type_of
from weft.ops import neural
from weft.ops.elementwise import sqrt, square
from weft.ops.reduce import mean
from weft.ops.select import where
from weft.ops.shape import reshape

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm"]

Statistics = tuple[Tensor, Tensor, Tensor]


def _standardized(x: Tensor, axis: tuple[int, ...], eps: float) -> Statistics:
    """x with mean 0 and variance 1 along some axes, its mean and its variance."""
    found: Statistics = bind(neural.standardize, x, axis=axis, eps=float(eps))
    return found


def _last_axes(input: Tensor, normalized_shape: Sequence[int], op: str, **given: Any) -> Shape:
    shape = tuple(normalized_shape)
    if not shape or input.shape[-len(shape) :] != shape:
        raise ShapeError(
            f"the input of shape {input.shape} does not end in {shape}",
            op=op,
            operands=[type_of(input)],
            hint="make the layer with the sizes of the input's last axes",
        )
    for name, tensor in given.items():
        if tensor is not None and tensor.shape != shape:
            raise ShapeError(f"the {name} has shape {tensor.shape}, not {shape}", op=op)
    return shape


@autocasts("float32")
@composite
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Each sample by itself, over its last axes."""
    shape = _last_axes(input, normalized_shape, "layer_norm", weight=weight, bias=bias)
    axis = tuple(range(input.ndim - len(shape), input.ndim))
    out = _standardized(input, axis, eps)[0]
    if weight is not None:
        out = out * weight
    return out if bias is None else out + bias


@autocasts("float32")
@composite
def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """The input divided by the root of its mean square over its last axes."""
    shape = _last_axes(input, normalized_shape, "rms_norm", weight=weight)
    axis = tuple(range(-len(shape), 0))
    x = cast(input, float32) if input.dtype in NARROW_FLOATS else input
    small = float_info(x.dtype).eps if eps is None else eps
    out = cast(x / sqrt(mean(square(x), axis=axis, keepdims=True) + small), input.dtype)
    return out if weight is None else out * weight


@composite
def _by_channel(
    out: Tensor, weight: Tensor | None, bias: Tensor | None, op: str, channels: int
) -> Tensor:
    """Scaled and shifted, with one number for each channel (axis 1)."""
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.shape != (channels,):
            raise ShapeError(
                f"the {name} has shape {tensor.shape}; the input has {channels} channels",
                op=op,
                operands=[type_of(out), type_of(tensor)],
                hint="make the layer for as many channels as axis 1 of the input has",
            )
    if out.ndim > 2:
        spread = (channels, *(1,) * (out.ndim - 2))
        weight, bias = (None if t is None else reshape(t, spread) for t in (weight, bias))
    if weight is not None:
        out = out * weight
    return out if bias is None else out + bias


@autocasts("float32")
@composite
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Each sample by itself, over groups of channels."""
    channels = _channels(input, "group_norm")
    if num_groups < 1 or channels % num_groups:
        raise ShapeError(
            f"{channels} channels do not fall into {num_groups} groups",
            op="group_norm",
            operands=[type_of(input)],
        )
    size = size_of(input.shape[1:]) // num_groups
    groups = reshape(input, (input.shape[0], num_groups, size))
    out = reshape(_standardized(groups, (2,), eps)[0], input.shape)
    return _by_channel(out, weight, bias, "group_norm", channels)


def _channels(input: Tensor, op: str) -> int:
    if input.ndim < 2:
        raise ShapeError(
            f"the input has shape {input.shape}; its axes are (batch, channels, …)", op=op
        )
    return input.shape[1]


def _as_wide(input: Tensor, *parameters: Tensor | None) -> Tensor:
    """A narrow input as float32, where the layer's numbers are: it is rounded once, at the end."""
    if input.dtype in NARROW_FLOATS and any(
        p is not None and p.dtype is float32 for p in parameters
    ):
        return cast(input, float32)
    return input


def _learned(running: Tensor | None, seen: Tensor, momentum: Any, op: str) -> None:
    """Move a running statistic towards what was seen."""
    if running is not None:
        new = running * (1 - momentum) + cast(seen, running.dtype) * momentum
        assign(running, new, op)


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Each channel (axis 1) over the whole batch; in training the running statistics learn.

    Otherwise the running statistics are used in place of the batch's own.
    """
    channels = _channels(input, "batch_norm")
    dtype = input.dtype
    input = _as_wide(input, weight, running_mean)
    spread = (channels, *(1,) * (input.ndim - 2))
    if training:
        count = size_of((input.shape[0], *input.shape[2:])) if channels != 0 else 0
        if count == 1:
            raise ShapeError(
                f"one value for each channel has no variance: the input has shape {input.shape}",
                op="batch_norm",
                hint="train with larger batches, or call eval() on the model",
            )
        axis = (0, *range(2, input.ndim))
        out, average, variance = _standardized(input, axis, eps)
        if count != 0 and running_mean is not None:
            with no_grad():
                n: Any = count
                share: Any = momentum
                if isinstance(count, Dim):  # of an empty batch, nothing is to be learned
                    n = constant(count, variance.dtype, variance.device)
                    share = where(n > 0, momentum, 0.0)
                _learned(running_mean, reshape(average, (channels,)), share, "batch_norm")
                unbiased = reshape(variance, (channels,)) * (n / (n - 1))
                _learned(running_var, unbiased, share, "batch_norm")
        return cast(_by_channel(out, weight, bias, "batch_norm", channels), dtype)
    if running_mean is None or running_var is None:
        raise ShapeError("without training, running statistics are needed", op="batch_norm")
    if running_mean.shape != (channels,):
        raise ShapeError(
            f"the running statistics are of {running_mean.size} channels; "
            f"the input of shape {input.shape} has {channels}",
            op="batch_norm",
            operands=[type_of(input)],
            hint="make the layer for as many channels as axis 1 of the input has",
        )
    # Scale and shift are put together first: they are small, the input is not.
    scale = 1 / sqrt(running_var + eps)
    if weight is not None:
        scale = scale * weight
    shift = -running_mean * scale
    if bias is not None:
        shift = shift + bias
    return cast(input * reshape(scale, spread) + reshape(shift, spread), dtype)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Each channel of each sample by itself."""
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    channels = _channels(input, "instance_norm")
    dtype = input.dtype
    input = _as_wide(input, weight, running_mean)
    count = size_of(input.shape[2:])
    if count == 1:
        raise ShapeError(
            f"one value for each channel has no variance: the input has shape {input.shape}",
            op="instance_norm",
        )
    out, average, variance = _standardized(input, tuple(range(2, input.ndim)), eps)
    if running_mean is not None and input.size:
        with no_grad():
            rows = (input.shape[0], channels)
            _learned(running_mean, mean(reshape(average, rows), axis=0), momentum, "instance_norm")
            unbiased = reshape(variance, rows) * (count / (count - 1))
            _learned(running_var, mean(unbiased, axis=0), momentum, "instance_norm")
    return cast(_by_channel(out, weight, bias, "instance_norm", channels), dtype)
