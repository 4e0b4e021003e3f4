"""Programs over a mesh of ranks: each runs its part (`weft/passes/layouts`)."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from weft.base.errors import DistributedError
from weft.base.world import Axes, check_mesh, current_world
from weft.core.parts import Parts
from weft.core.tensor import Tensor, wrap
from weft.ir.graph import Graph
from weft.ir.types import TensorType
from weft.ops.layout import LAYOUT
from weft.passes.layouts.program import RankProgram, mesh_of, rank_program
from weft.runtime.executable import Executable, Program

__all__ = ["ShardedProgram", "is_sharded", "sharded"]


def is_sharded(graph: Graph) -> bool:
    """Whether a graph says how some value lies over a mesh."""
    return any(
        isinstance(value.type, TensorType) and value.type.cuts is not None for value in graph.inputs
    ) or any(node.op is LAYOUT for part in graph.walk() for node in part.nodes)


class ShardedProgram(Program):
    """The program of this rank; the layouts of its inputs are known at the first call."""

    way = "ranks"

    def __init__(
        self, graph: Graph, written: Mapping[int, int], make: Callable[[Graph], Executable]
    ) -> None:
        self.captured = graph
        self._written = dict(written)
        self._make = make
        self._split: RankProgram | None = None
        self._inner: Executable | None = None

    @property
    def split(self) -> RankProgram:
        """The whole program with its layouts, and that of this rank."""
        if self._split is None:
            mesh = mesh_of(self.captured) or self._mesh
            self._split = rank_program(self.captured, mesh, self._written)
        return self._split

    @property
    def inner(self) -> Executable:
        if self._inner is None:
            self._inner = self._make(self.split.local)
        return self._inner

    @property
    def graph(self) -> Graph:
        return self.inner.optimized

    def scheduled(self) -> Graph:
        return self.inner.graph("scheduled")

    def machine_code(self) -> Any:
        return self.inner.program.machine_code()

    #: The mesh of the parts among the inputs.
    _mesh: Axes = ()

    def call(self, inputs: list[Tensor]) -> list[Tensor]:
        if self._inner is None:
            self._start(inputs)
        given = [wrap(x._data.local) if x._data.__class__ is Parts else x for x in inputs]
        outputs = self.inner.program.call(given)
        split = self.split
        for x, cuts in zip(outputs, split.outputs, strict=True):
            if cuts is not None:
                local = x._data
                shape = cuts.whole(local.shape, split.mesh)
                x._data = Parts(local, shape, cuts, split.mesh)
        return outputs

    def _start(self, inputs: list[Tensor]) -> None:
        """Check what all ranks must agree on, at the first call."""
        for value, x in zip(self.captured.inputs, inputs, strict=True):
            data = x._data
            if data.__class__ is Parts:
                if self._mesh not in ((), data.mesh):
                    raise DistributedError(
                        f"tensors over two meshes meet: {self._mesh} and {data.mesh} "
                        f"(%{value.name})",
                        hint="use one mesh with all its axes",
                    )
                self._mesh = data.mesh
        mesh = self.split.mesh
        check_mesh(mesh, current_world().size)
        if current_world().size > 1:
            self._check_alike(inputs, mesh)

    def _check_alike(self, inputs: list[Tensor], mesh: Axes) -> None:
        """What is no part must be the same on all ranks."""
        sums = [0 if x._data.__class__ is Parts else _digest(x) for x in inputs]
        group = current_world().group(mesh, tuple(name for name, _ in mesh))
        mine = np.array(sums, np.int64)
        least, most = group.all_reduce(mine, "min"), group.all_reduce(mine, "max")
        for value, one, two in zip(self.captured.inputs, least, most, strict=True):
            if one != two:
                raise DistributedError(
                    f"%{value.name} ({value.type}) is not the same on all ranks",
                    hint="a program over a mesh takes the whole on each rank, or parts: "
                    "distributed.split(x, ...) of the whole, distributed.from_local(part, ...); "
                    "random generators need one seed: weft.manual_seed(0)",
                )


def _digest(x: Tensor) -> int:
    data = x._data
    if not isinstance(data, np.ndarray):
        return 0
    return zlib.crc32(data.tobytes())


def sharded(graph: Graph, routing: Any, make: Callable[[Graph], Executable]) -> Executable:
    """What runs a graph that says how its values lie over a mesh."""

    def build(
        given: Graph, values: Mapping[int, int], _optimized: Callable[[], Graph]
    ) -> ShardedProgram:
        return ShardedProgram(given, values, make)

    return Executable(graph, lambda same: same, build, routing)
