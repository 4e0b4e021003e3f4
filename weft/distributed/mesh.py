"""Meshes: names for the directions in which ranks lie."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from weft.base.errors import DistributedError
from weft.base.world import Axes, check_mesh, enter_mesh, here, leave_mesh, ranks_of
from weft.distributed.start import joined_world

__all__ = ["Mesh", "barrier", "rank", "world_size"]


class Mesh:
    """Ranks as a grid with named axes; rank 0 comes first, and the last axis changes fastest.

    Inside of `with mesh:`, collectives and layouts mean this mesh.

    >>> mesh = weft.distributed.Mesh({"data": 1, "model": 1})
    >>> mesh
    Mesh(data=1, model=1)
    """

    def __init__(self, axes: Mapping[str, int]) -> None:
        known = isinstance(axes, Mapping) and axes and all(map(_is_axis, axes.items()))
        if not known:
            raise DistributedError(
                f"a mesh is made of names and numbers of ranks, not of {axes!r:.60}",
                hint='Mesh({"data": 2, "model": 2})',
            )
        self.axes: Axes = tuple((name, operator.index(size)) for name, size in axes.items())
        if any(n < 1 for _, n in self.axes):
            raise DistributedError(f"a mesh needs at least one rank along each axis, not {self!r}")
        check_mesh(self.axes, joined_world().size)

    @property
    def size(self) -> int:
        return math.prod(size for _, size in self.axes)

    def names(self, over: str | Sequence[str] | None) -> tuple[str, ...]:
        """Names of axes, in the order of the mesh; None means all of them."""
        known = [name for name, _ in self.axes]
        if over is not None and not isinstance(over, (str, list, tuple)):
            raise DistributedError(
                f"{over!r:.60} names no axis of a mesh", hint=f"one of {known}, or several"
            )
        asked = known if over is None else [over] if isinstance(over, str) else list(over)
        for name in asked:
            if name not in known:
                raise DistributedError(f"{self!r} has no axis {name!r}", hint=f"one of {known}")
        return tuple(name for name in known if name in asked)

    def group_size(self, over: str | Sequence[str] | None = None) -> int:
        """How many ranks lie along some axes."""
        names = self.names(over)
        return math.prod(size for name, size in self.axes if name in names)

    def place(self, over: str | Sequence[str] | None = None) -> int:
        """The place of this rank along some axes."""
        mine = joined_world().rank
        return ranks_of(mine, self.axes, self.names(over)).index(mine)

    def __enter__(self) -> Mesh:
        enter_mesh(self.axes)
        return self

    def __exit__(self, *_: object) -> None:
        leave_mesh()

    def __repr__(self) -> str:
        return f"Mesh({', '.join(f'{name}={size}' for name, size in self.axes)})"


def _is_axis(entry: tuple[Any, Any]) -> bool:
    name, size = entry
    return isinstance(name, str) and hasattr(size, "__index__") and not isinstance(size, bool)


def current_mesh() -> Mesh:
    """The mesh of the innermost `with mesh:`; else all ranks along one axis, "ranks"."""
    return Mesh(dict(here.meshes[-1] if here.meshes else (("ranks", joined_world().size),)))


def rank() -> int:
    """The number of this process, from 0 on.

    >>> weft.distributed.rank(), weft.distributed.world_size()
    (0, 1)
    """
    return joined_world().rank


def world_size() -> int:
    """How many ranks there are."""
    return joined_world().size


def barrier() -> None:
    """Wait until all ranks are here."""
    joined_world().barrier()
