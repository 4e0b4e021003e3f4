"""A program that is served: its tensors in words of the protocol, and its runs, alone or together.

Requests run together as `weft.vmap` says: each has the answer that it would have alone, whatever
the program does with its first axis. So nothing has to be known about the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.dims import dim
from weft.base.errors import DTypeError, WeftError
from weft.capture.trace.inspectable import Policy
from weft.compile import builder_of
from weft.core.grad_mode import no_grad
from weft.core.tensor import Tensor, wrap
from weft.interop.programs.call import ProgramBatch
from weft.interop.programs.example_sizes import example_sizes, names_in, replaced_shape
from weft.interop.programs.plain_trees import leaves_of
from weft.interop.programs.program import Preparable, Program
from weft.interop.serve.datatypes import NAMES, Array
from weft.interop.serve.protocol import Tensors
from weft.ir.signature import Constant, Made
from weft.ops.creation import asarray, zeros

__all__ = ["Served"]

#: The number of sets of sizes that are known to fit, of each program.
MOST_KNOWN = 4096
Key = tuple[tuple[int, ...], ...]


class Served:
    """One version of a model."""

    def __init__(self, name: str, version: int, program: Program, most: int = 1) -> None:
        """most: the number of requests that may run together"""
        self.name = name
        self.version = str(version)
        self.program = program.copy()  # calls elsewhere do not change its state
        self.inputs = Tensors(program.inputs)
        self.results = Tensors(program.results)
        for said, tensors in (("input", self.inputs), ("output", self.results)):
            for port in tensors.ports:
                if port.type.dtype not in NAMES:
                    raise DTypeError(
                        f"{said} {port.name} of {name} is {port.type}, and the protocol has no "
                        f"datatype for {port.type.dtype.name}",
                        op="serve",
                    )
        signature = program.routine.signature
        self.writes = [signature.places[write.place].name for write in signature.writes]
        self.most = most
        self.why_alone = self._why_alone()
        self._count = "requests"  # the name of how many run together
        self._together = None if self.why_alone else self._batched()
        self._known: set[Key] = set()

    # --- running together ---------------------------------------------------------------------

    def _why_alone(self) -> str:
        """Why requests do not run together, in words; empty if they may."""
        leaves = self.program.routine.signature.leaves
        if self.most == 1:
            return "the largest batch is 1"
        if self.writes:
            return "it writes to its state"
        if not self.inputs.ports:
            return "it takes no tensors"
        if any(isinstance(leaf, Made) and leaf.is_number for leaf in leaves):
            return "it gives a Python number"
        return ""

    def _batched(self) -> Preparable:
        arguments = self.program.arguments
        taken = {name for k in arguments.types for size in k.shape for name, _, _ in names_in(size)}
        while self._count in taken:
            self._count += "_"
        count = dim(self._count, min=1)
        types = [kind.like(shape=(count, *kind.shape)) for kind in arguments.types]
        dynamic = dict(zip(arguments.flat_signature.parameters, types, strict=True))
        policy = Policy(dynamic=dynamic)
        return Preparable(ProgramBatch(self.program), builder_of(self.program.backend), policy)

    def prepare(self) -> None:
        """Compile for a request with one row, and for several of these; run nothing."""
        types = self.program.arguments.types
        sizes = example_sizes(types, self.program.routine.facts)
        leading = [
            found for kind in types for found in names_in(kind.shape[0] if kind.shape else 0)
        ]
        sizes |= {name: max(1, low) for name, low, _ in leading}
        alone = [zeros(replaced_shape(k.shape, sizes), dtype=k.dtype) for k in types]
        self.program.compiled.prepare(alone)
        if self._together is None:
            return
        several = [zeros((2, *x.shape), dtype=x.dtype) for x in alone]
        try:
            self._together.prepare_for(several, {**sizes, self._count: 2})
        except WeftError as error:
            self._together, self.why_alone = None, error.message

    @property
    def batches(self) -> bool:
        return self._together is not None

    # --- calls --------------------------------------------------------------------------------

    def checked(self, arrays: Sequence[Array]) -> tuple[Key, list[Tensor]]:
        """The tensors of a request, whose named sizes fit; those with one key can run together."""
        tensors = [wrap(x) for x in arrays]
        key = tuple([x.shape for x in arrays])
        if key not in self._known:
            self.program.arguments.check(tensors, self.program.routine)
            if len(self._known) < MOST_KNOWN:
                self._known.add(key)
        return key, tensors

    def run(self, requests: Sequence[Sequence[Tensor]]) -> list[list[Array]]:
        """The results of each request. With several, the first axis of none is touched."""
        if len(requests) == 1 or self._together is None:
            return [self._alone(inputs) for inputs in requests]
        with no_grad():
            columns = zip(*requests, strict=True)
            stacked = [wrap(np.stack([x._data for x in column])) for column in columns]
            found = self._arrays(self._together(*stacked))
        return [[x[i] for x in found] for i in range(len(requests))]

    def _alone(self, inputs: Sequence[Tensor]) -> list[Array]:
        if self.program.routine.writes_gradients:
            return self._arrays(self.program.compiled(*inputs))
        with no_grad():
            return self._arrays(self.program.compiled(*inputs))

    def _arrays(self, result: Any) -> list[Array]:
        signature, ports = self.program.routine.signature, self.results.ports
        leaves = zip(leaves_of(result, signature.result), signature.leaves, strict=True)
        found = [x for x, leaf in leaves if not isinstance(leaf, Constant)]
        return [
            (x if isinstance(x, Tensor) else asarray(x, dtype=port.type.dtype)).detach().numpy()
            for x, port in zip(found, ports, strict=True)
        ]

    def metadata(self, versions: Sequence[str]) -> dict[str, Any]:
        return {
            "name": self.name,
            "versions": list(versions),
            "platform": "weft",
            "inputs": self.inputs.metadata(),
            "outputs": self.results.metadata(),
        }
