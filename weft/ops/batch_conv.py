"""Batching rules of convolutions: the mapped axis becomes part of the batch or of the channels."""

from __future__ import annotations

from typing import Any

from weft.core.bind import bind
from weft.core.tensor import Tensor
from weft.ir.op import OPS, Op
from weft.ops.batching import (
    Attrs,
    Inputs,
    Mapped,
    all_mapped,
    elementwise,
    example_types,
    moved,
    nothing,
    reshaped,
)

__all__: list[str] = []


def _folded(x: Tensor, axis: int) -> Tensor:
    """x with its first axis merged into axis `axis` (counted for one element)."""
    x = moved(x, 0, axis)
    merged = x.shape[axis] * x.shape[axis + 1]
    return reshaped(x, (*x.shape[:axis], merged, *x.shape[axis + 2 :]))


def _unfolded(x: Tensor, axis: int, size: int) -> Tensor:
    """The inverse of `_folded`."""
    whole = (*x.shape[:axis], size, x.shape[axis] // size, *x.shape[axis + 1 :])
    return moved(reshaped(x, whole), axis, 0)


def _grouped(op: Op, size: int, inputs: Inputs, attrs: Attrs, axes: tuple[int, int, int]) -> Tensor:
    """The rule if all inputs are mapped: each element becomes its own group of channels.

    `axes` are those of the channels: of both inputs, and of the result.
    """
    one, two = (_folded(x, axis) for x, axis in zip(inputs, axes, strict=False))
    out: Tensor = bind(op, one, two, **{**attrs, "groups": attrs["groups"] * size})
    return _unfolded(out, axes[2], size)


def _is_empty(size: Any) -> bool:
    return size.__class__ is int and size == 0


def conv_rule(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Any:
    op.infer(*example_types(mapped, inputs), **attrs)
    if _is_empty(size):
        return nothing(op, mapped, inputs, attrs)
    x, weight = inputs
    if not mapped[1]:
        return _unfolded(bind(op, _folded(x, 0), weight, **attrs), 0, size)
    if mapped[0]:
        return _grouped(op, size, inputs, attrs, (1, 0, 1))
    groups = attrs["groups"]  # outputs are ordered by group, then by element
    outputs = weight.shape[1]
    split = reshaped(weight, (size, groups, outputs // groups, *weight.shape[2:]))
    merged = reshaped(moved(split, 0, 1), (size * outputs, *weight.shape[2:]))
    out = bind(op, x, merged, **attrs)
    apart = reshaped(out, (out.shape[0], groups, size, outputs // groups, *out.shape[2:]))
    apart = moved(apart, 2, 0)
    return reshaped(apart, (size, out.shape[0], outputs, *out.shape[2:]))


def conv_bias_rule(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Any:
    op.infer(*example_types(mapped, inputs), **attrs)
    x, weight, bias = inputs
    if not mapped[1] and not mapped[2] and not _is_empty(size):
        return _unfolded(bind(op, _folded(x, 0), weight, bias, **attrs), 0, size)
    plain = OPS["conv"]
    either = mapped[0] or mapped[1]
    out = (
        conv_rule(plain, size, mapped[:2], (x, weight), attrs)
        if either
        else bind(plain, x, weight, **attrs)
    )
    bias = reshaped(bias, (*bias.shape, *(1,) * (x.ndim - mapped[0] - 2)))
    return elementwise(OPS["add"], size, (either, mapped[2]), (out, bias), {})


def conv_input_rule(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Any:
    op.infer(*example_types(mapped, inputs), **attrs)
    if _is_empty(size):
        return nothing(op, mapped, inputs, attrs)
    g, weight = inputs
    if not mapped[1]:
        return _unfolded(bind(op, _folded(g, 0), weight, **attrs), 0, size)
    return _grouped(op, size, all_mapped(size, mapped, inputs), attrs, (1, 0, 1))


def conv_weight_rule(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Any:
    op.infer(*example_types(mapped, inputs), **attrs)
    if _is_empty(size):
        return nothing(op, mapped, inputs, attrs)
    return _grouped(op, size, all_mapped(size, mapped, inputs), attrs, (1, 1, 0))
