"""Convolution on NumPy arrays: matrix products, and slices copied or added around them.

For a 3 × 3 kernel, the taps along the last axis are unfolded on the input side (3 rows of the
matrix for each channel). The taps along the first axis are unfolded there too, or "split" on the
output side, where 3 shifted results are added. A split moves less memory if there are few outputs
for many inputs. In both forms the three kernels are made of the same parts:

    convolve         x → unfold → W · → fold → y
    convolve_input   g → unfold → Wᵀ · → fold → the gradient of x
    convolve_weight  x → unfold, g → unfold, their product → the gradient of W

The batch is processed in chunks that fit the caches, in buffers that are kept between calls.

Unfolding multiplies the zeros of the padding of x like other numbers; a split skips them, but has
zeros on the side of g. This matters for operands that are not finite, because 0 times these is NaN:
they are not split.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

from weft.base.errors import ShapeError
from weft.base.shapes import Shape
from weft.ops.conv_plan import ConvPlan, Steps, plan_for
from weft.ops.conv_rules import check_bias
from weft.ops.windows import Padding, Window, slices

Array = np.ndarray[Any, Any]

#: Buffers above this size are not kept between calls.
KEPT = 16 << 20


# --- buffers -----------------------------------------------------------------------------------


class _Buffers(threading.local):
    """Scratch memory of this thread's kernels. No result refers to it."""

    def __init__(self) -> None:
        self.kept: dict[str, Array] = {}

    def matrix(self, slot: str, rows: int, columns: int, dtype: Any) -> Array:
        """An uninitialised matrix. The distance of its rows is not a multiple of 1024 bytes:
        otherwise they would compete for the same cache lines."""
        width = columns * dtype.itemsize
        if width % 1024 == 0:
            width += 64
        found = self.kept.get(slot)
        if found is None or found.size < rows * width:
            found = np.empty(rows * width, np.uint8)
            if rows * width <= KEPT:
                self.kept[slot] = found
        matrix: Array = found[: rows * width].view(dtype).reshape(rows, -1)[:, :columns]
        return matrix


_buffers = _Buffers()


# --- unfold and fold ---------------------------------------------------------------------------


def _unfold(source: Array, target: Array, axis: int, window: Window) -> None:
    """target[:, tap, …, o, …] = source[…, the element that window o reads with the tap, …]."""
    before = (slice(None),) * (axis + 2)
    for tap, (outside, inside) in enumerate(slices(window)):
        part = target[:, tap]
        if outside.start > 0:
            part[(*before, slice(0, outside.start))] = 0
        if outside.stop < window.out:
            part[(*before, slice(outside.stop, None))] = 0
        if outside.stop > outside.start:
            part[(*before, outside)] = source[(*before, inside)]


def _fold(source: Array, target: Array, axis: int, window: Window) -> None:
    """The transpose of `_unfold`: each element is the sum over the windows that read it."""
    before = (slice(None),) * (axis + 2)

    def read(tap: int, windows: slice) -> Array:
        return source[:, tap][(*before, windows)]

    parts = list(enumerate(slices(window)))
    whole = slice(0, window.size, 1)
    covering = next((part for part in parts if part[1][1] == whole), None)
    if covering is None:
        target[...] = 0
    else:
        parts.remove(covering)
        tap, (outside, _) = covering
        target[...] = read(tap, outside)
    for tap, (outside, inside) in parts:
        if outside.stop > outside.start:
            place = target[(*before, inside)]
            np.add(place, read(tap, outside), out=place)


def _matrix(source: Array, steps: Steps, side: str) -> Array:
    """A chunk (channels, images, *sizes) as a matrix (channels × taps, images × positions)."""
    rows, images = source.shape[:2]
    sizes = list(source.shape[2:])
    if not steps:
        if images == 1:
            return source.reshape(rows, -1)
        target = _buffers.matrix(side, rows, images * math.prod(sizes), source.dtype)
        target.reshape(source.shape)[...] = source
        return target
    for number, (axis, window) in enumerate(steps):
        sizes[axis] = window.out
        last = number == len(steps) - 1
        target = _buffers.matrix(
            side if last else f"{side}{number}",
            rows * window.taps,
            images * math.prod(sizes),
            source.dtype,
        )
        _unfold(source, target.reshape(rows, window.taps, images, *sizes), axis, window)
        rows *= window.taps
        source = target.reshape(rows, images, *sizes)
    return target


def _spread(matrix: Array, target: Array, steps: Steps, sizes: Shape, side: str) -> None:
    """The transpose of `_matrix`: adds its elements to a chunk of the result."""
    rows = matrix.shape[0]
    images = target.shape[1]
    now = list(sizes)
    source = matrix
    for number in reversed(range(len(steps))):
        axis, window = steps[number]
        rows //= window.taps
        folded = source.reshape(rows, window.taps, images, *now)
        now[axis] = window.size
        if number == 0:
            _fold(folded, target, axis, window)
            return
        buffer = _buffers.matrix(f"{side}{number}", rows, images * math.prod(now), matrix.dtype)
        _fold(folded, buffer.reshape(rows, images, *now), axis, window)
        source = buffer
    target[...] = source.reshape(target.shape)


def _weights(weight: Array, plan: ConvPlan) -> Array:
    """The weight as one matrix per group: (groups, results, rows)."""
    parts = weight.reshape(plan.groups, plan.outputs, plan.channels, *plan.kernel)
    return parts.transpose(plan.order()).reshape(plan.groups, plan.results, plan.rows)


# --- operands and results of the products ------------------------------------------------------


def _stacked(matrix: Array, plan: ConvPlan, images: int) -> Array:
    """A matrix of all channels as a stack of matrices to multiply: one for each group, and for
    each image if images have separate products."""
    rows, columns = matrix.shape
    if not plan.apart:
        return matrix.reshape(plan.groups, rows // plan.groups, columns)
    shape = (plan.groups, rows // plan.groups, images, columns // images)
    return matrix.reshape(shape).transpose(2, 0, 1, 3)


def _operand(chunk: Array, steps: Steps, side: str, plan: ConvPlan) -> Array:
    """A chunk (images, channels, *sizes) as a stack of matrices."""
    images, channels = chunk.shape[:2]
    if not steps and plan.apart:
        return chunk.reshape(images, plan.groups, channels // plan.groups, -1)
    return _stacked(_matrix(chunk.swapaxes(0, 1), steps, side), plan, images)


def _multiply(
    left: Array, right: Array, chunk: Array, steps: Steps, side: str, plan: ConvPlan
) -> None:
    """Write a product to a chunk (images, channels, *sizes) of the result."""
    images = chunk.shape[0]
    if not steps and (plan.apart or images == 1):
        np.matmul(left, right, out=chunk.reshape(*right.shape[:-2], -1, right.shape[-1]))
        return
    columns = right.shape[-1] * (images if plan.apart else 1)
    product = _buffers.matrix(side, plan.groups * left.shape[-2], columns, right.dtype)
    np.matmul(left, right, out=_stacked(product, plan, images))
    _spread(product, chunk.swapaxes(0, 1), steps, plan.middle, side)


# --- the kernels -------------------------------------------------------------------------------


def convolve(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    stride: Shape,
    padding: Padding,
    dilation: Shape,
    groups: int,
) -> Array:
    """y[n, o] = the sum over channels and taps of weight[o] times what the windows of x[n] read."""
    given = (x.shape[1:], weight.shape, stride, padding, dilation, groups, x.itemsize)
    plan = plan_for(*given, 1)
    if plan.split and padding[0] != (0, 0) and not _finite(weight):
        plan = plan_for(*given, 0)
    if bias is not None:
        check_bias(bias.shape, weight.shape)
    out = np.empty((x.shape[0], weight.shape[0], *plan.counts), x.dtype)
    if not x.size or not weight.size:
        out[...] = 0
    else:
        matrices = _weights(weight, plan)
        for chunk in plan.chunks(x.shape[0]):
            inputs = _operand(x[chunk], plan.unfolded, "in", plan)
            _multiply(matrices, inputs, out[chunk], plan.split, "out", plan)
    if bias is not None:
        out += bias.reshape(-1, *(1 for _ in plan.counts))
    return out


def convolve_input(
    g: Array,
    weight: Array,
    *,
    size: Shape,
    stride: Shape,
    padding: Padding,
    dilation: Shape,
    groups: int,
) -> Array:
    """The transpose of `convolve` in x: what each element of x gives to g, for x of `size`."""
    image = (weight.shape[1] * groups, *size)
    given = (image, weight.shape, stride, padding, dilation, groups, g.itemsize)
    plan = plan_for(*given, 2)
    if plan.split and not _finite(weight):
        plan = plan_for(*given, 0)
    _check_outputs(g, (g.shape[0], weight.shape[0], *plan.counts))
    if not g.size or not weight.size:
        return np.zeros((g.shape[0], *image), g.dtype)
    out = np.empty((g.shape[0], *image), g.dtype)
    matrices = _weights(weight, plan).swapaxes(1, 2)
    for chunk in plan.chunks(g.shape[0]):
        outputs = _operand(g[chunk], plan.split, "out", plan)
        _multiply(matrices, outputs, out[chunk], plan.unfolded, "in", plan)
    return out


def convolve_weight(
    x: Array,
    g: Array,
    *,
    size: Shape,
    stride: Shape,
    padding: Padding,
    dilation: Shape,
    groups: int,
) -> Array:
    """The transpose of `convolve` in the weight: what each weight gives to g, for taps `size`."""
    weight = (g.shape[1], x.shape[1] // groups, *size)
    given = (x.shape[1:], weight, stride, padding, dilation, groups, x.itemsize)
    plan = plan_for(*given, 1)
    _check_outputs(g, (x.shape[0], g.shape[1], *plan.counts))
    if not x.size or not g.size:
        return np.zeros(weight, x.dtype)
    out = _weight_gradient(x, g, weight, plan)
    # If x or g is not finite, neither is the result: each of their elements is part of it.
    if plan.split and not _finite(out):
        out = _weight_gradient(x, g, weight, plan_for(*given, 0))
    return out


def _weight_gradient(x: Array, g: Array, weight: Shape, plan: ConvPlan) -> Array:
    total = np.zeros((plan.groups, plan.rows, plan.results), x.dtype)
    for chunk in plan.chunks(x.shape[0]):
        inputs = _operand(x[chunk], plan.unfolded, "in", plan)
        outputs = _operand(g[chunk], plan.split, "out", plan)
        products = np.matmul(inputs, outputs.swapaxes(-2, -1))
        total += products.sum(0) if plan.apart else products
    shape = (plan.groups, plan.outputs, plan.channels, *plan.kernel)
    order = plan.order()
    parts = total.swapaxes(1, 2).reshape([shape[axis] for axis in order])
    return np.ascontiguousarray(parts.transpose(np.argsort(order))).reshape(weight)


def _finite(array: Array) -> bool:
    """Whether all elements are finite; very large ones may count as not."""
    return array.dtype.kind not in "fc" or bool(abs(np.vdot(array, array)) < math.inf)


def _check_outputs(g: Array, made: Shape) -> None:
    if g.shape != made:
        raise ShapeError(f"the convolution makes {made}, not {g.shape}")
