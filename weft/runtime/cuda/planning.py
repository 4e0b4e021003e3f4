"""From a graph to the plan of its program for a GPU."""

from __future__ import annotations

from dataclasses import replace

from weft.base.config import verifies_plans
from weft.base.device import CPU, Device
from weft.base.precision import rounds_to_tf32
from weft.codegen.contract import NotNative
from weft.codegen.cuda.attention.eligible import attends
from weft.codegen.cuda.attention.joined import joined
from weft.codegen.cuda.emitter import CudaEmitter, NotForBlock
from weft.codegen.cuda.machine import GpuMachine
from weft.codegen.cuda.matrix import Gemm
from weft.codegen.cuda.parts import fits_parts
from weft.ir.graph import Graph
from weft.ir.op import Trait
from weft.ir.types import StackType, TensorType
from weft.passes.lowering.biased_products import biased_products
from weft.passes.lowering.lower import lowered
from weft.passes.lowering.narrow_products import narrow_products
from weft.passes.lowering.row_totals import row_totals
from weft.passes.lowering.split_products import split_products
from weft.schedule.plan import ProgramPlan
from weft.schedule.planner import plan_program
from weft.schedule.verify import verify_plan

__all__ = ["check", "device_of", "lowered_for_gpu", "planned"]


def check(graph: Graph) -> None:
    """Whether there is code for the whole graph."""
    nodes = [node for part in graph.walk() for node in part.nodes]
    for node in nodes:
        if node.op.traits & (Trait.EFFECT | Trait.DATA_SHAPE):
            raise NotNative(f"{node.op.name} has no code for GPUs yet")
    places = set()
    for value in [*graph.inputs, *(value for node in nodes for value in node.outputs)]:
        kind = value.type.innermost if isinstance(value.type, StackType) else value.type
        if not isinstance(kind, TensorType) or kind.layout != "dense":
            raise NotNative(f"{value} is not a dense tensor")
        if not all(isinstance(size, int) for size in kind.shape):
            raise NotNative(f"{value} has a size that is not known")
        if kind.device != CPU:
            places.add(kind.device)
    if len(places) != 1:
        raise NotNative("its tensors are on several GPUs")
    if places.pop().index:
        raise NotNative("there is code for the first GPU only")


def lowered_for_gpu(graph: Graph, machine: GpuMachine) -> Graph:
    """The graph in the ops that the target's kernels are made of."""
    made = lowered(graph, lambda fusion: attends(fusion, machine))
    made = row_totals(biased_products(narrow_products(joined(made))))
    if rounds_to_tf32():
        return made

    def fits(rows: int, columns: int, terms: int, left: bool, right: bool) -> bool:
        lies = (left, rows if left else terms), (right, terms if right else columns)
        return fits_parts(Gemm(rows, columns, terms, 1, *lies, (0, 0, 0), (0, 0, 0)), machine)

    return split_products(made, fits)


def planned(graph: Graph, machine: GpuMachine) -> tuple[ProgramPlan, CudaEmitter]:
    """The plan of a lowered graph, and its code."""
    try:
        return _planned(graph, machine)
    except NotForBlock:
        return _planned(graph, replace(machine, whole=False))


def _planned(graph: Graph, machine: GpuMachine) -> tuple[ProgramPlan, CudaEmitter]:
    emitter = CudaEmitter(machine)
    emitter.look_at(graph)
    plan = plan_program(graph, emitter)
    if verifies_plans():
        verify_plan(plan, emitter.target)
    emitter.emit(plan)
    return plan, emitter


def device_of(graph: Graph) -> Device:
    """The GPU that its tensors are on."""
    kinds = [value.type for value in graph.values()]
    return ({kind.device for kind in kinds if isinstance(kind, TensorType)} - {CPU}).pop()
