"""Split graphs as programs: segments on their devices, run by the dataflow executor."""

from __future__ import annotations

import importlib

from weft.core.tensor import Tensor
from weft.ir.graph import Graph
from weft.runtime.dataflow.options import Dataflow
from weft.runtime.dataflow.program import DataflowProgram
from weft.runtime.split.choose import check_rules
from weft.runtime.split.devices import engine
from weft.runtime.split.options import Split
from weft.runtime.split.place import Placement, place

__all__ = ["SplitProgram", "check"]

importlib.import_module("weft.runtime.split.tasks")  # enters the tasks of segments and transfers


def check(options: Split) -> None:
    """Raise what is wrong with options before anything is compiled."""
    if options.placement != "auto":
        for device in check_rules(options.placement).values():
            engine(device)
    for name in options.names:
        engine(name)


class SplitProgram(DataflowProgram):
    """Runs a graph in segments, each on its device."""

    way = "split"

    def __init__(self, graph: Graph, options: Split) -> None:
        self.placement: Placement = place(graph, options.placement, devices=options.names)
        super().__init__(self.placement.split(), Dataflow(*options.executor()))
        self._graph = graph

    @property
    def reason(self) -> str:  # type: ignore[override]  # what it costs is measured when asked for
        """Where its parts run, and what that costs."""
        return f"it is split:\n{self.placement.explain()}"

    def __call__(self, inputs: list[Tensor]) -> list[Tensor]:
        return super().__call__(list(inputs))  # outputs may be delivered to these inputs
