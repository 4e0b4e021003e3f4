"""The part of this rank of a tensor that lies over a mesh: what stands where an array would.

A tensor with such data has the shape of the whole. Compiled functions take and give it: the
compiler splits them over the ranks (`weft/passes/layouts`). Ops called one by one refuse it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.device import CPU
from weft.base.errors import DistributedError
from weft.base.shapes import Shape, size_of
from weft.base.world import Axes
from weft.ir.cuts import Cuts
from weft.ir.dispatch import Family, register_stand_in
from weft.ir.types import DENSE

__all__ = ["Parts"]


class Parts:
    """What this rank has of a value.

    local  an array; it is not written while anybody else may see it
    shape  of the whole
    """

    __slots__ = ("cuts", "dtype", "local", "mesh", "shape")

    def __init__(self, local: Any, shape: Shape, cuts: Cuts, mesh: Axes) -> None:
        self.local = local
        self.shape = shape
        self.dtype: np.dtype[Any] = local.dtype
        self.cuts = cuts
        self.mesh = mesh

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return size_of(self.shape)

    @property
    def layout(self) -> str:
        """Where parts lie, as text: recordings of functions are made for one layout."""
        return f"{self.cuts.shape_text(self.shape)} over {self.mesh}"

    def copy(self) -> Parts:
        return Parts(self.local.copy(), self.shape, self.cuts, self.mesh)

    def __repr__(self) -> str:
        return f"<part of {self.dtype.name}{self.cuts.shape_text(self.shape)}>"


def _refused(*_args: Any) -> Any:
    raise DistributedError(
        "this tensor lies over several ranks; its numbers are not on this one",
        hint="distributed.full(x) brings them together, on all ranks; distributed.local(x) is the "
        "part of this rank",
    )


register_stand_in(
    Family(
        "cpu",
        DENSE,
        Parts,
        None,
        _refused,
        _refused,
        lambda _array: CPU,
        refusal="a tensor that lies over several ranks is used op by op; use it in a function that "
        "weft.compile compiles, which splits it over the ranks, or bring it together first: "
        "distributed.full(x)",
    )
)
