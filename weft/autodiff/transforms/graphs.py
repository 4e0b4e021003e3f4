"""Recorded graphs inside of a function that `vmap` or `jvp` runs.

Their ops are called one by one, like all ops there. If a condition differs between elements, all
branches run and each element takes its own results; see `control`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.autodiff.transforms.control import (
    is_mapped,
    mapped_cond,
    mapped_switch,
    mapped_while,
)
from weft.base.errors import CaptureError
from weft.core.autocast import as_recorded
from weft.core.bind import bind
from weft.ir.graph import Graph, Node
from weft.ir.interpret import PreparedGraph
from weft.ops.control import IF, SWITCH, WHILE

__all__: list[str] = []


class GraphRun:
    """Runs a graph by op calls on the current level; control flow runs its nested graphs alike.

    It is what the evaluation of control flow is given, too: `run(program, inputs)`, `run.call`.
    """

    call = staticmethod(bind)

    def __init__(self, graph: Graph) -> None:
        self.sizes: dict[str, int] = {}  # what symbolic sizes are in this run
        self._program = PreparedGraph(graph)
        self._nested: dict[Node, list[PreparedGraph]] = {}

    def outputs(self, inputs: Sequence[Any]) -> list[Any]:
        with as_recorded():
            return self(self._program, inputs)

    def __call__(self, program: PreparedGraph, inputs: Sequence[Any]) -> list[Any]:
        slots = program.run(inputs, bind, dict(self.sizes), self._control)
        return [slots[i] for i in program.outputs]

    def _control(self, node: Node, given: list[Any], attrs: Mapping[str, Any]) -> Any:
        programs = self._nested.get(node)
        if programs is None:
            programs = self._nested[node] = [PreparedGraph(graph) for graph in node.graphs]
        if node.op is IF and is_mapped(given[0]):
            then, otherwise = map(self._branch, programs)
            return mapped_cond(given[0], then, otherwise, given[1:])
        if node.op is SWITCH and is_mapped(given[0]):
            return mapped_switch(given[0], [self._branch(p) for p in programs], given[1:])
        if node.op is WHILE:
            return self._loop(programs, given, **attrs)
        evaluate: Any = node.op.eval
        return evaluate(self, *given, graphs=programs, **attrs)

    def _branch(self, program: PreparedGraph) -> Callable[..., list[Any]]:
        return lambda *operands: self(program, operands)

    def _loop(
        self, programs: list[PreparedGraph], given: list[Any], consts: int, counted: bool
    ) -> list[Any]:
        condition, body = programs
        fixed, carry = given[:consts], given[consts:]

        def test(carry: list[Any]) -> Any:
            return self(condition, [*fixed, *carry])[0]

        def step(carry: list[Any]) -> list[Any]:
            return self(body, [*fixed, *carry])

        if counted:
            raise CaptureError(
                "this loop was recorded together with its backward, which keeps a stack of values "
                "of another depth for each element",
                op="vmap",
                hint="differentiate outside: vmap(grad(compile(f))) and grad(vmap(compile(f)))",
            )
        while True:
            going = test(carry)
            if is_mapped(going):
                found: list[Any] = mapped_while(test, step, carry, going)
                return found
            if not going:
                return carry
            carry = step(carry)
