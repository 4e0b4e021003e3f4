"""Random choices of positions by weights. The same seed gives the same choices in every mode."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.asked_sizes import is_less
from weft.base.errors import DTypeError, RangeError, ShapeError
from weft.core.bind import bind
from weft.core.operands import as_tensor, cast
from weft.core.public import public
from weft.core.tensor import Tensor, type_of
from weft.ir.op import Op
from weft.ir.types import TensorType
from weft.ops.arguments import integer
from weft.ops.batching import leading
from weft.ops.draws import draw, random_uniform
from weft.ops.elementwise import divide, greater, log1p, multiply, negative
from weft.ops.ranks import ranked
from weft.ops.reduce import cumulative_sum
from weft.ops.search import searchsorted
from weft.ops.select import where

__all__ = ["multinomial"]


def _checked_type(weights: TensorType, *, count: int) -> TensorType:
    return weights


def _checked(xp: Any, weights: Any, *, count: int) -> Any:
    if not xp.all((weights >= 0) & (weights < np.inf)):  # NaN is no weight either
        raise RangeError(
            "a weight is negative, infinite or NaN",
            op="multinomial",
            hint="weights are numbers from 0 up; they need not add up to 1",
        )
    positive = xp.sum(xp.astype(weights > 0, np.int64), axis=-1)
    if xp.any(positive < count):
        raise RangeError(
            f"{count} of the weights must be above 0, and in a row fewer are",
            op="multinomial",
            hint="without replacement, each position is chosen once at most",
        )
    return weights


#: Weights in float64, of which at least `count` in each row are above 0.
_checked_weights = Op(
    "choice_weights", _checked_type, _checked, kinds="real floating", vjp=(None,), batch=leading
)


@public("multinomial")
def multinomial(
    probs: Tensor,
    /,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Any = None,
) -> Tensor:
    """Positions along the last axis, chosen at random with probabilities proportional to probs.

    The weights need not add up to 1. Without replacement, no position is chosen twice in a row.

    >>> generator = weft.manual_seed(0)
    >>> weft.multinomial(weft.asarray([0.0, 3.0, 1.0]), 6, replacement=True)
    tensor([2, 1, 1, 1, 1, 1])
    """
    given = as_tensor(probs, "multinomial")
    operands = [type_of(given)]
    if given.dtype.kind != "float":
        raise DTypeError(
            f"the weights are {given.dtype.name}",
            op="multinomial",
            operands=operands,
            hint="cast them: probs.astype(weft.float32)",
        )
    if not given.ndim:
        raise ShapeError("one number is no list of weights", op="multinomial", operands=operands)
    count = integer(num_samples, "num_samples", "multinomial", given)
    size = given.shape[-1]
    if count < 1 or (not replacement and is_less(size, count)):
        raise RangeError(
            f"{count} positions cannot be chosen from {size}",
            op="multinomial",
            operands=operands,
            hint="pass replacement=True to choose a position several times",
        )
    needed = 1 if replacement else count
    weights: Tensor = bind(_checked_weights, cast(given, dtypes.float64), count=needed)
    if replacement:
        sums = cumulative_sum(weights, axis=-1)
        shape = (*given.shape[:-1], count)
        drawn = draw(random_uniform, shape, dtypes.float64, given.device, generator)
        return searchsorted(sums, multiply(drawn, sums[..., -1:]), side="right")
    drawn = draw(random_uniform, given.shape, dtypes.float64, given.device, generator)
    # The first of clocks that each ring after an exponential time, at the rates of the weights.
    times = divide(negative(log1p(negative(drawn))), where(greater(weights, 0), weights, 1))
    times = where(greater(weights, 0), times, float("inf"))
    return ranked(times, given.ndim - 1, 0, count)
