"""Generates the LLVM module of a graph. Only processes that compile import this."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from weft.base.config import verifies_plans
from weft.base.dims import has_dims
from weft.base.errors import UnknownSizeError
from weft.codegen.checks.module import CheckedModule
from weft.codegen.machine import host
from weft.codegen.program import CpuEmitter
from weft.codegen.sizes import CALLED, GENERATED
from weft.codegen.text import Module
from weft.ir.concrete import bounds_of, late_names, names_of_inputs
from weft.ir.graph import Graph, Value
from weft.ir.types import TensorType
from weft.ops.index_shape import indices_in_range
from weft.passes.lowering.lower import lowered
from weft.passes.lowering.messages import Messages
from weft.runtime.entry import add_run
from weft.runtime.size_table import SizeTable, filled_sizes, recipe
from weft.schedule.plan import GraphPlan, ProgramPlan
from weft.schedule.planner import plan_program
from weft.schedule.scheduled import scheduled
from weft.schedule.verify import PlanError, verify_plan

__all__ = ["PlanError", "generated", "recipe_of", "scheduled"]


def generated(
    graph: Graph,
    keeps: bool,
    clock: int | None,
    module: Module | None = None,
    *,
    check: bool = False,
) -> tuple[CpuEmitter, ProgramPlan]:
    """The program of a graph, and its plan. `keeps`: whether it returns stacks."""
    whole = Messages().run(lowered(graph))
    emitter = CpuEmitter(module or (CheckedModule if check else Module)(host()), clock=clock)
    names, late = names_of_inputs(whole), late_names(whole)
    emitter.module.varies = bool(names or late)
    emitter.module.sizes.late = late
    emitter.target.late = frozenset(late)
    if any(name.startswith(GENERATED) or name in CALLED for name in names | late):
        raise UnknownSizeError(
            f"a size has a name like those of generated sizes: {', '.join(names)}"
        )
    plan = plan_program(whole, emitter)
    if check or verifies_plans():
        for sizes in _examples(emitter, plan):
            verify_plan(plan, emitter.target, sizes)
    if late:
        table = emitter.module.sizes
        limits = [*table.needed, *_indexed(plan.root)]
        emitter.tellers.needed = [size for size in limits if table.is_late(size)]
    emitter.emit(plan)
    if emitter.timing is not None:
        emitter.timing.finish()
    if emitter.checking is not None:
        emitter.checking.finish()
    slots = len(emitter.module.sizes.expressions) if late else 0
    add_run(emitter.module, len(whole.inputs) + len(whole.outputs) if keeps else None, slots)
    return emitter, plan


# --- sizes of the run -----------------------------------------------------------------------------


def recipe_of(
    emitter: CpuEmitter, plan: ProgramPlan, *, late: bool = False
) -> dict[str, Any] | None:
    """What a call needs for the sizes of a run (`weft.runtime.size_table`); None if there are
    none. `late`: with sizes that depend on data, as if they were known before the run."""
    sizes, root = emitter.module.sizes, plan.root
    if not emitter.module.varies:
        return None
    names: list[Any] = sorted(names_of_inputs(root.graph))
    filled = [*names, *filled_sizes(_shapes(root)), *_indexed(root)]
    filled += [size for size in sizes.needed if has_dims((size,))]
    if late:
        return recipe(sizes.expressions, sizes.named, plan.buffers, root.arena, filled)
    read = [0 if sizes.is_late(size) else size for size in sizes.expressions]
    named = {name: text for name, text in sizes.named.items() if not sizes.late_in(text)}
    filled = [size for size in filled if not sizes.is_late(size)]
    made = recipe(read, named, plan.buffers, root.arena, filled)
    made["late"] = {name: sizes.place_of(name) for name in sorted(sizes.late)}
    return made


def _shapes(root: GraphPlan) -> list[tuple[int, ...]]:
    """The shapes of all tensors of a program."""
    kinds = [value.type for _, plan in root.walk() for value in plan.graph.values()]
    return [kind.shape for kind in kinds if isinstance(kind, TensorType)]


def _indexed(root: GraphPlan) -> list[int]:
    """Sizes that are at least 1 where all numbers in indices are in range."""
    found: list[int] = []
    for _, plan in root.walk():
        for node in plan.graph.nodes:
            if "index" not in node.attrs:
                continue
            shape = node.attrs["shape"] if "shape" in node.attrs else _shape(node.inputs[0])
            found += [n for n in indices_in_range(shape, node.attrs["index"]) if has_dims((n,))]
    return found


def _shape(value: Value) -> tuple[int, ...]:
    return value.tensor_type.shape


def _examples(emitter: CpuEmitter, plan: ProgramPlan) -> Iterator[Mapping[str, int]]:
    """Sizes for which a plan is verified: values for all names in it."""
    made = recipe_of(emitter, plan, late=True)
    if made is None:
        yield {}
        return
    table = SizeTable(made)
    late = emitter.module.sizes.late
    bounds = {**bounds_of(plan.root.graph), **dict.fromkeys(late, (1, None))}
    for start, apart in ((1, 0), (5, 2), (64, 64)):
        sizes = {
            name: min(max(start + apart * i, low), high or start + apart * i)
            for i, (name, (low, high)) in enumerate(sorted(bounds.items()))
        }
        if table.fits(sizes):
            known = table.known(sizes)
            yield {name: value for name, value in known.items() if isinstance(value, int)}
