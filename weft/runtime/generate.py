"""Generates the LLVM module of a graph. Only processes that compile import this."""

from __future__ import annotations

from weft.base.config import verifies_plans
from weft.codegen.checks.module import CheckedModule
from weft.codegen.machine import host
from weft.codegen.program import CpuEmitter
from weft.codegen.text import Module
from weft.ir.graph import Graph
from weft.passes.lowering.lower import lowered
from weft.runtime.entry import add_run
from weft.schedule.plan import ProgramPlan
from weft.schedule.planner import plan_program
from weft.schedule.scheduled import scheduled
from weft.schedule.verify import verify_plan

__all__ = ["generated", "scheduled"]


def generated(
    graph: Graph,
    keeps: bool,
    clock: int | None,
    module: Module | None = None,
    *,
    check: bool = False,
) -> tuple[CpuEmitter, ProgramPlan]:
    """The program of a graph, and its plan. `keeps`: whether it returns stacks."""
    whole = lowered(graph)
    emitter = CpuEmitter(module or (CheckedModule if check else Module)(host()), clock=clock)
    plan = plan_program(whole, emitter)
    if check or verifies_plans():
        verify_plan(plan, emitter.target)
    emitter.emit(plan)
    if emitter.timing is not None:
        emitter.timing.finish()
    if emitter.checking is not None:
        emitter.checking.finish()
    add_run(emitter.module, len(whole.inputs) + len(whole.outputs) if keeps else None)
    return emitter, plan
