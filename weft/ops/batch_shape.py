"""Batching rules of the cards that rearrange elements, and of matrix products."""

from __future__ import annotations

from weft.core.bind import bind
from weft.core.tensor import Tensor
from weft.ir.op import OPS, Op
from weft.ops.batching import (
    Attrs,
    Inputs,
    Mapped,
    aligned,
    all_mapped,
    elementwise,
    example_types,
    permuted,
    reshaped,
    stacked,
)

__all__: list[str] = []


def permute_rule(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Tensor:
    return permuted(inputs[0], (0, *(axis + 1 for axis in attrs["axes"])))


def broadcast_rule(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Tensor:
    shape = attrs["shape"]
    out: Tensor = bind(op, aligned(inputs[0], True, len(shape)), shape=(size, *shape))
    return out


def concat_rule(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Tensor:
    out: Tensor = bind(op, *all_mapped(size, mapped, inputs), axis=attrs["axis"] + 1)
    return out


# --- products ----------------------------------------------------------------------------------

_of_matrices = stacked(2, 2)


def _turned(x: Tensor) -> Tensor:
    """Each matrix transposed."""
    return permuted(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def matmul_rule(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Tensor:
    (a, b), (a_mapped, b_mapped) = inputs, mapped
    a_ndim, b_ndim = a.ndim - a_mapped, b.ndim - b_mapped
    op.infer(*example_types(mapped, inputs))  # with more axes, the check would let more pass
    if not b_mapped and b_ndim <= 2:
        out: Tensor = bind(op, a, b)
        return out
    if not a_mapped and (a_ndim, b_ndim) == (2, 1):  # one product for all vectors
        out = bind(op, b, _turned(a))
        return out
    if a_ndim == 1:
        a = reshaped(a, (*a.shape[:-1], 1, a.shape[-1]))
    if b_ndim == 1:
        b = reshaped(b, (*b.shape, 1))
    out = _of_matrices(op, size, mapped, (a, b), attrs)
    if a_ndim == 1:
        out = reshaped(out, (*out.shape[:-2], out.shape[-1]))
    return reshaped(out, out.shape[:-1]) if b_ndim == 1 else out


def solve_rule(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Tensor:
    x1, x2 = inputs
    op.infer(*example_types(mapped, inputs), **attrs)
    if x2.ndim - mapped[1] > 1:
        out: Tensor = _of_matrices(op, size, mapped, inputs, attrs)
        return out
    if not mapped[1]:
        out = bind(op, x1, x2, **attrs)
        return out
    out = _of_matrices(op, size, mapped, (x1, reshaped(x2, (*x2.shape, 1))), attrs)
    return reshaped(out, out.shape[:-1])


def linear_rule(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Tensor:
    x, weight, bias = inputs
    x_mapped, weight_mapped, bias_mapped = mapped
    op.infer(*example_types(mapped, inputs))
    if not weight_mapped and not bias_mapped:
        out: Tensor = bind(op, x, weight, bias)
        return out
    product = OPS["matmul"]
    either = x_mapped or weight_mapped
    if either:
        out = matmul_rule(product, size, mapped[:2], (x, _turned(weight)), {})
    else:
        out = bind(product, x, _turned(weight))
    out = elementwise(OPS["add"], size, (either, bias_mapped), (out, bias), {})
    return out
