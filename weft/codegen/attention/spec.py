"""A description of attention: sizes, layouts of the operands, and masking."""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft.base.dtypes import DType
from weft.codegen.matmul.product import Operand

__all__ = ["Attention"]


@dataclass(frozen=True, slots=True)
class Attention:
    """softmax(q kᵀ · scale + mask) v, for a batch of matrices.

    queries, keys      rows of q; rows of k and v
    features, values   columns of q and k; columns of v
    mask, mask_dtype   True where a query may attend, or numbers to add: (queries, keys)
    causal             a query attends only to keys that are no later than itself
    blank              a query that attends to no key gets 0 instead of NaN

    The columns of q, k and v are contiguous; those of a mask are, or are broadcast. Narrow floats
    are computed with in float32: a score or a weight is never rounded to them. An additive mask may
    have either dtype.
    """

    queries: int
    keys: int
    features: int
    values: int
    dtype: DType
    q: Operand
    k: Operand
    v: Operand
    batch: tuple[int, ...] = ()
    scale: float = 1.0
    causal: bool = False
    mask: Operand | None = None
    mask_dtype: DType | None = None
    blank: bool = False

    @property
    def stacks(self) -> int:
        return math.prod(self.batch)
