"""What the function of a graph does, step by step, as data: for the plan, for reports, for tools.

Nothing here is needed to run a graph; what costs more than to keep it is worked out when asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from weft.base.dims import has_dims
from weft.codegen.kernel import Kernel
from weft.codegen.launch import WORTH_THREADS
from weft.ir.graph import Graph, Node, Value
from weft.ir.types import TensorType
from weft.schedule.groups import Group, Leaf
from weft.schedule.memory import ArenaPlan
from weft.schedule.reasons import AGAIN, FLOATS, said

__all__ = ["GraphCode", "Step", "Work", "bytes_of", "control_work", "described", "work_of"]

#: Ops with nested graphs of which one is run; others run theirs again and again.
CHOICES = ("if", "switch")


@dataclass(frozen=True, slots=True)
class Work:
    """flops and bytes of memory traffic; `open`: of one round of a loop that tensors decide about,
    so that there may be more."""

    flops: int = 0
    bytes: int = 0
    open: bool = False

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.bytes + other.bytes, self.open or other.open)

    def times(self, count: int) -> Work:
        return Work(self.flops * count, self.bytes * count, self.open)


@dataclass(frozen=True, slots=True)
class Step:
    """One group of nodes as it is run.

    kernels   the functions that do it, one after the other
    nested    the functions of the graphs in its node, where that is control flow
    why       for each of its nodes, why it is here: see `weft.schedule.reasons`
    buffers   what the kernels are given: values, None for memory of their own, `RUN` for the run
    """

    group: Group
    kernels: list[Kernel]
    nested: list[GraphCode]
    why: Mapping[Node, Any]
    buffers: list[Any]

    @property
    def kind(self) -> str:
        return self.group.kind

    @property
    def nodes(self) -> list[Node]:
        """The node that the kernels are named after first."""
        head = self.group.nodes[0]
        return [head, *[node for node in self.group.in_order() if node is not head]]

    @property
    def outputs(self) -> list[Value]:
        return self.group.outputs

    @property
    def room(self) -> int:
        """Bytes of memory that only this step uses."""
        return max((kernel.scratch for kernel in self.kernels), default=0)

    @property
    def seconds(self) -> float:
        """About how long it takes one thread, as the emitters guess: what threads are asked by."""
        return sum(kernel.items * kernel.cost for kernel in self.kernels) * 1e-9

    @property
    def parts(self) -> int:
        """In how many parts of its rows a loop is done, see `weft.codegen.control.rows`."""
        return max((k.items for k in self.kernels if k.name), default=1) if self.nested else 1

    @property
    def parallel(self) -> bool:
        """Whether the pool of threads is asked to share the work."""
        return any(k.items > 1 and k.items * k.cost >= WORTH_THREADS for k in self.kernels)

    def reasons(self, number: str, before: Set[Node]) -> list[tuple[Node, str, bool]]:
        """Why each of its nodes is here, and whether it joined others and was wanted nowhere else.

        `number`: that of this step; `before`: nodes that earlier steps compute, too.
        """
        prefix = number[: number.rfind(".") + 1]
        found = []
        for i, node in enumerate(self.nodes):
            why = self.why.get(node)
            if node in before and why is not FLOATS:
                why = AGAIN
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
class GraphCode:
    """The function of a graph.

    lower_bound   how small the arena could be at best
    steps         what runs, in order
    in_place      see `weft.schedule.in_place`
    memory        where values lie in the arena; the room of a step's own stands there by its group
    places        of each value that is a result of the graph: which one
    """

    name: str
    graph: Graph
    results: list[Value]
    memory: ArenaPlan[Any]
    places: Mapping[Value, int]
    steps: list[Step] = field(default_factory=list)
    in_place: list[tuple[int, int]] = field(default_factory=list)

    @property
    def arena(self) -> int:
        return self.memory.peak

    @property
    def lower_bound(self) -> int:
        return self.memory.lower_bound

    @property
    def kernels(self) -> list[str]:
        return [kernel.name for step in self.steps for kernel in step.kernels]

    def walk(self) -> Iterator[tuple[int, GraphCode]]:
        """This function and those of nested graphs, each with how deep it is, as they run."""
        stack: list[tuple[int, GraphCode]] = [(0, self)]
        while stack:
            depth, code = stack.pop()
            yield depth, code
            inner = [nested for step in code.steps for nested in step.nested]
            stack += [(depth + 1, nested) for nested in reversed(inner)]

    def numbered(self, prefix: str = "") -> Iterator[tuple[str, Step]]:
        """All steps in order with their numbers: 0, 1, 1.0.0 (step 0 of graph 0 inside of 1), 2."""
        for place, step in enumerate(self.steps):
            yield f"{prefix}{place}", step
            for at, nested in enumerate(step.nested):
                yield from nested.numbered(f"{prefix}{place}.{at}.")

    def work(self) -> Work:
        return sum((step.work() for step in self.steps), Work())


def described(code: GraphCode) -> list[str]:
    """A function in words: for each step its ops, and where what it makes lies."""
    lines: list[str] = []
    for step in code.steps:
        ops = " ".join(node.op.name for node in step.group.in_order())
        made = ", ".join(f"{value.type} {_where(code, value)}" for value in step.outputs)
        more = f", {step.room} bytes of its own" if step.room else ""
        more += f", in {step.parts} parts" if step.parts > 1 else ""
        lines.append(f"{step.kind}: {ops} → {made}{more}")
        for nested in step.nested:
            lines += [f"  {nested.name}", *[f"    {line}" for line in described(nested)]]
    return lines


def _where(code: GraphCode, value: Value) -> str:
    if value in code.places:
        return f"as output {code.places[value]}"
    offsets = code.memory.offsets
    return f"at {offsets[value]}" if value in offsets else "nowhere"


# --- figures -------------------------------------------------------------------------------------


def work_of(node: Node) -> Work:
    """The work of a node by its card; nothing where its sizes are not known, or it is control."""
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
    """The work of control flow from that of its graphs: the largest, or all in each round."""
    if node.op.name in CHOICES:
        return max(inner, key=lambda work: (work.flops, work.bytes))
    whole = sum(inner, Work())
    count = node.attrs.get("length")
    if isinstance(count, int):
        return whole.times(count)
    return Work(whole.flops, whole.bytes, open=True)


def bytes_of(value: Value) -> int:
    """How large a value is; a token is nothing, and a stack only its address."""
    kind = value.type
    return int(kind.nbytes) if isinstance(kind, TensorType) and not has_dims(kind.shape) else 0


def _bytes_seen(leaf: Leaf) -> int:
    """The bytes of the elements that a view looks at; one that is repeated counts once."""
    count = 1
    for size, stride in zip(leaf.view.shape, leaf.view.strides, strict=True):
        count *= size if stride or not size else 1
    kind = leaf.root.type
    return count * kind.dtype.itemsize if isinstance(kind, TensorType) else 0
