"""The part of this rank of a tensor that lies over a mesh: what stands where an array would.

A tensor with such data has the shape of the whole. Compiled functions take and give it: the
compiler splits them over the ranks (`weft/passes/layouts`). So are ops that are called one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from weft.base.device import CPU
from weft.base.errors import CaptureError, DistributedError
from weft.base.shapes import Shape, size_of
from weft.base.world import Axes, current_world, ranks_of
from weft.ir.cuts import Cuts
from weft.ir.dispatch import Family, register_stand_in
from weft.ir.types import DENSE

__all__ = ["Parts", "lie_over_ranks", "lying_as"]


class Parts:
    """What this rank has of a value.

    tensor  the part, as a tensor of its own
    shape   of the whole
    """

    __slots__ = ("_layout", "cuts", "dtype", "mesh", "shape", "tensor")

    #: Makes a tensor of an array: `weft.core.tensor` knows how.
    wrap: ClassVar[Callable[[Any], Any]]
    #: What calls ops on parts: `weft.runtime.spread_calls`, once it is needed.
    calls: ClassVar[Callable[[], Any]]

    def __init__(self, local: Any, shape: Shape, cuts: Cuts, mesh: Axes) -> None:
        self.tensor = Parts.wrap(local)
        self.shape = shape
        self.dtype: np.dtype[Any] = local.dtype
        self.cuts = cuts
        self.mesh = mesh
        self._layout = ""  # told when asked for

    @property
    def local(self) -> Any:
        """The array of the part."""
        return self.tensor._data

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return size_of(self.shape)

    @property
    def layout(self) -> str:
        """Where parts lie, as text: recordings of functions are made for one layout."""
        if not self._layout:
            padded = self.cuts.padded(self.shape, self.mesh)
            sizes: tuple[Any, ...] = tuple(
                [n if axis in padded else "" for axis, n in enumerate(self.shape)]
            )
            self._layout = f"{self.cuts.shape_text(sizes)} over {self.mesh}"
        return self._layout

    @property
    def own(self) -> Any:
        """The array of the part without what it is filled up with."""
        if not self.cuts.padded(self.shape, self.mesh):
            return self.local
        ends = self.slices(current_world().rank)
        return self.local[tuple(slice(0, stop - start) for start, stop in ends)]

    def slices(self, rank: int) -> list[tuple[int, int]]:
        """Where the part of a rank of the mesh begins and ends along each axis of the whole."""
        if any(":" in name for names in self.cuts.axes for name in names):
            raise DistributedError(
                f"a part of {self.cuts.shape_text(self.shape)} is not one range of each axis",
                hint="bring it together: distributed.full(x)",
            )
        found = []
        for names, size in zip(self.cuts.axes, self.shape, strict=True):
            group = ranks_of(rank, self.mesh, names) if names else [rank]
            each = -(-int(size) // len(group))
            start = min(group.index(rank) * each, int(size))
            found.append((start, min(start + each, int(size))))
        return found

    def part_of(self, whole: Any, rank: int) -> Any:
        """What a rank has of an array, laid out like this."""
        for axis, names in enumerate(self.cuts.axes):
            for name in sorted(names, key=lambda name: ":" not in name):  # sections first
                base, _, sections = name.partition(":")
                group = ranks_of(rank, self.mesh, (base,))
                rest = -whole.shape[axis] % len(group) if not sections else 0
                if rest:
                    last = [(0, rest if other == axis else 0) for other in range(whole.ndim)]
                    whole = np.pad(whole, last, mode="edge")
                pieces = [
                    np.split(section, len(group), axis)[group.index(rank)]
                    for section in np.split(whole, int(sections or 1), axis)
                ]
                whole = pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis)
        return whole

    def copy(self) -> Parts:
        return Parts(self.local.copy(), self.shape, self.cuts, self.mesh)

    def __repr__(self) -> str:
        """What this rank has: printing sends nothing, so that one rank alone may print."""
        mine = np.array2string(np.asarray(self.own), separator=", ", prefix=" " * 7)
        return f"{mine}, <part of {self.dtype.name}{self.cuts.shape_text(self.shape)}>"


def lie_over_ranks(error: Exception, inputs: Sequence[Any]) -> bool:
    """Whether a call found no kernel because operands are parts."""
    return isinstance(error, CaptureError) and any(x._data.__class__ is Parts for x in inputs)


def lying_as(data: Any, target: Any) -> Any:
    """An array that all ranks have alike, or parts, as data that lie over the mesh as others do."""
    if target.__class__ is not Parts or data.shape != target.shape:
        return data
    if data.__class__ is not Parts:
        part = target.part_of(data, current_world().rank)
        local = part.astype(target.dtype)  # a copy
        return Parts(local, target.shape, target.cuts, target.mesh)
    if data.layout != target.layout:
        raise DistributedError(
            f"a state lies as {data.layout}, and what it is for as {target.layout}",
            hint="distributed.full(x) brings a tensor together, on all ranks",
        )
    if data.dtype != target.dtype:
        return Parts(data.local.astype(target.dtype), data.shape, data.cuts, data.mesh)
    return data


def _refused(*_args: Any) -> Any:
    raise DistributedError(
        "an array has no layout",
        hint="distributed.split(x, ...) is the part of this rank of a tensor that all have alike",
    )


register_stand_in(
    Family(
        "cpu",
        DENSE,
        Parts,
        None,
        _refused,
        lambda parts: Parts.calls().gathered(parts),
        lambda _array: CPU,
        refusal="a tensor that lies over several ranks is used where no rank has all of it; bring "
        "it together first: distributed.full(x)",
    )
)
