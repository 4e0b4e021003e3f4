"""The plan of a program, as data: what runs in which order, on which kernels, and where values lie.

The schedule makes it (`weft.schedule.planner`); an emitter of a target reads it and writes the
program; the verifier, reports and tools read it, too. Nothing in it belongs to one target.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from weft.base.dim_algebra import dim_max
from weft.base.dims import has_dims, is_zero, typical
from weft.ir.graph import Graph, Node, Value
from weft.ir.literal import Literal
from weft.ir.types import TensorType
from weft.schedule.groups import Group, Leaf
from weft.schedule.late import LateMemory
from weft.schedule.memory import ArenaPlan, Buffers
from weft.schedule.reasons import INLINED, REMATERIALIZED, said
from weft.schedule.scan_rows import RowScan

__all__ = ["Arena", "Constant", "GraphPlan", "Input", "Kernel", "Late", "Output", "Place"]
__all__ += ["ProgramPlan", "Step", "Work", "bytes_of", "control_work", "described", "work_of"]


@dataclass(frozen=True, slots=True)
class Kernel:
    """What a plan knows about one generated function.

    name     the name of the function
    items    the number of work items, which threads may share
    cost     the estimated time of one item on one thread, in nanoseconds
    scratch  bytes of memory shared by all threads of the call
    stops    whether it takes long, so that it polls for cancellation
    shared   whether threads share its items
    work     the time of all items in picoseconds, as an expression of sizes of the run, if it
             depends on them; `cost` is then an estimate for likely sizes
    tells    whether it computes a size that depends on data, and writes it to its scratch memory
    """

    name: str
    items: int
    cost: float
    scratch: int = 0
    stops: bool = False
    shared: bool = False
    work: int = 0
    tells: bool = False

    @property
    def varies(self) -> bool:
        """Whether its time depends on sizes of the run."""
        return has_dims((self.items, self.work))

    @property
    def nanoseconds(self) -> float:
        """The estimated time of all items on one thread."""
        return typical(self.items) * self.cost


# --- where a value lies ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Input:
    """In the buffer of an input of the graph."""

    number: int


@dataclass(frozen=True, slots=True)
class Output:
    """In the buffer of an output of the graph."""

    number: int


@dataclass(frozen=True, slots=True)
class Constant:
    """In a constant of the program."""

    literal: Literal


@dataclass(frozen=True, slots=True)
class Arena:
    """In the memory of a run, from this byte on."""

    offset: int


@dataclass(frozen=True, slots=True)
class Late:
    """In memory that is allocated during the run: the number of its address, and an offset."""

    pointer: int
    offset: int


Place = Input | Output | Constant | Arena | Late


# --- what runs ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Work:
    """Flops and bytes of memory traffic. `open`: this is one iteration of a loop whose length
    depends on data."""

    flops: int = 0
    bytes: int = 0
    open: bool = False

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.bytes + other.bytes, self.open or other.open)

    def times(self, count: int) -> Work:
        return Work(self.flops * count, self.bytes * count, self.open)


@dataclass(eq=False, slots=True)
class Step:
    """One group of nodes, with its kernels.

    why       for each of its nodes, why it is here: see `weft.schedule.reasons`
    nested    the plans of the nested graphs of a control flow node
    rows      how a scan is split into parts of its rows, if it is; `nested` is then the plan of the
              body for one part
    kernels   its kernels, in order
    tells     the names of sizes that depend on data, which this step tells
    """

    group: Group
    why: Mapping[Node, Any]
    nested: list[GraphPlan] = field(default_factory=list)
    rows: RowScan | None = None
    kernels: list[Kernel] = field(default_factory=list)
    tells: list[str] = field(default_factory=list)

    @property
    def kind(self) -> str:
        return self.group.kind

    @property
    def nodes(self) -> list[Node]:
        """Its nodes; the one that the kernels are named after comes first."""
        head = self.group.nodes[0]
        return [head, *[node for node in self.group.in_order() if node is not head]]

    @property
    def outputs(self) -> list[Value]:
        return self.group.outputs

    @property
    def room(self) -> int:
        """Bytes of memory that only this step uses."""
        return functools.reduce(dim_max, [kernel.scratch for kernel in self.kernels], 0)

    @property
    def seconds(self) -> float:
        """The estimated time on one thread."""
        return sum(kernel.nanoseconds for kernel in self.kernels) * 1e-9

    @property
    def parts(self) -> int:
        """The number of parts, of a loop that runs in parts of its rows."""
        return 1 if self.rows is None else self.rows.parts

    @property
    def parallel(self) -> bool:
        """Whether threads share the work."""
        return any(kernel.shared for kernel in self.kernels)

    def reasons(self, number: str, before: Set[Node]) -> list[tuple[Node, str, bool]]:
        """For each of its nodes: why it is here, and whether it joined other nodes without having
        been refused elsewhere.

        `number`: that of this step; `before`: nodes that earlier steps compute, too.
        """
        prefix = number[: number.rfind(".") + 1]
        found = []
        for i, node in enumerate(self.nodes):
            why = self.why.get(node)
            if node in before and why is not INLINED:
                why = REMATERIALIZED
            joined = i > 0 and (why is None or why[1] is None)
            found.append((node, said(node, self.group, why, prefix), joined))
        return found

    def reads(self) -> dict[Value, int]:
        """The buffers that are read, with how many bytes of each."""
        found: dict[Value, int] = {}
        for operands in self.group.operands.values():
            for operand in operands:
                if isinstance(operand, Leaf):
                    root = operand.root
                    seen = found.get(root, 0) + _bytes_seen(operand)
                    found[root] = min(seen, bytes_of(root))
        return found

    def work(self) -> Work:
        """The arithmetic of its nodes, and the bytes that it reads and writes."""
        if self.nested:
            inner = [code.work() for code in self.nested]
            return control_work(self.nodes[0], inner).times(self.parts)
        flops = sum(work_of(node).flops for node in self.nodes)
        moved = sum(self.reads().values()) + sum(map(bytes_of, self.outputs))
        return Work(flops, moved)


@dataclass
class GraphPlan:
    """The plan of one graph.

    name        unique in the program
    steps       its steps, in order
    results     for each output of the graph: the value that is computed for it
    outputs     for each value that is written directly to an output: the number of the output
    constants   the values that are constants of the program
    memory      the offsets of other values in the arena; by group, the scratch memory of kernels
    in_place    pairs of an output and an input that may share a buffer: see `in_place.py`
    late        what has sizes that the run itself tells: see `late.py`
    boxed       the outputs that are boxes, as their sizes are late
    waves       ranges of steps that run at the same time: see `abreast.py`
    """

    name: str
    graph: Graph
    steps: list[Step]
    results: list[Value]
    outputs: Mapping[Value, int]
    constants: Mapping[Value, Literal]
    memory: ArenaPlan[Any]
    in_place: list[tuple[int, int]] = field(default_factory=list)
    late: LateMemory = field(default_factory=LateMemory)
    boxed: Set[int] = frozenset()
    waves: list[tuple[int, int]] = field(default_factory=list)

    def place(self, value: Value) -> Place | None:
        """The place of a value; None for a result that is never read."""
        if value in self._inputs:
            return Input(self._inputs[value])
        own = self.late.pointer(value)
        if own is not None:
            return Late(own, 0)
        if value in self.outputs:
            return Output(self.outputs[value])
        if value in self.constants:
            return Constant(self.constants[value])
        return self.room(value)

    def room(self, key: Any) -> Arena | Late | None:
        """The place of a buffer of the arena or of a chunk: a value, or by group its scratch."""
        offset = self.memory.offsets.get(key)
        if offset is not None:
            return Arena(offset)
        late = self.late.place(key)
        return None if late is None else Late(*late)

    @functools.cached_property
    def _inputs(self) -> dict[Value, int]:
        return {value: number for number, value in enumerate(self.graph.inputs)}

    @property
    def writes_from(self) -> int:
        """The first step that may write to the buffer of an input; the number of steps if none."""
        written = {self.results[output] for output, _ in self.in_place}
        found = (i for i, step in enumerate(self.steps) if written.intersection(step.outputs))
        return next(found, len(self.steps))

    @property
    def arena(self) -> int:
        return self.memory.peak

    @property
    def lower_bound(self) -> int:
        return self.memory.lower_bound

    @property
    def kernels(self) -> list[str]:
        return [kernel.name for step in self.steps for kernel in step.kernels]

    def walk(self) -> Iterator[tuple[int, GraphPlan]]:
        """This plan and those of nested graphs, outer ones first, each with its depth."""
        stack: list[tuple[int, GraphPlan]] = [(0, self)]
        while stack:
            depth, plan = stack.pop()
            yield depth, plan
            inner = [nested for step in plan.steps for nested in step.nested]
            stack += [(depth + 1, nested) for nested in reversed(inner)]

    def numbered(self, prefix: str = "") -> Iterator[tuple[str, Step]]:
        """All steps in order with their numbers: 0, 1, 1.0.0 (step 0 of graph 0 inside of 1), 2."""
        for place, step in enumerate(self.steps):
            yield f"{prefix}{place}", step
            for at, nested in enumerate(step.nested):
                yield from nested.numbered(f"{prefix}{place}.{at}.")

    def inner_first(self) -> Iterator[GraphPlan]:
        """This plan and those of nested graphs, each after those inside of it."""
        for step in self.steps:
            for nested in step.nested:
                yield from nested.inner_first()
        yield self

    def work(self) -> Work:
        return sum((step.work() for step in self.steps), Work())


@dataclass
class ProgramPlan:
    """The plan of a whole program: of its graph, with those nested in it.

    constants   the constants, without duplicates
    calls       the nodes whose cards are called in Python, by the number of the call
    buffers     for graphs whose memory depends on sizes of the run, inner ones first: the buffers
                to place. The arena of an inner graph is a buffer of the outer one
    """

    root: GraphPlan
    constants: list[Literal] = field(default_factory=list)
    calls: list[Node] = field(default_factory=list)
    buffers: list[Buffers] = field(default_factory=list)

    @classmethod
    def of(cls, root: GraphPlan) -> ProgramPlan:
        constants: dict[str, Literal] = {}
        calls: list[Node] = []
        for plan in root.inner_first():
            read = [value for step in plan.steps for value in step.group.reads()]
            for value in (*read, *plan.results):
                if value in plan.constants:
                    literal = plan.constants[value]
                    constants.setdefault(literal.digest, literal)
            calls += [step.nodes[0] for step in plan.steps if step.kind == "call"]
        return cls(root, list(constants.values()), calls)

    def __str__(self) -> str:
        head = f"{self.root.arena} bytes of memory, {self.root.lower_bound} at least"
        return "\n".join([head, *described(self.root)])


def described(plan: GraphPlan) -> list[str]:
    """A plan as text: for each step its ops, and the places of its results."""
    lines: list[str] = []
    for step in plan.steps:
        ops = " ".join(node.op.name for node in step.group.in_order())
        made = ", ".join(f"{value.type} {_where(plan, value)}" for value in step.outputs)
        more = "" if is_zero(step.room) else f", {step.room} bytes of its own"
        more += f", in {step.parts} parts" if step.parts != 1 else ""
        lines.append(f"{step.kind}: {ops} → {made}{more}")
        for nested in step.nested:
            lines += [f"  {nested.name}", *[f"    {line}" for line in described(nested)]]
    return lines


def _where(plan: GraphPlan, value: Value) -> str:
    match plan.place(value):
        case Output(number):
            return f"as output {number}"
        case Arena(offset):
            return f"at {offset}"
        case Late():
            return "in memory that the run allocates"
    return "nowhere"


# --- figures -------------------------------------------------------------------------------------


def work_of(node: Node) -> Work:
    """The work of a node, as its card estimates it; none if sizes are unknown or it is control."""
    kinds = [value.type for value in (*node.inputs, *node.outputs)]
    if node.graphs or any(isinstance(k, TensorType) and has_dims(k.shape) for k in kinds):
        return Work()
    given = tuple(v.type for v in node.inputs if isinstance(v.type, TensorType))
    results = tuple(v.type for v in node.outputs if isinstance(v.type, TensorType))
    if len(given) + len(results) != len(kinds):  # tokens and stacks: a call, or a list that grows
        return Work(0, sum(int(kind.nbytes) for kind in (*given, *results)))
    found = node.op.estimate(given, results, **node.attrs)
    return Work(int(found.flops), int(found.bytes))


def control_work(node: Node, inner: list[Work]) -> Work:
    """The work of control flow: of its largest branch, or of all iterations of a loop."""
    if node.op.branch:
        return max(inner, key=lambda work: (work.flops, work.bytes))
    whole = sum(inner, Work())
    count = node.attrs.get("length")
    if isinstance(count, int):
        return whole.times(count)
    return Work(whole.flops, whole.bytes, open=True)


def bytes_of(value: Value) -> int:
    """The bytes of a tensor; 0 for tokens, stacks and unknown sizes."""
    kind = value.type
    return int(kind.nbytes) if isinstance(kind, TensorType) and not has_dims(kind.shape) else 0


def _bytes_seen(leaf: Leaf) -> int:
    """The bytes of the elements that a view reads; broadcast ones count once."""
    count = 1
    for size, stride in zip(leaf.view.shape, leaf.view.strides, strict=True):
        count *= size if stride or not size else 1
    kind = leaf.root.type
    return count * kind.dtype.itemsize if isinstance(kind, TensorType) else 0
