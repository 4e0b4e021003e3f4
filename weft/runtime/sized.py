"""Graphs with symbolic sizes: one program of machine code for all sizes.

>>> graph = weft.make_graph(lambda x: x * 2, weft.spec(("B", 4)))
>>> program = weft.runtime.native.native(graph)
>>> [program([weft.ones((n, 4))])[0].shape for n in (3, 1, 0)]
[(3, 4), (1, 4), (0, 4)]

Its code reads sizes from a table, see `weft.codegen.sizes`. What a set of sizes needs besides is
made when it is first seen, in well under a millisecond: its table, and a call with results and
memory of these sizes. Sizes for which a tensor of the graph would be empty are interpreted: there
is hardly anything to compute.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from weft.base.dims import has_dims
from weft.base.errors import GraphError
from weft.core.tensor import Tensor
from weft.ir.graph import Graph
from weft.ir.interpret import sizes_of
from weft.ir.signature import OutputRouting
from weft.ir.types import TensorType
from weft.runtime.executable import Program
from weft.runtime.interpreted import InterpretedProgram
from weft.runtime.output_routing import Call, deliver

if TYPE_CHECKING:
    from weft.runtime.native import NativeProgram

__all__ = ["SizedProgram"]

#: The number of sets of sizes that are kept; the least recently used one goes first.
MOST = 16


class SizedProgram(Program):
    """A graph with symbolic sizes; `native` is its program, which `for_sizes` adapts."""

    def __init__(self, native: NativeProgram) -> None:
        self.native = native
        graph = native.captured
        self._inputs = graph.inputs
        self._symbolic = [
            i
            for i, value in enumerate(graph.inputs)
            if isinstance(value.type, TensorType) and has_dims(value.type.shape)
        ]
        self._programs: OrderedDict[object, tuple[Mapping[str, int], Program]] = OrderedDict()
        self._lock = threading.RLock()
        self.call: Call = self._dispatching(lambda program: program.call)

    @property
    def graph(self) -> Graph:
        return self.native.graph

    @property
    def sizes(self) -> list[Mapping[str, int]]:
        """The sizes that calls had, the most recently used last."""
        with self._lock:
            return [sizes for sizes, _ in self._programs.values()]

    @property
    def programs(self) -> list[Program]:
        """The program for each of these sizes: all have the same code."""
        with self._lock:
            return [program for _, program in self._programs.values()]

    def latest(self) -> Program:
        """The program for the most recent sizes; itself, if there are none yet."""
        programs = self.programs
        return programs[-1] if programs else self

    def scheduled(self) -> Graph:
        return self.native.scheduled()

    def __call__(self, inputs: list[Tensor]) -> list[Tensor]:
        """`call` with a check of the inputs."""
        wanted = [value.type for value in self._inputs]
        fits = len(inputs) == len(wanted) and all(
            not isinstance(kind, TensorType)
            or (x.dtype is kind.dtype and x.ndim == kind.ndim and x.device == kind.device)
            for x, kind in zip(inputs, wanted, strict=True)
        )
        if not fits:
            name = self.native.captured.name
            raise GraphError(f"graph @{name} takes {', '.join(map(str, wanted))}")
        sizes_of(self.native.captured, inputs)  # raises where sizes do not fit together
        return self.call(inputs)

    def routed_call(self, routing: OutputRouting) -> Call | None:
        def call_of(program: Program) -> Call:
            found = program.routed_call(routing)
            if found is not None:
                return found
            call = program.call
            return lambda inputs: deliver(routing, inputs, call(inputs))

        return self._dispatching(call_of)

    def _dispatching(self, call_of: Callable[[Program], Call]) -> Call:
        """A call that finds the program for the sizes of its inputs."""
        calls: dict[object, Call] = {}
        symbolic = self._symbolic

        def call(inputs: list[Tensor]) -> list[Tensor]:
            key = tuple([inputs[i]._data.shape for i in symbolic])
            found = calls.get(key)
            if found is None:
                program = self._for_key(key, inputs)
                if len(calls) >= MOST:
                    calls.clear()
                found = calls[key] = call_of(program)
            handed = [inputs]
            del inputs  # a program may write to arrays that nobody else holds
            return found(handed.pop())

        return call

    def for_inputs(self, inputs: list[Tensor]) -> Program:
        """The program for the sizes of these inputs."""
        return self._for_key(tuple([inputs[i]._data.shape for i in self._symbolic]), inputs)

    def _for_key(self, key: object, inputs: list[Tensor]) -> Program:
        with self._lock:
            found = self._programs.get(key)
            if found is None:
                sizes = sizes_of(self.native.captured, inputs)
                program: Program
                if self.native.fits(sizes):
                    program = self.native.for_sizes(sizes)
                else:
                    program = InterpretedProgram(self.native.graph, "a tensor would be empty")
                found = self._programs[key] = sizes, program
                if len(self._programs) > MOST:
                    self._programs.popitem(last=False)
            self._programs.move_to_end(key)
            return found[1]
