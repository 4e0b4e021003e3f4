"""Programs over a mesh of ranks: each runs its part (`weft/passes/layouts`)."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from sys import getrefcount
from typing import Any

import numpy as np

from weft.base.dim_algebra import Dim
from weft.base.dims import bind_all, dim, substitute
from weft.base.errors import DistributedError, InternalError, ShapeError, UnknownSizeError
from weft.base.world import Axes, check_mesh, current_world, group_size
from weft.core.parts import Parts
from weft.core.tensor import Tensor
from weft.ir.concrete import concrete, names_of_inputs
from weft.ir.cuts import Cuts
from weft.ir.graph import Graph
from weft.ir.signature import OutputRouting
from weft.ir.types import TensorType
from weft.ops.layout import LAYOUT
from weft.passes.layouts.program import RankProgram, mesh_of, rank_program
from weft.passes.layouts.split import Inserted
from weft.runtime.executable import Executable, Program
from weft.runtime.output_routing import Call

__all__ = ["ShardedProgram", "is_sharded", "sharded"]


def is_sharded(graph: Graph) -> bool:
    """Whether a graph says how some value lies over a mesh."""
    return any(
        isinstance(value.type, TensorType) and value.type.cuts is not None for value in graph.inputs
    ) or any(node.op is LAYOUT for part in graph.walk() for node in part.nodes)


class ShardedProgram(Program):
    """The program of this rank; the layouts of its inputs are known at the first call."""

    way = "ranks"
    reason = "split over ranks; each runs its part"

    def __init__(
        self, graph: Graph, written: Mapping[int, int], make: Callable[..., Executable]
    ) -> None:
        self.captured = graph
        self._written = dict(written)
        self._make = make
        self._split: RankProgram | None = None
        self._inner: Executable | None = None
        self._started = False
        self._layouts: Layouts = ()
        self._others: dict[Any, ShardedProgram] = {}
        self._named = bool(names_of_inputs(graph))
        self._hints: dict[str, int] = {}  # the numbers of named sizes of parts in the first call
        self._factors: dict[str, int] = {}  # named sizes are these times those of a part

    @property
    def split(self) -> RankProgram:
        """The whole program with its layouts, and that of this rank."""
        if self._split is None:
            mesh = mesh_of(self.captured) or self._mesh
            if not mesh:
                raise DistributedError("this program is split at its first call")
            self._split = rank_program(self._scaled(), mesh, self._written, hints=self._hints)
        return self._split

    @property
    def inner(self) -> Executable:
        """What runs the program of this rank. It writes new values of inputs to their arrays."""
        if self._inner is None:
            self._inner = self._make(self.split.local, OutputRouting(self._written, {}))
        return self._inner

    @property
    def graph(self) -> Graph:
        return self.inner.optimized

    def scheduled(self) -> Graph:
        return self.inner.graph("scheduled")

    def inserted(self) -> Sequence[Inserted]:
        return self.split.report.inserted

    #: The mesh of the parts among the inputs.
    _mesh: Axes = ()

    def call(self, inputs: list[Tensor]) -> list[Tensor]:
        other = self._fitting(inputs)
        if other is not self:
            return other.call(inputs)
        given = self._given(inputs)
        return self._laid_out(self.inner.program.call(given), range(len(self.split.outputs)))

    def routed_call(self, routing: OutputRouting) -> Call | None:
        written = frozenset(routing.values.values())
        known: list[bool] = []
        cut: list[int] = []  # the inputs that are parts, and those of them that are written
        owned: list[int] = []
        listed = [i for i in range(len(self.captured.outputs)) if i not in routing.values]
        gradients = [(listed.index(i), to) for i, to in routing.gradients.items()]
        left = [place for place, i in enumerate(listed) if routing.is_listed(i)]

        others: dict[ShardedProgram, Call] = {}

        def run(inputs: list[Tensor]) -> list[Tensor]:
            if not self._started:
                self._start(inputs)
            if self._named:
                other = self._fitting(inputs)
                if other is not self:
                    if other not in others:
                        made = other.routed_call(routing)
                        assert made is not None
                        others[other] = made
                    return others[other](inputs)
            if not known:
                known.append(True)
                cut.extend([i for i, cuts in enumerate(self._layouts) if cuts is not None])
                owned.extend([i for i in cut if i in written])
            given = inputs.copy()
            for i in cut:  # guards say that the layouts are those of the first call
                given[i] = inputs[i]._data.tensor
            for i in owned:
                data = inputs[i]._data
                if getrefcount(data) > _HELD:
                    # Somebody else holds the part that is about to be written.
                    inputs[i]._data = Parts(data.local, data.shape, data.cuts, data.mesh)
                    given[i] = inputs[i]._data.tensor
            found = self._laid_out(self.inner.call(given), listed)
            for place, to in gradients:
                inputs[to]._grad = found[place]
            return [found[place] for place in left] if gradients else found

        return run

    def _fitting(self, inputs: list[Tensor]) -> ShardedProgram:
        """The program for the layouts of the inputs, where no guard says which they have, and for
        their sizes, where a program serves many."""
        if not self._started:
            self._start(inputs)
        layouts = _layouts(inputs)
        key: Any = layouts
        if self._named:
            known = _sizes(self.captured, inputs)
            if not self._serves(inputs, known):
                key = layouts, tuple(known.items())
        if key == self._layouts:
            return self
        found = self._others.get(key)
        if found is None:
            graph = self.captured if key is layouts else concrete(self.captured, known)
            found = self._others[key] = ShardedProgram(graph, self._written, self._make)
        return found

    def _serves(self, inputs: list[Tensor], sizes: Mapping[str, int]) -> bool:
        """Whether the program for named sizes is one for these."""
        if any(sizes[name] % n for name, n in self._factors.items()):
            return False
        for x in inputs:
            data = x._data
            if data.__class__ is Parts and data.cuts.padded(data.shape, data.mesh):
                return False
        try:
            return self.inner is not None
        except (UnknownSizeError, ShapeError, InternalError):
            return False

    def _scaled(self) -> Graph:
        """The graph whose named sizes are those of parts: B elements become 2·B over two ranks."""
        if not self._factors:
            return self.captured
        graph = self.captured.clone()
        by = {name: dim(name, min=1) * n for name, n in self._factors.items()}
        for part in graph.walk():
            for value in part.values():
                if isinstance(value.type, TensorType):
                    shape = substitute(value.type.shape, by, partly=True)
                    value.type = value.type.like(shape=shape).cut(value.type.cuts)
            for node in part.nodes:
                node.attrs = substitute(node.attrs, by, partly=True)
        return graph

    def _find_factors(self) -> dict[str, int]:
        """Named sizes that layouts of inputs cut, and in how many parts."""
        found: dict[str, int] = {}
        for value in self.captured.inputs:
            kind = value.type
            if isinstance(kind, TensorType) and kind.cuts is not None:
                for size, names in zip(kind.shape, kind.cuts.axes, strict=True):
                    if isinstance(size, Dim) and names:
                        bases = tuple(name.partition(":")[0] for name in names)
                        n = group_size(self._mesh, bases)
                        for name in size.names:
                            found[name] = math.lcm(found.get(name, 1), n)
        return found

    def _given(self, inputs: list[Tensor]) -> list[Tensor]:
        """The tensors of this rank."""
        if not self._started:
            self._start(inputs)
        return [x._data.tensor if x._data.__class__ is Parts else x for x in inputs]

    def _laid_out(self, found: list[Tensor], numbers: Sequence[int]) -> list[Tensor]:
        """Outputs, those that are cut as parts of the whole."""
        cut = self.split.outputs
        for x, number in zip(found, numbers, strict=True):
            cuts = cut[number]
            if cuts is not None:
                shape = cuts.whole(x._data.shape, self.split.mesh)
                said = self.split.laid_out.outputs[number].tensor_type.shape
                if cuts.padded(said, self.split.mesh):
                    shape = said
                x._data = Parts(x._data, shape, cuts, self.split.mesh)
        return found

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
        # The results of an earlier program may lie as that one chose.
        self._layouts = _layouts(inputs)
        graph = self.captured.clone()
        for value, cuts in zip(graph.inputs, self._layouts, strict=True):
            if isinstance(value.type, TensorType) and value.type.cuts != cuts:
                value.type = value.type.cut(cuts)
        self.captured = graph
        self._started = True
        if self._named:
            self._factors = self._find_factors()
            sizes = _sizes(self.captured, inputs)
            self._hints = {name: n // self._factors.get(name, 1) for name, n in sizes.items()}
        self._split = self._inner = None
        mesh = mesh_of(self.captured) or self._mesh
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


Layouts = tuple[Cuts | None, ...]


def _sizes(graph: Graph, inputs: Sequence[Tensor]) -> dict[str, int]:
    """The named sizes of a call, of whole tensors."""
    found: dict[str, int] = {}
    bind_all(
        [
            (value.type.shape, tuple(x._data.shape), value.name)
            for value, x in zip(graph.inputs, inputs, strict=True)
            if isinstance(value.type, TensorType)
        ],
        found,
    )
    return found


def _layouts(inputs: list[Tensor]) -> Layouts:
    return tuple([x._data.cuts if x._data.__class__ is Parts else None for x in inputs])


#: References to parts that only one tensor holds, as `run` counts them.
_HELD = 3


def _digest(x: Tensor) -> int:
    data = x._data
    if not isinstance(data, np.ndarray):
        return 0
    return zlib.crc32(data.tobytes())


def sharded(graph: Graph, routing: Any, make: Callable[..., Executable]) -> Executable:
    """What runs a graph that says how its values lie over a mesh."""

    def build(
        given: Graph, values: Mapping[int, int], _optimized: Callable[[], Graph]
    ) -> ShardedProgram:
        return ShardedProgram(given, values, make)

    return Executable(graph, lambda same: same, build, routing)
