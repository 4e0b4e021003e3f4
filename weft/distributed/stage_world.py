"""The ranks of one stage of a pipeline, as a world of their own.

What runs inside of a stage (layouts, collectives, checks that ranks agree) sees the other axes of
the mesh alone; stages reach one another by messages of the outer world.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from weft.base.errors import DistributedError
from weft.base.world import Array, Axes, Group, World, current_world, here, ranks_of, use_world

__all__ = ["StageWorld"]


class StageWorld:
    """
    outer   the world of all ranks
    axes    the mesh of a stage: that of the outer world without the axis of the pipeline
    ranks   of this stage, as the outer world counts them
    """

    def __init__(self, outer: World, mesh: Axes, over: str) -> None:
        self.outer = outer
        self.axes: Axes = tuple([axis for axis in mesh if axis[0] != over])
        names = tuple([name for name, _ in self.axes])
        self.ranks = ranks_of(outer.rank, mesh, names)
        self.rank = self.ranks.index(outer.rank)
        self.size = len(self.ranks)
        self.copies: dict[Any, Any] | None = outer.copies
        # All ranks make groups together, so they are made here, in one order for all stages.
        self._groups: dict[tuple[str, ...], Group] = {
            some: outer.group(mesh, some)
            for count in range(len(names) + 1)
            for some in itertools.combinations(names, count)
        }

    def group(self, mesh: Axes, over: tuple[str, ...]) -> Group:
        if mesh != self.axes:
            raise DistributedError(
                f"inside of a stage of a pipeline, the mesh is {self.axes}, not {mesh}",
                hint="a stage has the axes of the mesh but that of the pipeline",
            )
        return self._groups[over]

    def barrier(self) -> None:
        self._groups[tuple([name for name, _ in self.axes])].all_gather(np.zeros(1))

    def post(self, x: Array, rank: int) -> None:
        self.outer.post(x, self.ranks[rank])

    def take(self, rank: int) -> Array:
        return self.outer.take(self.ranks[rank])

    @contextmanager
    def entered(self) -> Iterator[None]:
        """In this thread, the world is that of the stage."""
        before, meshes = current_world(), here.meshes
        here.meshes = (self.axes,)
        use_world(self, this_thread=True)
        try:
            yield
        finally:
            here.meshes = meshes
            use_world(before, this_thread=True)
