"""The GPU's emitter: loop groups as kernels of one module, products as calls of cuBLAS."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.codegen.arguments import arguments, places
from weft.codegen.contract import NotNative
from weft.codegen.cuda.loops import Launch, emit_group
from weft.codegen.cuda.machine import GpuMachine
from weft.codegen.cuda.target import CudaTarget
from weft.codegen.text import Module
from weft.ir.graph import Value
from weft.schedule.groups import Leaf
from weft.schedule.plan import Kernel, ProgramPlan, Step
from weft.schedule.target import Emitter
from weft.schedule.views import View

__all__ = ["CudaEmitter", "Work"]


@dataclass(frozen=True, slots=True)
class Work:
    """
    kind      "launch", "product" or "call"
    step      of the plan
    launches  the kernels of a launch
    buffers   the values behind its parameters, None for scratch memory
    views     of a product: how its operands lie
    """

    kind: str
    step: Step
    launches: tuple[Launch, ...] = ()
    buffers: tuple[Value | None, ...] = ()
    views: tuple[View, ...] = ()


@dataclass
class CudaEmitter(Emitter):
    """`work` is what a run does, in order, once `emit` was called."""

    machine: GpuMachine = field(default_factory=GpuMachine)

    def __post_init__(self) -> None:
        self.target = CudaTarget()
        self.module = Module(self.machine)
        self._launches: dict[int, tuple[Launch, ...]] = {}
        self.work: list[Work] = []

    def kernels(self, step: Step, name: str) -> list[Kernel] | None:
        group = step.group
        if group.kind == "loop":
            launches, scratch = emit_group(self.module, name, group, places(group)[0])
            self._launches[id(step)] = tuple(launches)
            each = step.work().bytes / 3e3 / len(launches)  # ns at 3 TB/s
            return [Kernel(one.name, 1, max(each, 1500.0), scratch) for one in launches]
        if group.kind == "kernel":
            return [Kernel(name, 1, max(step.work().flops / 4e4, 2500.0))]
        if group.kind == "control":
            raise NotNative(f"{step.nodes[0].op.name} has no code for GPUs yet")
        return []

    def emit(self, plan: ProgramPlan) -> None:
        for step in plan.root.steps:
            if step.kind == "loop":
                buffers = tuple(arguments(step.group, step.kernels))
                self.work.append(Work("launch", step, self._launches[id(step)], buffers))
            elif step.kind == "kernel":
                operands = step.group.operands[step.nodes[0]]
                leaves = [leaf for leaf in operands if isinstance(leaf, Leaf)]
                buffers = (*[leaf.root for leaf in leaves], step.nodes[0].outputs[0])
                views = tuple(leaf.view for leaf in leaves)
                self.work.append(Work("product", step, buffers=buffers, views=views))
            else:
                self.work.append(Work("call", step))
