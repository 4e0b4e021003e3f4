"""Named tuples that several functions return."""

from __future__ import annotations

from typing import NamedTuple

from weft.core.tensor import Tensor

__all__ = ["Histogram", "ValuesIndices"]


class ValuesIndices(NamedTuple):
    """Elements, and where they stand along the axis."""

    values: Tensor
    indices: Tensor


class Histogram(NamedTuple):
    """How many elements lie in each bin, and the edges of the bins."""

    hist: Tensor
    bin_edges: Tensor
