"""The GPU's emitter: loop groups as kernels of one module, products as calls of cuBLAS."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from weft.base.shapes import size_of
from weft.codegen.arguments import arguments, places
from weft.codegen.contract import SMALL_CONSTANT, NotNative
from weft.codegen.cuda.attention.nodes import emit_attention, emit_attention_grad
from weft.codegen.cuda.block import BlockCode, room_of
from weft.codegen.cuda.builder import MOST_BUFFERS
from weft.codegen.cuda.convolution import CONVOLUTIONS
from weft.codegen.cuda.fits import block_threads, whole_threads
from weft.codegen.cuda.flow import (
    Room,
    check_flow,
    emit_counter,
    emit_move,
    emit_push,
    emit_reset,
    emit_top,
)
from weft.codegen.cuda.items import ITEM_OPS, emit_items
from weft.codegen.cuda.loops import Launch, emit_group
from weft.codegen.cuda.machine import GpuMachine
from weft.codegen.cuda.matrix import gemms, is_matrix, matrices
from weft.codegen.cuda.nodes import FAILING_NODES, NODES, emit_check
from weft.codegen.cuda.parts import emit_product_of_parts, fits_parts
from weft.codegen.cuda.target import CudaTarget, is_host, is_input
from weft.codegen.text import Module
from weft.ir.graph import Graph, Node, Value
from weft.ir.types import StackType, TensorType
from weft.ops.cards import MATMUL, NLL, WHILE
from weft.ops.stacks import STACK_POP
from weft.passes.lowering.split_products import PRODUCT_OF_PARTS
from weft.schedule.groups import Leaf
from weft.schedule.plan import GraphPlan, Kernel, ProgramPlan, Step
from weft.schedule.target import Emitter
from weft.schedule.views import View

__all__ = [
    "ARENA",
    "EMPTY_STACKS",
    "FLAG",
    "STACKS",
    "CudaEmitter",
    "NotForBlock",
    "Result",
    "Work",
]

#: Among the buffers of a launch: a number that is not 0 once a kernel has failed; and the bounds of
#: the memory of stacks, three addresses: the end of what is used, the start, the end. The first
#: kernel of a run reads the start as the end of what is used.
FLAG, STACKS, EMPTY_STACKS = "flag", "stacks", "empty stacks"


ATTENTIONS = {"attention": emit_attention, "attention_grad": emit_attention_grad}
#: The memory of the plan of a whole program.
ARENA = "arena"
#: Bytes of a value on a stack that many blocks copy.
LARGE = 1 << 12
#: The most threads of a kernel of one block.
BLOCK = 512


#: Bytes of memory that a thread may have for its variables.
LOCAL = 1 << 16


class NotForBlock(Exception):
    """A graph cannot be one kernel of one block, as it seemed."""


@dataclass(frozen=True, slots=True)
class Result:
    """The buffer of an output of the graph."""

    number: int


@dataclass(frozen=True, slots=True)
class Work:
    """
    kind      "launch", "product", "convolution", "call", or "flow": control flow around launches
    step      of the plan; of a whole program, the last one
    launches  the kernels of a launch, or of a product; without, it is a call of cuBLAS
    buffers   the values behind its parameters, None for scratch memory, `FLAG` and such, results
    views     of a product: how its operands lie
    nested    of control flow: what its graphs do
    """

    kind: str
    step: Step
    launches: tuple[Launch, ...] = ()
    buffers: tuple[Value | Result | str | None, ...] = ()
    views: tuple[View, ...] = ()
    nested: tuple[tuple[Work, ...], ...] = ()

    def all(self) -> Iterator[Work]:
        """This and what is nested in it."""
        yield self
        for works in self.nested:
            for work in works:
                yield from work.all()


@dataclass
class CudaEmitter(Emitter):
    """`work` is what a run does, in order, once `emit` was called."""

    machine: GpuMachine = field(default_factory=GpuMachine)

    def __post_init__(self) -> None:
        self.target = CudaTarget(self.machine)
        self.module = Module(self.machine)
        self.module.stack = LOCAL
        self.module.has_c_library = self.module.has_lapack = False
        self._launches: dict[Step, tuple[Launch, ...]] = {}
        self._parts: dict[Step, tuple[Launch, ...]] = {}  # of products of parts
        self._flagged: set[Step] = set()  # steps whose kernels get the flag
        self._stacked: set[Step] = set()  # those that get the bounds of the stacks' memory, too
        #: Whether some kernel may fail: then the flag is read after a run.
        self.may_fail = False
        self.work: list[Work] = []
        self._block: BlockCode | None = None
        self._whole: Graph | None = None  # that is one kernel
        self._blocks: set[Node] = set()  # control flow that is one kernel
        self._flows: dict[Step, tuple[Launch, ...]] = {}  # what else control flow launches
        #: Whether kernels use memory for stacks.
        self.stacks = False
        #: Inputs whose values are checked before a run, each with the kernel that does it.
        self.checks: list[tuple[Value, Launch]] = []

    def look_at(self, graph: Graph) -> None:
        """Choose what of a graph one block runs, before it is planned."""
        most = min(BLOCK, self.machine.row)
        stacks = any(
            isinstance(value.type, StackType) for part in graph.walk() for value in part.values()
        )
        threads = whole_threads(graph, self.target, most) if self.machine.whole else 0
        if threads:
            self._whole = graph
            self._block = BlockCode(self.module, threads, stacks=stacks, whole=True)
            self.stacks = stacks
            return
        threads = self._choose(graph, most) or most
        self._block = BlockCode(self.module, threads, stacks=True, whole=False)

    def _choose(self, graph: Graph, most: int) -> int:
        """Which nodes of control flow are for one block, and how many threads that has."""
        threads = 0
        for node in graph.nodes:
            if node.graphs:
                found = block_threads(node, self.target, most)
                if found:
                    self._blocks.add(node)
                else:
                    check_flow(node)
                    found = max(self._choose(inner, most) for inner in node.graphs)
                threads = max(threads, found)
        return threads

    def kernels(self, step: Step, name: str) -> list[Kernel] | None:
        group = step.group
        one = self._whole is not None or not self._blocks.isdisjoint(self.inside)
        if group.kind == "call" and _is_widened(step.nodes[0]):
            raise NotNative("a product of narrow matrices with a wide result has no code here")
        if self._block is not None and one:
            node = step.nodes[0]
            checked = not self.inside and node.op is NLL and is_input(node.inputs[1])
            if checked:
                operand = group.operands[node][1]
                assert isinstance(operand, Leaf)
                check = emit_check(self.module, f"{name}_check".replace(".", "_"), node)
                self.checks.append((operand.root, check))
            if not self.inside:
                self.may_fail = self.may_fail or self.target.may_fail(group)
            return self._block.kernels(step, name, checked=checked)
        if group.kind in ("control", "stack"):
            return self._controlled(step, name.replace(".", "_"))
        if group.kind == "loop":
            # What is written in place of an input comes after all that may fail.
            gated = self.may_fail and not group.reduces
            found = places(group)[0]
            launches, scratch = emit_group(self.module, name, group, found, gated)
            self._launches[step] = tuple(launches)
            if gated:
                self._flagged.add(step)
            each = step.work().bytes / 3e3 / len(launches)  # ns at 3 TB/s
            return [Kernel(one.name, 1, max(each, 1500.0), scratch) for one in launches]
        if group.kind in ATTENTIONS:
            gated = self.may_fail
            made, scratch = ATTENTIONS[group.kind](
                self.module, name.replace(".", "_"), group, gated=gated
            )
            self._launches[step] = tuple(made)
            if gated:
                self._flagged.add(step)
            each = step.work().flops / 2e5 / len(made)  # ns at 200 TFLOP/s
            return [Kernel(one.name, 1, max(each, 2500.0), scratch) for one in made]
        node = step.nodes[0]
        known = node.op is not NLL or (not self.inside and is_input(node.inputs[1]))
        if group.kind == "kernel" and node.op.name in NODES and known:
            leaves = [op for op in group.operands[node] if isinstance(op, Leaf)]
            if len(leaves) < len(node.inputs):
                return None  # some operand is a number
            made = NODES[node.op.name](self.module, name.replace(".", "_"), node)
            self._launches[step] = tuple(made)
            if node.op is NLL:
                check = emit_check(self.module, f"{made[0].name}_check", node)
                self.checks.append((leaves[1].root, check))
            return [Kernel(one.name, 1, 1500.0) for one in made]
        if group.kind == "kernel" and node.op.name in FAILING_NODES:
            dense = all(isinstance(op, Leaf) for op in group.operands[node])
            own = FAILING_NODES[node.op.name](self.module, name.replace(".", "_"), node)
            if dense and own:
                self._launches[step] = tuple(own[0])
                self._flagged.add(step)
                self.may_fail = True
                return [Kernel(one.name, 1, 2500.0, own[1]) for one in own[0]]
        if group.kind == "kernel" and node.op.name in ITEM_OPS:
            items = emit_items(self.module, name, node)
            if items is None:
                return None
            self._launches[step] = tuple(items[0])
            self._flagged.add(step)
            self.may_fail = self.may_fail or bool(node.op.may_fail)
            scratch = max((kernel.scratch for kernel in items[1]), default=0)
            return [Kernel(one.name, 1, 2500.0, scratch) for one in items[0]]
        if group.kind == "kernel" and node.op.name in CONVOLUTIONS:
            return [Kernel(name, 1, max(step.work().flops / 4e4, 2500.0))]
        if group.kind == "kernel":
            views = [op.view for op in group.operands[node] if isinstance(op, Leaf)]
            if len(views) < len(node.inputs):
                return None
            *views, _ = matrices(views[:2], node.out.tensor_type.shape)
            if not all(map(is_matrix, views)):
                return None
            if node.op is PRODUCT_OF_PARTS and not self._of_parts(step, name.replace(".", "_")):
                return None
            return [Kernel(name, 1, max(step.work().flops / 4e4, 2500.0))]
        return []

    def _of_parts(self, step: Step, name: str) -> bool:
        """Write the kernel of a product of parts; False if its operands lie in some other way."""
        node = step.nodes[0]
        views = [op.view for op in step.group.operands[node] if isinstance(op, Leaf)]
        shape = node.out.tensor_type.shape
        pairs = [(views[0], views[1]), *zip(views[2:5], views[5:], strict=True)]
        whole, *parts = (list(gemms(*matrices(pair, shape))) for pair in pairs)
        if any(found != parts[0] for found in parts) or len(whole) != 1:
            return False
        if len(parts[0]) != 1 or not fits_parts(parts[0][0], self.machine):
            return False
        gated = self.may_fail
        made = emit_product_of_parts(self.module, name, whole[0], parts[0][0], gated=gated)
        self._parts[step] = (made,)
        if gated:
            self._flagged.add(step)
        return True

    def _controlled(self, step: Step, name: str) -> list[Kernel]:
        """The kernel of control flow, or of an op on a stack."""
        if self._block is None:
            raise NotNative(f"{step.nodes[0].op.name} has no code for GPUs yet")
        if step.nested and step.nodes[0] not in self._blocks:
            return self._around(step, name)
        launches = self._wide_top(step, name) if step.kind == "stack" else ()
        launch = self._block.step_kernel(step, name, top_is_copied=bool(launches))
        self._launches[step] = (*launches, launch)
        self._stacked.add(step)
        fails = self.target.may_fail(step.group)
        self.may_fail = self.may_fail or fails
        self.stacks = True
        return [Kernel(name, 1, 20_000.0, room_of(step))]

    def _wide_top(self, step: Step, name: str) -> tuple[Launch, ...]:
        """A kernel of many blocks that copies a large value that is popped."""
        node = step.nodes[0]
        value = node.outputs[-1]
        if node.op is not STACK_POP or not isinstance(value.type, TensorType):
            return ()
        return (emit_top(self.module, f"{name}_top", value),) if value.type.nbytes > LARGE else ()

    def _around(self, step: Step, name: str) -> list[Kernel]:
        """Control flow around launches."""
        node, helpers = step.nodes[0], []
        carries = len(node.inputs) - node.attrs["consts"] if node.op is WHILE else 0
        if carries:
            helpers.append(emit_move(self.module, f"{name}_move", node.outputs[:carries]))
        if node.op is WHILE and node.attrs["counted"]:
            helpers.append(emit_counter(self.module, f"{name}_count"))
            for number, value in enumerate(node.graphs[1].outputs[carries:]):
                helpers += emit_push(self.module, f"{name}_push{number}", value)
        self._flows[step] = tuple(helpers)
        self.may_fail = self.may_fail or self.target.may_fail(step.group)
        self.stacks = True
        return [Kernel("", 1, 50_000.0, Room.of(step).size)]

    def _emit_whole(self, plan: GraphPlan) -> None:
        """One kernel, behind what the CPU computes."""
        assert self._block is not None
        host = {value for value in plan.graph.inputs if is_host(value)}
        read = set(plan.results)
        for step in plan.steps:
            if step.kind == "call":
                if not host.issuperset(step.group.reads()):
                    raise NotForBlock(f"{step.nodes[0].op.name} has no code for one block")
                host.update(step.nodes[0].outputs)
                self.work.append(Work("call", step))
            else:
                read.update(step.group.reads())
        constants = [v for v, one in plan.constants.items() if one.array.nbytes > SMALL_CONSTANT]
        made = [value for work in self.work for value in work.step.nodes[0].outputs]
        others = [
            value for value in (*made, *constants) if value in read and _is_there(value, plan)
        ]
        if len(plan.graph.inputs) + len(plan.results) + len(others) > MOST_BUFFERS - 4:
            raise NotForBlock("it takes too many tensors")
        launch = self._block.whole_kernel(plan, "whole", others)
        outputs = [Result(number) for number in range(len(plan.results))]
        buffers: tuple[Any, ...] = (
            *plan.graph.inputs,
            *outputs,
            *others,
            ARENA,
            EMPTY_STACKS,
            STACKS,
            FLAG,
        )
        self.work.append(Work("launch", plan.steps[-1], (launch,), buffers))

    def emit(self, plan: ProgramPlan) -> None:
        if self._whole is not None:
            self._emit_whole(plan.root)
            return
        self._bounds = EMPTY_STACKS
        if self._flows:
            self._bounds = STACKS
            reset = emit_reset(self.module, "reset")
            self.work.append(Work("launch", plan.root.steps[0], (reset,), (STACKS,)))
        self.work += self._works(plan.root)

    def _works(self, plan: GraphPlan) -> Iterator[Work]:
        for step in plan.steps:
            if step in self._launches:
                buffers = tuple(arguments(step.group, step.kernels))
                if step in self._stacked:
                    buffers = (*buffers, self._bounds, STACKS, FLAG)
                    self._bounds = STACKS
                if step in self._flagged:
                    buffers = (*buffers, FLAG)
                yield Work("launch", step, self._launches[step], buffers)
            elif step in self._flows:
                nested = tuple(tuple(self._works(inner)) for inner in step.nested)
                calls = [work for works in nested for work in works if work.kind == "call"]
                if calls:
                    name = calls[0].step.nodes[0].op.name
                    raise NotNative(f"{name} in a loop has no code for GPUs yet")
                leaves = [op for op in step.group.operands[step.nodes[0]] if isinstance(op, Leaf)]
                buffers = (*[leaf.root for leaf in leaves], *step.nodes[0].outputs)
                yield Work("flow", step, self._flows[step], buffers, nested=nested)
            elif step.kind == "kernel":
                operands = step.group.operands[step.nodes[0]]
                leaves = [leaf for leaf in operands if isinstance(leaf, Leaf)]
                buffers = (*[leaf.root for leaf in leaves], step.nodes[0].outputs[0])
                views = tuple(leaf.view for leaf in leaves[:2])
                if step in self._flagged:
                    buffers = (*buffers, FLAG)
                kind = "convolution" if step.nodes[0].op.name in CONVOLUTIONS else "product"
                yield Work(kind, step, self._parts.get(step, ()), buffers, views)
            else:
                yield Work("call", step)


def _is_widened(node: Node) -> bool:
    """Whether a product has a wider result than its operands: its card would round it."""
    if node.op is not MATMUL or is_host(node.out):
        return False
    empty = size_of(node.inputs[0].tensor_type.shape) == 0
    return node.inputs[0].tensor_type.dtype is not node.out.tensor_type.dtype and not empty


def _is_there(value: Value, plan: GraphPlan) -> bool:
    """Whether a kernel needs a value: not one that is only a result on the CPU."""
    return not is_host(value) or any(value in step.group.reads() for step in plan.steps)
