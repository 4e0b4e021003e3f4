"""Convolutions: type rules, and reference evaluations tap by tap."""

from __future__ import annotations

import itertools
from typing import Any

from weft.base.errors import ShapeError
from weft.base.shapes import Shape, size_of
from weft.ir.types import TensorType
from weft.ops.rules import check_kind, check_same
from weft.ops.windows import Padding, sliding_shape, taps, windows_of

# --- type rules --------------------------------------------------------------------------------


def result_sizes(
    image: Shape,
    weight: Shape,
    stride: Shape,
    padding: Padding,
    dilation: Shape,
    groups: int,
) -> Shape:
    """The shape (outputs, *counts) for an image (channels, *sizes), or an error."""
    if len(image) != len(weight) - 1 or len(image) < 2:
        raise ShapeError(
            f"a weight of shape {weight} takes inputs of {len(weight)} axes "
            f"(batch, channels, sizes…), not {len(image) + 1}"
        )
    outputs, channels, *kernel = weight
    if groups < 1 or image[0] % groups != 0 or outputs % groups != 0:
        raise ShapeError(
            f"{image[0]} input and {outputs} output channels do not divide into {groups} groups"
        )
    if channels * groups != image[0]:
        each = f" in each of {groups} groups" if groups > 1 else ""
        raise ShapeError(
            f"the weight of shape {weight} takes {channels} input channels{each}; "
            f"the input has {image[0]}",
            hint="the second axis of the weight has the size in_channels / groups",
        )
    return (outputs, *sliding_shape(image[1:], tuple(kernel), stride, dilation, padding))


def check_bias(bias: Shape, weight: Shape) -> None:
    if bias != weight[:1]:
        raise ShapeError(f"the bias has shape {bias}, not {weight[:1]}: one number for each output")


def conv_type(
    x: TensorType,
    weight: TensorType,
    *,
    stride: Shape,
    padding: Padding,
    dilation: Shape,
    groups: int,
) -> TensorType:
    check_same(x, weight)
    check_kind(x, "numeric")
    made = result_sizes(x.shape[1:], weight.shape, stride, padding, dilation, groups)
    return x.like(shape=(*x.shape[:1], *made))


def conv_bias_type(
    x: TensorType,
    weight: TensorType,
    bias: TensorType,
    *,
    stride: Shape,
    padding: Padding,
    dilation: Shape,
    groups: int,
) -> TensorType:
    check_same(x, bias)
    check_bias(bias.shape, weight.shape)
    return conv_type(x, weight, stride=stride, padding=padding, dilation=dilation, groups=groups)


def conv_input_type(
    g: TensorType,
    weight: TensorType,
    *,
    size: Shape,
    stride: Shape,
    padding: Padding,
    dilation: Shape,
    groups: int,
) -> TensorType:
    check_same(g, weight)
    check_kind(g, "numeric")
    image = (weight.shape[1] * groups, *size)
    made = result_sizes(image, weight.shape, stride, padding, dilation, groups)
    if g.shape[1:] != made:
        raise ShapeError(f"from {image}, a convolution makes {made}, not {g.shape[1:]}")
    return g.like(shape=(g.shape[0], *image))


def conv_weight_type(
    x: TensorType,
    g: TensorType,
    *,
    size: Shape,
    stride: Shape,
    padding: Padding,
    dilation: Shape,
    groups: int,
) -> TensorType:
    check_same(x, g)
    check_kind(x, "numeric")
    weight = (g.shape[1], x.shape[1] // groups, *size)
    made = result_sizes(x.shape[1:], weight, stride, padding, dilation, groups)
    if g.shape != (x.shape[0], *made):
        raise ShapeError(
            f"from {x.shape}, a convolution makes {(x.shape[0], *made)}, not {g.shape}"
        )
    return x.like(shape=weight)


# --- reference evaluation: tap by tap, for any namespace ---------------------------------------


def _padded(xp: Any, x: Any, padding: Padding) -> Any:
    """x with its padding of zeros, which are multiplied like other numbers; negative padding
    removes elements."""
    if not any(low or high for low, high in padding):
        return x
    taken = [slice(max(-low, 0), size - max(-high, 0)) for size, (low, high) in zip(
        x.shape[2:], padding, strict=True)]  # fmt: skip
    x = x[(..., *taken)]
    sides = [(max(low, 0), max(high, 0)) for low, high in padding]
    sizes = [size + low + high for size, (low, high) in zip(x.shape[2:], sides, strict=True)]
    out = xp.zeros((*x.shape[:2], *sizes), dtype=x.dtype)
    inner = [slice(low, low + size) for size, (low, _) in zip(x.shape[2:], sides, strict=True)]
    out[(..., *inner)] = x
    return out


def _unpadded(padding: Padding) -> Padding:
    return ((0, 0),) * len(padding)


def _tap_slices(
    sizes: Shape, kernel: Shape, stride: Shape, padding: Padding, dilation: Shape
) -> Any:
    """For each tap: its index in the kernel, the windows that use it, the elements it reads."""
    places = itertools.product(*map(range, kernel))
    windows = windows_of(sizes, kernel, stride, dilation, padding)
    return zip(places, taps(windows), strict=True)


def _grouped(xp: Any, x: Any, groups: int, axis: int) -> Any:
    """The channels of an axis as two axes: groups, and channels of a group."""
    sizes = (groups, x.shape[axis] // groups)
    return xp.reshape(x, (*x.shape[:axis], *sizes, *x.shape[axis + 1 :]))


def _matrices(xp: Any, x: Any) -> Any:
    """(batch, groups, channels, *sizes) with the sizes merged into one axis."""
    return xp.reshape(x, (*x.shape[:3], size_of(x.shape[3:])))


def evaluate(
    xp: Any,
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    stride: Shape,
    padding: Padding,
    dilation: Shape,
    groups: int,
) -> Any:
    made = result_sizes(x.shape[1:], weight.shape, stride, padding, dilation, groups)
    x, padding = _padded(xp, x, padding), _unpadded(padding)
    inputs, w = _grouped(xp, x, groups, 1), _grouped(xp, weight, groups, 0)
    out = xp.zeros((x.shape[0], groups, made[0] // groups, *made[1:]), dtype=x.dtype)
    for place, (outside, inside) in _tap_slices(
        x.shape[2:], weight.shape[2:], stride, padding, dilation
    ):
        product = xp.matmul(w[(..., *place)], _matrices(xp, inputs[inside]))
        out[outside] += xp.reshape(product, out[outside].shape)
    out = xp.reshape(out, (x.shape[0], *made))
    return out if bias is None else out + xp.reshape(bias, (-1, *(1 for _ in made[1:])))


def evaluate_input(
    xp: Any,
    g: Any,
    weight: Any,
    *,
    size: Shape,
    stride: Shape,
    padding: Padding,
    dilation: Shape,
    groups: int,
) -> Any:
    outputs, w = _grouped(xp, g, groups, 1), _grouped(xp, weight, groups, 0)
    channels = weight.shape[1]
    out = xp.zeros((g.shape[0], groups, channels, *size), dtype=g.dtype)
    for place, (outside, inside) in _tap_slices(size, weight.shape[2:], stride, padding, dilation):
        product = xp.matmul(w[(..., *place)].mT, _matrices(xp, outputs[outside]))
        out[inside] += xp.reshape(product, out[inside].shape)
    return xp.reshape(out, (g.shape[0], groups * channels, *size))


def evaluate_weight(
    xp: Any,
    x: Any,
    g: Any,
    *,
    size: Shape,
    stride: Shape,
    padding: Padding,
    dilation: Shape,
    groups: int,
) -> Any:
    x, padding = _padded(xp, x, padding), _unpadded(padding)
    inputs, outputs = _grouped(xp, x, groups, 1), _grouped(xp, g, groups, 1)
    out = xp.zeros((groups, outputs.shape[2], inputs.shape[2], *size), dtype=x.dtype)
    for place, (outside, inside) in _tap_slices(x.shape[2:], size, stride, padding, dilation):
        left, right = _matrices(xp, outputs[outside]), _matrices(xp, inputs[inside])
        out[(..., *place)] = xp.sum(xp.matmul(left, right.mT), axis=0, dtype=x.dtype)
    return xp.reshape(out, (g.shape[1], inputs.shape[2], *size))
