"""What a recorded path is made into: an executable graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from weft.core.tensor import Tensor
from weft.ir.graph import Graph

__all__ = ["Execute", "Prepare"]


class Execute(Protocol):
    """An executable graph; see `weft.runtime.executable.Executable`."""

    recording: int  # the number of the recording that it belongs to

    @property
    def call(self) -> Callable[[list[Tensor]], Sequence[Tensor]]:
        """Computes the outputs, without histories. Look it up for each run: tools that observe runs
        replace it."""
        ...

    def graph(self, stage: str) -> Graph:
        """The graph as it was "captured", "optimized", or "scheduled" into kernels."""
        ...


#: Makes a graph executable; an `OutputRouting` says which outputs a call delivers to which inputs.
Prepare = Callable[..., Execute]
