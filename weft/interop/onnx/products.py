"""Rows of matrix products and convolutions."""

from __future__ import annotations

from weft.base.dim_algebra import Dim
from weft.base.shapes import Shape
from weft.interop.onnx.table import row, unsupported
from weft.interop.onnx.writer import Writer
from weft.ir.graph import Node
from weft.ops.windows import Padding


@row("matmul", computes=True)
def _matmul(w: Writer, node: Node, x1: str, x2: str) -> str:
    return w.call("MatMul", x1, x2)


@row("linear", computes=True)
def _linear(w: Writer, node: Node, x: str, weight: str, bias: str) -> str:
    if node.inputs[0].tensor_type.ndim == 2:
        return w.call("Gemm", x, weight, bias, transB=1)
    product = w.call("MatMul", x, w.call("Transpose", weight, perm=[1, 0]))
    return w.call("Add", product, bias)


# --- convolutions --------------------------------------------------------------------------------


def pads_of(padding: Padding) -> list[int]:
    return [low for low, _ in padding] + [high for _, high in padding]


def trimmed(w: Writer, x: str, padding: Padding, first: int) -> tuple[str, Padding]:
    """x without the elements that a negative padding removes, and the padding that is left, for
    the axes from `first` on."""
    if all(low >= 0 and high >= 0 for low, high in padding):
        return x, padding
    axes = list(range(first, first + len(padding)))
    starts = [max(-low, 0) for low, _ in padding]
    ends = [min(high, 0) or 2**62 for _, high in padding]
    x = w.call("Slice", x, w.ints(starts), w.ints(ends), w.ints(axes))
    return x, tuple((max(low, 0), max(high, 0)) for low, high in padding)


@row("conv", "conv_bias", computes=True)
def _conv(
    w: Writer, node: Node, x: str, weight: str, *bias: str,
    stride: Shape, padding: Padding, dilation: Shape, groups: int,
) -> str:  # fmt: skip
    x, padding = trimmed(w, x, padding, 2)
    return w.call(
        "Conv", x, weight, *bias,
        kernel_shape=list(node.inputs[1].tensor_type.shape[2:]),
        strides=list(stride), pads=pads_of(padding), dilations=list(dilation), group=groups,
    )  # fmt: skip


@row("conv_input", computes=True)
def _conv_input(
    w: Writer, node: Node, g: str, weight: str, size: Shape,
    stride: Shape, padding: Padding, dilation: Shape, groups: int,
) -> str:  # fmt: skip
    kernel = node.inputs[1].tensor_type.shape[2:]
    counts = node.inputs[0].tensor_type.shape[2:]
    more = []
    rows = zip(size, counts, kernel, stride, dilation, padding, strict=True)
    for n, count, taps, step, apart, (low, high) in rows:
        least = (count - 1) * step + (taps - 1) * apart + 1 - low - high
        more.append(n - least)
    wrong = any(isinstance(n, Dim) or n < 0 for n in more)
    if wrong or any(low < 0 or high < 0 for low, high in padding):
        raise unsupported(
            node, "of this size and padding has no operator in ONNX", "give sizes as numbers"
        )
    return w.call(
        "ConvTranspose", g, weight,
        kernel_shape=list(kernel), strides=list(stride), pads=pads_of(padding),
        dilations=list(dilation), group=groups, output_padding=more,
    )  # fmt: skip
