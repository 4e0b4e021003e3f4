"""Runs graphs op by op, if machine code is not wanted or not possible."""

from __future__ import annotations

from typing import Any

from weft.core.autocast import as_recorded
from weft.core.bind import bind
from weft.core.grad_mode import no_grad
from weft.core.tensor import Tensor, wrap
from weft.ir.graph import Graph
from weft.ir.interpret import PreparedGraph
from weft.ops.collective import compare_graphs, first_collectives
from weft.runtime.executable import Program

__all__ = ["InterpretedProgram", "interpreted"]


class InterpretedProgram(Program):
    """Runs a graph op by op. `reason` says why it is not machine code."""

    def __init__(self, graph: Graph, reason: str = "it was asked for") -> None:
        self._graph = graph
        self.reason = reason
        self.call = self.__call__
        self._program = PreparedGraph(graph)
        self._collectives = first_collectives(graph)

    def __call__(self, inputs: list[Tensor]) -> list[Tensor]:
        while self._collectives:
            compare_graphs(self._collectives.pop(0), self._graph)
        handed = [inputs]
        del inputs  # the run frees each input after its last use: hold no reference here
        return interpreted(self._program, handed.pop())


def interpreted(program: PreparedGraph, inputs: list[Any]) -> list[Any]:
    """The outputs of an interpreted run, as tensors that nobody else holds."""
    handed = [inputs]
    del inputs  # the run frees each input after its last use: hold no reference here
    with no_grad(), as_recorded():
        slots = program.run(handed.pop(), bind)
    found = [slots[i] for i in program.outputs]
    return [wrap(x._data) if isinstance(x, Tensor) else x for x in found]
