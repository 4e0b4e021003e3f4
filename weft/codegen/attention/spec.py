"""What attention is: sizes, where the operands lie, and who may look where."""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft.base.dtypes import DType
from weft.codegen.matmul.product import Operand

__all__ = ["Attention"]


@dataclass(frozen=True, slots=True)
class Attention:
    """softmax(q kᵀ · scale + mask) v, for a stack of matrices.

    queries, keys      how many there are: rows of q, and of k and v
    features, values   columns of q and k, and of v
    mask, mask_dtype   True where a query may look, or numbers to add: (queries, keys)
    causal             a query looks only at keys that are no later than itself
    blank              a query that may look nowhere gets 0, instead of NaN

    The columns of q, k and v lie side by side; those of a mask do, or are one column. Narrow floats
    are computed with in float32: a score or a weight is never rounded to them. A mask to add may be
    of either.
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
