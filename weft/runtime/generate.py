"""A graph as the module of a program: the generators, which only those load who compile."""

from __future__ import annotations

from weft.base.config import verifies_plans
from weft.codegen.checks.module import CheckedModule
from weft.codegen.machine import host
from weft.codegen.program import ProgramCode
from weft.codegen.scheduled import scheduled
from weft.codegen.steps import GraphCode, described
from weft.codegen.text import Module
from weft.codegen.verify import verify_plan
from weft.ir.graph import Graph
from weft.runtime.entry import add_run
from weft.schedule.lowering import lowered

__all__ = ["described", "generated", "scheduled"]


def generated(
    graph: Graph,
    keeps: bool,
    clock: int | None,
    module: Module | None = None,
    *,
    check: bool = False,
) -> tuple[ProgramCode, GraphCode]:
    """The program of a graph, which `keeps` stacks or does not, and what it does as data."""
    whole = lowered(graph)
    made = ProgramCode(module or (CheckedModule if check else Module)(host()), clock=clock)
    code = made.graph(whole, "graph")
    if check or verifies_plans():
        verify_plan(code)
    if made.timing is not None:
        made.timing.finish()
    if made.checking is not None:
        made.checking.finish()
    add_run(made.module, len(whole.inputs) + len(whole.outputs) if keeps else None)
    return made, code
