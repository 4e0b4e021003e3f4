"""Named tuples that several functions return."""

from __future__ import annotations

from typing import NamedTuple

from weft.core.tensor import Tensor

__all__ = ["ValuesIndices"]


class ValuesIndices(NamedTuple):
    """Elements, and where they stand along the axis."""

    values: Tensor
    indices: Tensor
