"""Products with weights: linear and bilinear."""

from __future__ import annotations

from typing import Any

from weft.base.errors import ShapeError
from weft.core.autocast import autocasts
from weft.core.bind import bind
from weft.core.operands import as_tensor, common
from weft.core.tensor import Tensor, type_of
from weft.ops import neural
from weft.ops.matmul import matmul
from weft.ops.reduce import sum
from weft.ops.shape import permute_dims, reshape

__all__ = ["bilinear", "linear"]


def linear(input: Any, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias; the weight has shape (outputs, inputs)."""
    if not isinstance(input, Tensor):
        input = as_tensor(input, "linear", like=weight)
    if bias is not None:
        dtype = weight._data.dtype
        if input._data.dtype is not dtype or bias._data.dtype is not dtype:
            input, weight, bias = common((input, weight, bias), "linear", at_least="float")
        out: Tensor = bind(neural.linear, input, weight, bias)
        return out
    try:
        neural.check_linear(input.shape, weight.shape)
    except ShapeError as error:
        raise error.about("linear", [type_of(input), type_of(weight)]) from None
    return matmul(input, permute_dims(weight, (1, 0)))


@autocasts("")
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input1 @ weight[k] @ input2 for each output k; the weight has shape (outputs, in1, in2)."""
    if (
        weight.ndim != 3
        or input1.shape[:-1] != input2.shape[:-1]
        or (input1.shape[-1:], input2.shape[-1:]) != (weight.shape[1:2], weight.shape[2:])
    ):
        raise ShapeError(
            f"inputs of shapes {input1.shape} and {input2.shape} do not fit the weight of shape "
            f"{weight.shape}",
            op="bilinear",
            operands=[type_of(input1), type_of(input2), type_of(weight)],
            hint="the weight has shape (outputs, last axis of input1, last axis of input2)",
        )
    outputs, first, second = weight.shape
    matrix = reshape(permute_dims(weight, (1, 0, 2)), (first, outputs * second))
    half = reshape(matmul(input1, matrix), (*input1.shape[:-1], outputs, second))
    out = sum(half * input2[..., None, :], axis=-1)
    return out if bias is None else out + bias
