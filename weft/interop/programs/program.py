"""`Program`: a function as a graph with its state, that needs no source."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weft.capture.trace.captured import Captured
from weft.capture.trace.inspectable import Policy, Recording
from weft.capture.trace.repeated import Miss
from weft.compile import builder_of
from weft.core.grad_mode import no_grad
from weft.core.tensor import Tensor, wrap
from weft.interop.programs.arguments import Arguments
from weft.interop.programs.call import ProgramBody, ProgramCall
from weft.interop.programs.example_sizes import replaced_shape
from weft.interop.programs.file import read_program, write_program
from weft.interop.programs.run import Routine
from weft.interop.programs.state import ProgramState
from weft.ir.graph import Graph
from weft.ir.signature import SAME, Given, Made
from weft.ir.types import TensorType
from weft.ops.creation import zeros
from weft.runtime.executable import Executable

__all__ = ["Port", "Program", "StateEntry", "load_program"]


@dataclass(frozen=True)
class Port:
    """One tensor that goes in or comes out: its name, and its type, whose sizes may be names."""

    name: str
    type: TensorType


@dataclass(frozen=True)
class StateEntry:
    """One tensor of the state.

    name    its key in `program.state`; of a gradient that is carried along: "weight.grad"
    type    its type, which no call changes
    learns  whether it requires a gradient
    output  the output of the graph that is its new value after a call; None: it stays as it is
    grad    the output that is its new gradient; None: it has none, or keeps it
    """

    name: str
    type: TensorType
    learns: bool
    output: int | None = None
    grad: int | None = None


class Preparable(Captured[Any, Any]):
    """A captured function that can be compiled before its first call."""

    def prepare_for(self, inputs: Sequence[Tensor], sizes: Mapping[str, int]) -> None:
        """Compile for such inputs, and run nothing. `sizes`: what named sizes are in them."""
        reason, start = "it was prepared", time.perf_counter()
        with self._lock, no_grad():
            found, _, _ = self._captured(tuple(inputs), {}, Miss([], reason), False)
            for segment in self.segments():
                if segment.fast_path is None and segment.ready is None:
                    segment.ready = self._ready(segment)
        for made in self.programs:
            if isinstance(made, Executable):  # where one serves all sizes, that for these
                kinds = [value.tensor_type for value in made.captured.inputs]
                made.program.for_inputs(
                    [zeros(replaced_shape(k.shape, sizes), dtype=k.dtype) for k in kinds]
                )
        outcome, seconds = f"{len(found.graph.nodes)} ops", time.perf_counter() - start
        number, notes = len(self.recordings), found.watch.notes
        self.recordings.append(Recording(number, reason, seconds, outcome, notes, self._prepared))


class CompiledBody(Preparable):
    """The compiled body of a program. Wrong inputs are errors before anything is recorded."""

    arguments: Arguments
    routine: Routine

    def _record(self, args: Any, kwargs: Any, miss: Any, inside: bool = False) -> Any:
        self.arguments.check(args, self.routine)
        return super()._record(args, kwargs, miss, inside)

    def prepare(self, inputs: Sequence[Tensor]) -> None:
        """Compile for such inputs, and run nothing: for tools that show a program."""
        self.prepare_for(inputs, self.arguments.check(inputs, self.routine))


class Program(ProgramCall):
    """What `weft.export` makes and `weft.load_program` reads.

    state       its tensors by name: parameters, buffers, moments, the state of random numbers.
                Calls write to them, and so may you
    inputs      the tensors that a call takes, flat: `Port(name, type)`
    results     the tensors that it gives, flat
    compiled    the compiled function of the flat inputs: what `weft.explain` shows
    """

    def __init__(
        self,
        routine: Routine,
        arguments: Arguments,
        state: Mapping[str, Tensor],
        backend: str | None = None,
    ) -> None:
        self.routine = routine
        self.arguments = arguments
        self.name = arguments.function
        places = routine.signature.places[len(arguments.names) :]
        types = {place.name: place.type for place in places if place.type and place.name in state}
        self.state: dict[str, Tensor] = ProgramState(self.name, types, state)
        self.__name__ = self.name
        self.backend = backend
        body = ProgramBody(arguments, routine, self.state)
        dynamic = arguments.dynamic
        policy = Policy(dynamic=dynamic or False)
        self.compiled = CompiledBody(body, builder_of(backend), policy)
        self.compiled.arguments, self.compiled.routine = arguments, routine

    def __repr__(self) -> str:
        inputs = ", ".join(f"{port.name}: {port.type}" for port in self.inputs)
        return f"<program {self.name}({inputs}): {len(self.state)} tensors of state>"

    # --- what it takes and gives --------------------------------------------------------------

    @property
    def inputs(self) -> tuple[Port, ...]:
        """The tensors among the arguments, in order: the first inputs of the graph."""
        return tuple(map(Port, self.arguments.names, self.arguments.types))

    @property
    def results(self) -> tuple[Port, ...]:
        """The tensors in the result, in order."""
        signature = self.routine.signature
        found: list[Port] = []
        for leaf, name in zip(signature.leaves, signature.result.names("result"), strict=True):
            if isinstance(leaf, Made):
                found.append(Port(name, signature.outputs[leaf.output]))
            elif isinstance(leaf, Given):
                kind = signature.places[leaf.place].type
                assert kind is not None
                found.append(Port(name, kind))
        return tuple(found)

    @property
    def state_entries(self) -> tuple[StateEntry, ...]:
        """The state, flat, in the order of the inputs of the graph after the arguments."""
        signature = self.routine.signature
        writes = {write.place: write for write in signature.writes}
        found: list[StateEntry] = []
        for number in range(len(self.inputs), len(signature.places)):
            place, write = signature.places[number], writes.get(number)
            of = self.routine.grads.get(number)
            output = None if write is None else write.value
            grad = None if write is None or write.grad == SAME else write.grad
            source = None if of is None else writes.get(of)
            if source is not None and isinstance(source.grad, int):
                output = source.grad
            learns = of is None and self.state[place.name].requires_grad
            assert place.type is not None
            grad = grad if isinstance(grad, int) else None
            found.append(StateEntry(place.name, place.type, learns, output, grad))
        return tuple(found)

    def graph(self, stage: str = "captured") -> Graph:
        """Its graph: "captured", as it was exported; or, of the latest program that a call made,
        "optimized" or "scheduled"."""
        if stage == "captured":
            return self.routine.graph
        found: Graph = self.compiled.graph(stage)
        return found

    # --- copies -------------------------------------------------------------------------------

    def copy(self) -> Program:
        """Another instance: the same program, with a state of its own."""
        return Program(
            self.routine,
            self.arguments,
            {name: own_tensor(x) for name, x in self.state.items()},
            self.backend,
        )

    def compiled_for_tools(self) -> Captured[Any, Any]:
        """The compiled function; if it was never called, one that is compiled for some sizes."""
        if self.compiled.recordings:
            found: Captured[Any, Any] = self.compiled
            return found
        made = self.copy().compiled
        made.prepare(
            [zeros(k.shape, dtype=k.dtype) for k in self.arguments.examples(self.routine.facts)]
        )
        return made  # type: ignore[no-any-return]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program, with its state as it is now, to a file: one zip of graph text,
        safetensors and JSON. See docs/programs.md."""
        write_program(path, self.routine, self.arguments, self.state)

    def build(self, path: str | os.PathLike[str], **options: Any) -> Any:
        """A library without Python: `weft.build_library(program, path, target=…, sizes=…)`. See
        docs/libraries.md."""
        build_library = importlib.import_module("weft.interop.library.build").build_library
        return build_library(self, path, **options)


def own_tensor(tensor: Tensor) -> Tensor:
    """A tensor with the same value, that nobody else writes to."""
    made = wrap(tensor._data)
    if tensor.requires_grad and tensor.is_leaf:
        made.requires_grad = True
    grad = tensor.grad if tensor.is_leaf else None
    if grad is not None:
        made.grad = wrap(grad._data)
    return made


def load_program(path: str | os.PathLike[str], *, backend: str | None = None) -> Program:
    """Read a program that `program.save` wrote. Nothing in the file is run.

    backend   "native" or "interpret", as in `weft.compile`
    """
    return Program(*read_program(path), backend)
