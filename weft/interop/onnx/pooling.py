"""Rows of pooling.

ONNX wants kernels, strides and pads as numbers. Sizes of the input may be symbolic: how far the
last window extends then depends on them, but a number of it gives the same windows. Kernels that
depend on sizes (global and adaptive pooling) are windows side by side: an axis of their own, which
is reduced.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.dim_algebra import known_less
from weft.base.dims import has_dims, is_zero
from weft.base.shapes import Shape, size_of
from weft.interop.onnx.indexing import reshaped
from weft.interop.onnx.products import pads_of, trimmed
from weft.interop.onnx.table import ROWS, kind_of, row, unsupported
from weft.interop.onnx.writer import Writer
from weft.ir.graph import Node
from weft.ops.windows import Padding, extent


def _fixed(node: Node, reach: Shape, stride: Shape, padding: Padding) -> Padding:
    """Paddings that are numbers, with the same windows: less than a stride more than asked for."""
    found = []
    for (low, high), most, step in zip(padding, reach, stride, strict=True):
        if has_dims((high,)):
            enough = [n for n in range(most) if known_less(high, n + 1)]
            high = next((n for n in enough if known_less(n - high, step)), high)
        found.append((low, high))
    if any(map(has_dims, found)):
        raise unsupported(
            node,
            "with a padding that depends on sizes has no operator in ONNX",
            "give the sizes as numbers",
        )
    return tuple(found)


def _pooled(
    w: Writer, node: Node, x: str, operator: str, kernel: Shape, padding: Padding, **attrs: Any
) -> str:
    """Pooling over the last axes; ONNX has just two before them."""
    shape = node.inputs[0].tensor_type.shape
    at = len(shape) - len(kernel)
    reach = tuple(map(extent, kernel, attrs.get("dilations", (1,) * len(kernel))))
    padding = _fixed(node, reach, attrs["strides"], padding)
    x, left = trimmed(w, x, padding, at)
    if at != 2:
        removed = [min(low, 0) + min(high, 0) for low, high in padding]
        sizes = [size + less for size, less in zip(shape[at:], removed, strict=True)]
        x = reshaped(w, x, (1, size_of(shape[:at]), *sizes))
    found = w.call(operator, x, kernel_shape=list(kernel), pads=pads_of(left), **attrs)
    return found if at == 2 else reshaped(w, found, node.outputs[0].tensor_type.shape)


def _reduced(
    w: Writer, node: Node, x: str, op: str, kernel: Shape, stride: Shape, padding: Padding
) -> str:
    """Windows of a symbolic length that lie side by side and cover all: a reduction."""
    shape, out = node.inputs[0].tensor_type.shape, node.outputs[0].tensor_type.shape
    at = len(shape) - len(kernel)
    covered = [n * k for n, k in zip(out[at:], kernel, strict=True)]
    apart = [*covered, *stride, *[side for sides in padding for side in sides]]
    same = [*shape[at:], *kernel, *[0] * 2 * len(padding)]
    if not all(is_zero(a - b) for a, b in zip(apart, same, strict=True)):
        raise unsupported(
            node,
            "with overlapping windows of a symbolic length has no operator in ONNX",
            "give the sizes as numbers, or windows that divide them",
        )
    write: Any = ROWS[op].write
    if all(n == 1 for n in out[at:]):
        found: str = write(w, node, x, tuple(range(at, len(shape))), True)
        return found
    parts = [n for pair in zip(out[at:], kernel, strict=True) for n in pair]
    x = reshaped(w, x, (*shape[:at], *parts))
    found = write(w, node, x, tuple(range(at + 1, at + len(parts), 2)), False)
    return found


def _floats_only(node: Node) -> None:
    if kind_of(node).kind != "float":
        raise unsupported(node, "of integers has no operator in ONNX", "cast to a float")


@row("max_pool", computes=True)
def _max_pool(
    w: Writer, node: Node, x: str,
    kernel: Shape, stride: Shape, padding: Padding, dilation: Shape,
) -> str:  # fmt: skip
    _floats_only(node)
    if has_dims((*kernel, *stride)) and set(dilation) == {1}:
        return _reduced(w, node, x, "max", kernel, stride, padding)
    how = {"strides": list(stride), "dilations": list(dilation)}
    return _pooled(w, node, x, "MaxPool", kernel, padding, **how)


@row("sum_pool", computes=True)
def _sum_pool(w: Writer, node: Node, x: str, kernel: Shape, stride: Shape, padding: Padding) -> str:
    _floats_only(node)
    if has_dims((*kernel, *stride)):
        return _reduced(w, node, x, "sum", kernel, stride, padding)
    how = {"strides": list(stride), "count_include_pad": 1}
    mean = _pooled(w, node, x, "AveragePool", kernel, padding, **how)
    return w.call("Mul", mean, w.const(np.asarray(size_of(kernel), dtype=kind_of(node).numpy)))
