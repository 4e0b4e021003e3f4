"""Runs graphs op by op, where machine code is not asked for or cannot be had."""

from __future__ import annotations

from typing import Any

from weft.core.bind import bind
from weft.core.grad_mode import no_grad
from weft.core.tensor import Tensor, wrap
from weft.ir.graph import Graph
from weft.ir.interpret import PreparedGraph
from weft.runtime.executable import Program

__all__ = ["InterpretedProgram", "interpreted"]


class InterpretedProgram(Program):
    """A graph run op by op, and why it is not machine code."""

    def __init__(self, graph: Graph, reason: str = "it was asked for") -> None:
        self._graph = graph
        self.reason = reason
        self.call = self.__call__
        self._program = PreparedGraph(graph)

    def __call__(self, inputs: list[Tensor]) -> list[Tensor]:
        handed = [inputs]
        del inputs  # the run lets go of each input after its last use: nobody else may hold them
        return interpreted(self._program, handed.pop())


def interpreted(program: PreparedGraph, inputs: list[Any]) -> list[Any]:
    """What the interpreter makes of inputs: tensors of the run's own, that nobody else has."""
    handed = [inputs]
    del inputs  # the run lets go of each input after its last use: nobody else may hold them
    with no_grad():
        slots = program.run(handed.pop(), bind)
    found = [slots[i] for i in program.outputs]
    return [wrap(x._data) if isinstance(x, Tensor) else x for x in found]
