"""Which convolutions cuDNN computes, as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from weft.base.dtypes import DType, bfloat16, float16, float32, float64
from weft.base.shapes import Shape
from weft.ir.graph import Node

__all__ = ["CONVOLUTIONS", "Convolution", "convolution_of"]

DTYPES = (float16, bfloat16, float32, float64)
#: By op: which of its values are the image, the weight and the result of the convolution itself.
CONVOLUTIONS = {
    "conv": (0, 1, -1),
    "conv_bias": (0, 1, -1),
    "conv_input": (-1, 1, 0),
    "conv_weight": (0, -1, 1),
}


@dataclass(frozen=True, slots=True)
class Convolution:
    """One call. `image`, `weight` and `result` are the shapes of the convolution itself, also where
    one of its gradients is computed; at least two spatial axes."""

    op: str
    dtype: DType
    image: Shape
    weight: Shape
    result: Shape
    stride: Shape
    padding: Shape
    dilation: Shape
    groups: int
    attrs: Any = field(compare=False)
    shapes: tuple[Shape, ...] = ()


def convolution_of(node: Node) -> Convolution | None:
    """The call for a node; None where cuDNN has none."""
    kinds = [value.tensor_type for value in (*node.inputs, *node.outputs)]
    attrs = node.attrs
    if kinds[0].dtype not in DTYPES or any(low != high for low, high in attrs["padding"]):
        return None
    if any(low < 0 for low, _ in attrs["padding"]) or not 1 <= len(attrs["stride"]) <= 3:
        return None
    shapes = [kind.shape for kind in kinds]
    image, weight, result = CONVOLUTIONS[node.op.name]
    more = (1,) * (len(attrs["stride"]) == 1)  # one axis as two
    return Convolution(
        node.op.name,
        kinds[0].dtype,
        _with_axis(shapes[image], more),
        _with_axis(shapes[weight], more),
        _with_axis(shapes[result], more),
        (*more, *attrs["stride"]),
        (*(0,) * len(more), *(low for low, _ in attrs["padding"])),
        (*more, *attrs["dilation"]),
        attrs["groups"],
        attrs,
        tuple(shapes),
    )


def _with_axis(shape: Shape, more: Shape) -> Shape:
    return (*shape[:2], *more, *shape[2:])
