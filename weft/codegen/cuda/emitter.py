"""The GPU's emitter: loop groups as kernels of one module, products as calls of cuBLAS."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.codegen.arguments import arguments, places
from weft.codegen.contract import NotNative
from weft.codegen.cuda.block import BlockCode, room_of
from weft.codegen.cuda.convolution import CONVOLUTIONS
from weft.codegen.cuda.fits import block_threads
from weft.codegen.cuda.items import ITEM_OPS, emit_items
from weft.codegen.cuda.loops import Launch, emit_group
from weft.codegen.cuda.machine import GpuMachine
from weft.codegen.cuda.matrix import is_matrix, matrices
from weft.codegen.cuda.nodes import NODES, emit_check
from weft.codegen.cuda.target import CudaTarget, is_input
from weft.codegen.text import Module
from weft.ir.graph import Graph, Value
from weft.ops.cards import NLL
from weft.schedule.groups import Leaf
from weft.schedule.plan import Kernel, ProgramPlan, Step
from weft.schedule.target import Emitter
from weft.schedule.views import View

__all__ = ["EMPTY_STACKS", "FLAG", "STACKS", "CudaEmitter", "Work"]

#: Among the buffers of a launch: a number that is not 0 once a kernel has failed; and the bounds of
#: the memory of stacks, three addresses: the end of what is used, the start, the end. The first
#: kernel of a run reads the start as the end of what is used.
FLAG, STACKS, EMPTY_STACKS = "flag", "stacks", "empty stacks"


#: Bytes of memory that a thread may have for its variables.
LOCAL = 1 << 16


@dataclass(frozen=True, slots=True)
class Work:
    """
    kind      "launch", "product", "convolution" or "call"
    step      of the plan
    launches  the kernels of a launch
    buffers   the values behind its parameters, None for scratch memory, `FLAG`
    views     of a product: how its operands lie
    """

    kind: str
    step: Step
    launches: tuple[Launch, ...] = ()
    buffers: tuple[Value | str | None, ...] = ()
    views: tuple[View, ...] = ()


@dataclass
class CudaEmitter(Emitter):
    """`work` is what a run does, in order, once `emit` was called."""

    machine: GpuMachine = field(default_factory=GpuMachine)

    def __post_init__(self) -> None:
        self.target = CudaTarget(self.machine)
        self.module = Module(self.machine)
        self.module.stack = LOCAL
        self.module.has_c_library = False
        self._launches: dict[int, tuple[Launch, ...]] = {}
        self._flagged: set[int] = set()  # steps whose kernels get the flag
        self._stacked: set[int] = set()  # those that get the bounds of the stacks' memory, too
        #: Whether some kernel may fail: then the flag is read after a run.
        self.may_fail = False
        self.work: list[Work] = []
        self._block: BlockCode | None = None
        #: Whether kernels use memory for stacks.
        self.stacks = False
        #: Inputs whose values are checked before a run, each with the kernel that does it.
        self.checks: list[tuple[Value, Launch]] = []

    def look_at(self, graph: Graph) -> None:
        """Choose how the control flow of a graph runs, before it is planned."""
        threads = 32
        for node in graph.nodes:
            if node.graphs:
                found = block_threads(node, self.target, self.machine.threads)
                if not found:
                    raise NotNative(f"this {node.op.name} has no code for GPUs yet")
                threads = max(threads, found)
        self._block = BlockCode(self.module, min(threads, self.machine.threads))

    def kernels(self, step: Step, name: str) -> list[Kernel] | None:
        group = step.group
        if self.inside and self._block is not None:
            return self._block.kernels(step, name)
        if group.kind in ("control", "stack"):
            return self._controlled(step, name.replace(".", "_"))
        if group.kind == "loop":
            # What is written in place of an input comes after all that may fail.
            gated = self.may_fail and not group.reduces
            found = places(group)[0]
            launches, scratch = emit_group(self.module, name, group, found, gated)
            self._launches[id(step)] = tuple(launches)
            if gated:
                self._flagged.add(id(step))
            each = step.work().bytes / 3e3 / len(launches)  # ns at 3 TB/s
            return [Kernel(one.name, 1, max(each, 1500.0), scratch) for one in launches]
        node = step.nodes[0]
        own = node.op.name in NODES and (node.op is not NLL or is_input(node.inputs[1]))
        if group.kind == "kernel" and own:
            leaves = [op for op in group.operands[node] if isinstance(op, Leaf)]
            if len(leaves) < len(node.inputs):
                return None  # some operand is a number
            made = NODES[node.op.name](self.module, name.replace(".", "_"), node)
            self._launches[id(step)] = tuple(made)
            if node.op is NLL:
                check = emit_check(self.module, f"{made[0].name}_check", node)
                self.checks.append((leaves[1].root, check))
            return [Kernel(one.name, 1, 1500.0) for one in made]
        if group.kind == "kernel" and node.op.name in ITEM_OPS:
            items = emit_items(self.module, name, node)
            if items is None:
                return None
            self._launches[id(step)] = tuple(items[0])
            self._flagged.add(id(step))
            self.may_fail = self.may_fail or bool(node.op.may_fail)
            scratch = max((kernel.scratch for kernel in items[1]), default=0)
            return [Kernel(one.name, 1, 2500.0, scratch) for one in items[0]]
        if group.kind == "kernel" and node.op.name in CONVOLUTIONS:
            return [Kernel(name, 1, max(step.work().flops / 4e4, 2500.0))]
        if group.kind == "kernel":
            views = [op.view for op in group.operands[node] if isinstance(op, Leaf)]
            if len(views) < 2:
                return None
            *views, _ = matrices(views, node.out.tensor_type.shape)
            if not all(map(is_matrix, views)):
                return None
            return [Kernel(name, 1, max(step.work().flops / 4e4, 2500.0))]
        return []

    def _controlled(self, step: Step, name: str) -> list[Kernel]:
        """The kernel of control flow, or of an op on a stack."""
        if self._block is None:
            raise NotNative(f"{step.nodes[0].op.name} has no code for GPUs yet")
        launch = self._block.kernel(step, name)
        self._launches[id(step)] = (launch,)
        self._stacked.add(id(step))
        fails = self.target.may_fail(step.group)
        self.may_fail = self.may_fail or fails
        self.stacks = True
        return [Kernel(name, 1, 20_000.0, room_of(step))]

    def emit(self, plan: ProgramPlan) -> None:
        bounds = EMPTY_STACKS
        for step in plan.root.steps:
            if id(step) in self._launches:
                buffers = tuple(arguments(step.group, step.kernels))
                if id(step) in self._stacked:
                    buffers, bounds = (*buffers, bounds, STACKS, FLAG), STACKS
                if id(step) in self._flagged:
                    buffers = (*buffers, FLAG)
                self.work.append(Work("launch", step, self._launches[id(step)], buffers))
            elif step.kind == "kernel":
                operands = step.group.operands[step.nodes[0]]
                leaves = [leaf for leaf in operands if isinstance(leaf, Leaf)]
                buffers = (*[leaf.root for leaf in leaves], step.nodes[0].outputs[0])
                views = tuple(leaf.view for leaf in leaves)
                kind = "convolution" if step.nodes[0].op.name in CONVOLUTIONS else "product"
                self.work.append(Work(kind, step, buffers=buffers, views=views))
            else:
                self.work.append(Work("call", step))
