"""Graphs with symbolic sizes: machine code for each set of sizes, generated when it is needed.

This is for graphs with a kernel that must know its sizes when it is generated; all others have one
program for all sizes (`weft.runtime.sized`).

>>> graph = weft.make_graph(lambda x: x * 2, weft.spec(("B", 4)))
>>> native = weft.runtime.native.native
>>> program = weft.runtime.specialized.SpecializedProgram(graph, native)
>>> program([weft.ones((3, 4))])[0].shape
(3, 4)
>>> program.sizes
[{'B': 3}]
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping

from weft.base.dims import has_dims
from weft.base.errors import GraphError
from weft.core.tensor import Tensor
from weft.ir.concrete import concrete, names_in, names_of_inputs
from weft.ir.graph import Graph
from weft.ir.interpret import sizes_of
from weft.ir.types import TensorType
from weft.passes.pipeline import optimize
from weft.runtime.executable import Program
from weft.runtime.output_routing import Call

__all__ = ["SpecializedProgram", "may_specialize"]

#: The number of programs that are kept; the least recently used one goes first.
MOST = 16


def may_specialize(graph: Graph) -> bool:
    """Whether a graph has symbolic sizes, and its inputs determine all of them."""
    given = names_of_inputs(graph)
    return bool(given) and names_in(graph) <= given


class SpecializedProgram(Program):
    """A graph with symbolic sizes; a call runs the program for the sizes of its inputs."""

    def __init__(self, graph: Graph, build: Callable[[Graph], Program], why: str = "") -> None:
        """`why`: the reason why no single program serves all sizes (`weft.runtime.sized`)."""
        self._graph = graph
        self.why = why
        self.call: Call = self._call
        self._build = build
        self._symbolic = [
            i
            for i, value in enumerate(graph.inputs)
            if isinstance(value.type, TensorType) and has_dims(value.type.shape)
        ]
        self._programs: OrderedDict[object, tuple[Mapping[str, int], Program]] = OrderedDict()
        self._lock = threading.RLock()

    @property
    def sizes(self) -> list[Mapping[str, int]]:
        """The sizes that have programs, the most recently used last."""
        with self._lock:
            return [sizes for sizes, _ in self._programs.values()]

    @property
    def programs(self) -> list[Program]:
        """The programs, in the same order."""
        with self._lock:
            return [program for _, program in self._programs.values()]

    def latest(self) -> Program:
        """The most recently used program; itself, if there is none yet."""
        programs = self.programs
        return programs[-1].latest() if programs else self

    def scheduled(self) -> Graph:
        latest = self.latest()
        return self.graph if latest is self else latest.scheduled()

    def __call__(self, inputs: list[Tensor]) -> list[Tensor]:
        """`call` with a check of the inputs."""
        wanted = [value.type for value in self.graph.inputs]
        fits = len(inputs) == len(wanted) and all(
            not isinstance(kind, TensorType)
            or (x.dtype is kind.dtype and x.ndim == kind.ndim and x.device == kind.device)
            for x, kind in zip(inputs, wanted, strict=True)
        )
        if not fits:
            raise GraphError(f"graph @{self.graph.name} takes {', '.join(map(str, wanted))}")
        return self._call(inputs)

    def _call(self, inputs: list[Tensor]) -> list[Tensor]:
        program = self.for_inputs(inputs)
        handed = [inputs]
        del inputs  # a program may write to arrays that nobody else holds
        return program.call(handed.pop())

    def for_inputs(self, inputs: list[Tensor]) -> Program:
        """The program for the sizes of these inputs; built if there is none yet."""
        key = tuple([inputs[i]._data.shape for i in self._symbolic])
        with self._lock:
            found = self._programs.get(key)
            if found is not None:
                self._programs.move_to_end(key)
        return (found or self._specialize(key, inputs))[1]

    def _specialize(self, key: object, inputs: list[Tensor]) -> tuple[Mapping[str, int], Program]:
        sizes = sizes_of(self.graph, inputs)
        with self._lock:
            found = self._programs.get(key)
            if found is None:
                found = sizes, self._build(optimize(concrete(self.graph, sizes)))
                self._programs[key] = found
                if len(self._programs) > MOST:
                    self._programs.popitem(last=False)
            return found
