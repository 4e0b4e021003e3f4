"""Which part of each batch a rank reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.base.errors import DistributedError
from weft.base.world import current_world
from weft.data.parts import Part
from weft.distributed.mesh import Mesh, current_mesh

__all__ = ["part"]


def part(over: str | Sequence[str] | None = None, *, mesh: Mesh | None = None) -> Part:
    """The part of each batch that this rank reads, for `DataLoader(..., part=)`.

    Batches and their order are those of one process; `batch_size` is that of all ranks together.
    Ranks that differ only along other axes of the mesh read the same samples. All ranks loop over
    the loader together: they compare the order that they have drawn, so a generator that is not the
    same on all of them is an error.

    >>> from weft import distributed
    >>> def read():
    ...     generator = weft.Generator(0)
    ...     loader = weft.data.DataLoader(
    ...         weft.arange(8), batch_size=4, shuffle=True, generator=generator,
    ...         part=distributed.part())
    ...     return [batch.tolist() for batch in loader]
    >>> distributed.run_virtual(1, read)
    [[[3, 5, 4, 2], [6, 7, 1, 0]]]
    >>> distributed.run_virtual(2, read)
    [[[3, 5], [6, 7]], [[4, 2], [1, 0]]]
    """
    on = mesh or current_mesh()
    names = on.names(over)

    def check(number: int) -> None:
        numbers = current_world().group(on.axes, names).all_gather(np.array([number]))
        if (numbers != number).any():
            raise DistributedError(
                "ranks have drawn different orders of the samples",
                hint="let all ranks begin alike: weft.manual_seed(0) before the loop, or "
                "generator=weft.Generator(0)",
            )

    return Part(on.place(over), on.group_size(over), check)
