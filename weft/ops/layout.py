"""The card `layout`: where a program says how a value lies over a mesh. The value stays the same.

Its gradient gets the same layout. Where a program is not split over ranks, it does nothing.
"""

from __future__ import annotations

from typing import Any

from weft.base.errors import ShapeError
from weft.base.world import Axes
from weft.ir.cuts import Cuts
from weft.ir.op import Op, Trait
from weft.ir.types import TensorType
from weft.ops.batching import Attrs, Inputs, Mapped, all_mapped
from weft.ops.rules import apply

__all__: list[str] = []

Names = tuple[tuple[str, ...], ...]


def _type(x: TensorType, *, mesh: Axes, axes: Names, terms: tuple[str, ...]) -> TensorType:
    if len(axes) != x.ndim:
        raise ShapeError(
            f"a layout of {len(axes)} axes for a tensor of {x.ndim}",
            hint='one entry for each axis: "data", None, or ("data", "model")',
        )
    Cuts(axes, terms).local(x.shape, mesh)
    return x


def _vjp(_xp: Any, g: Any, _out: Any, _x: Any, *, mesh: Axes, axes: Names, terms: Any) -> Any:
    return apply(LAYOUT, g, mesh=mesh, axes=axes, terms=())


def _batch(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Any:
    more = {**attrs, "axes": ((), *attrs["axes"])}
    return apply(op, *all_mapped(size, mapped, inputs), **more)


LAYOUT = Op(
    "layout",
    _type,
    lambda xp, x, *, mesh, axes, terms: x.copy(),
    vjp=(_vjp,),
    batch=_batch,
    traits=Trait.LINEAR | Trait.ANYWHERE | Trait.COLLECTIVE,
    may_fail=False,
)
