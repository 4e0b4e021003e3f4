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

import ctypes
import itertools
import threading
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
from weft.runtime.sized_call import SizedCalls, sized_calls

if TYPE_CHECKING:
    from weft.runtime.native import NativeProgram

__all__ = ["SizedProgram"]

#: How many sets of sizes are kept at least, and at most. Between these, their memory decides: all
#: together may have so many bytes. The one that was made first goes first.
LEAST, MOST, ROOM = 16, 256, 1 << 28


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
        self._programs: dict[object, tuple[Mapping[str, int], Program, int]] = {}
        #: Calls of these programs, by their sizes, in one dispatcher for each routing.
        self._calls: list[tuple[dict[object, Call], SizedCalls | None]] = []
        self._made = itertools.count()  # numbers of programs
        self._last = (ctypes.c_int64 * 1)(-1)  # the number of the last one that was called
        self._room = 0  # bytes of their memory
        self._lock = threading.RLock()
        self.call: Call = self._dispatching(lambda program: program.call)

    @property
    def graph(self) -> Graph:
        return self.native.graph

    @property
    def sizes(self) -> list[Mapping[str, int]]:
        """The sizes that calls had, those of the last call last."""
        return [sizes for sizes, _, _ in self._in_order()]

    @property
    def programs(self) -> list[Program]:
        """The program for each of these sizes: all have the same code."""
        return [program for _, program, _ in self._in_order()]

    def _in_order(self) -> list[tuple[Mapping[str, int], Program, int]]:
        with self._lock:
            found = [*self._programs.values()]
        return sorted(found, key=lambda row: row[2] == self._last[0])

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

        def missed(inputs: list[Tensor]) -> list[Tensor]:
            key = tuple([inputs[i]._data.shape for i in symbolic])
            _, program, number = self._for_key(key, inputs)
            found = calls.get(key)
            if found is None:
                found = calls[key] = call_of(program)
                if fast is not None:
                    fast.keep([*itertools.chain(*key)], found, number)
            self._last[0] = number
            handed = [inputs]
            del inputs  # a program may write to arrays that nobody else holds
            return found(handed.pop())

        sized = [(i, len(self._inputs[i].tensor_type.shape)) for i in symbolic]
        fast = sized_calls(len(self._inputs), sized, missed, self._last)
        self._calls.append((calls, fast))
        return missed if fast is None else fast.call

    def for_inputs(self, inputs: list[Tensor]) -> Program:
        """The program for the sizes of these inputs."""
        return self._for_key(tuple([inputs[i]._data.shape for i in self._symbolic]), inputs)[1]

    def _for_key(self, key: object, inputs: list[Tensor]) -> tuple[Mapping[str, int], Program, int]:
        with self._lock:
            found = self._programs.get(key)
            if found is None:
                sizes = sizes_of(self.native.captured, inputs)
                found = self._programs[key] = sizes, self._adapted(sizes), next(self._made)
                self._room += _memory(found[1])
                self._forget()
            return found

    def _adapted(self, sizes: Mapping[str, int]) -> Program:
        if self.native.fits(sizes):
            return self.native.for_sizes(sizes)
        return InterpretedProgram(self.native.graph, "a tensor would be empty")

    def _forget(self) -> None:
        """Drop the oldest sets of sizes, if there are too many."""
        while len(self._programs) > MOST or (len(self._programs) > LEAST and self._room > ROOM):
            key = next(iter(self._programs))
            _, program, _ = self._programs.pop(key)
            self._room -= _memory(program)
            for calls, fast in self._calls:
                call = calls.pop(key, None)
                if fast is not None and call is not None:
                    fast.forget(call)


def _memory(program: Program) -> int:
    arena: int = getattr(program, "arena", 0)
    return arena
