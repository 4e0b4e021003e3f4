"""Graphs as programs that the dataflow executor runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.core.autocast import as_recorded
from weft.core.grad_mode import no_grad
from weft.core.tensor import Tensor
from weft.ir.graph import Graph
from weft.ir.interpret import sizes_of
from weft.ops.collective import compare_graphs, first_collectives
from weft.passes.lowering.frames import LowerControlFlow
from weft.runtime.dataflow.arrays import Env, outside
from weft.runtime.dataflow.failures import cannot_finish
from weft.runtime.dataflow.options import Dataflow
from weft.runtime.dataflow.plan import ExecutionPlan
from weft.runtime.dataflow.run import Run
from weft.runtime.dataflow.schedulers import scheduler_named
from weft.runtime.dataflow.timeline import RecordedRun, Timeline
from weft.runtime.executable import Program

__all__ = ["DataflowProgram"]


class DataflowProgram(Program):
    """Runs a graph node by node, as their inputs come."""

    reason = "node by node, by the dataflow executor"
    way = "dataflow"

    def __init__(self, graph: Graph, options: Dataflow) -> None:
        self._graph = graph
        self.options = options
        self.lowered = LowerControlFlow().run(graph)
        self.plan = ExecutionPlan(self.lowered)
        self.schedule = scheduler_named(options.scheduler)
        self._collectives = first_collectives(graph)
        if self._collectives:
            # All ranks must meet in the same order, whatever each of them waits for: the program's.
            self.schedule = scheduler_named("deterministic")
        self.call = self.__call__

    def scheduled(self) -> Graph:
        """The graph in primitives of control flow."""
        return self.lowered

    def __call__(self, inputs: list[Tensor]) -> list[Tensor]:
        values = [x._data if isinstance(x, Tensor) else x for x in inputs]
        del inputs  # the run frees each input after its last use: hold no reference here
        with no_grad(), as_recorded():
            found = self.run(values)
        return [outside(value) for value in found]

    def recorder(self) -> Callable[[list[Tensor]], tuple[list[Tensor], Any]]:
        return self.recorded

    def recorded(self, inputs: list[Tensor]) -> tuple[list[Tensor], Timeline]:
        """A call whose steps are noted."""
        made: list[RecordedRun] = []

        def note(plan: ExecutionPlan, options: Dataflow, env: Env) -> Run:
            made.append(RecordedRun(plan, options, env))
            return made[0]

        with no_grad(), as_recorded():
            found = self.run([x._data if isinstance(x, Tensor) else x for x in inputs], note)
        return [outside(value) for value in found], made[0].timeline

    def run(self, values: list[Any], begin: Callable[..., Run] = Run) -> list[Any]:
        """The outputs for these arrays; the list is emptied."""
        while self._collectives:
            compare_graphs(self._collectives.pop(0), self._graph)
        env = Env(sizes_of(self._graph, values))
        run = begin(self.plan, self.options, env)
        try:
            self.schedule(run, values)
        finally:
            run.close()
            env.close()
        if run.failure is not None:
            error = run.failure.error
            raise error from error.__cause__
        if run.results is None:
            raise cannot_finish(run)
        return run.results
