"""Splitting a joint graph: what the forward part saves, and what the backward part computes anew.

Saving a value costs its bytes; computing it anew costs time. Ops that only move or map elements are
cheap to repeat where they are used, so of their results as few bytes as possible are saved: a
minimum cut through the forward graph, between what must be kept (inputs, and results of ops that
are not to be repeated) and what the backward part uses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from weft.base.dims import dims_in
from weft.ir.graph import Node, Value
from weft.ir.op import Op, Trait
from weft.ir.types import TensorType

#: Ops that are cheap to repeat, besides elementwise ones and views.
CHEAP = frozenset(
    {"astype", "where", "broadcast_to", "concat", "full", "constant", "arange", "eye"}
)
#: A size that is not known counts as this many.
USUAL_SIZE = 256
#: What is computed for other reasons, or held by the caller anyway, costs little to keep.
HELD = 0.01
#: The bytes of what is no array: a stack, whose size is not known.
STACK_BYTES = 1 << 24


@dataclass(frozen=True, slots=True)
class Split:
    """How a joint graph was split.

    saved           values of the forward part that the backward part is given
    recomputed      forward nodes that the backward part runs once more, in order
    bytes_used      of all forward values that the backward part uses: what saving them would take
    bytes_saved     of those that are saved
    flops           of what is run once more
    """

    saved: tuple[Value, ...]
    recomputed: tuple[Node, ...]
    bytes_used: int
    bytes_saved: int
    flops: int

    def __str__(self) -> str:
        return (
            f"{len(self.saved)} values saved, {self.bytes_saved} bytes instead of "
            f"{self.bytes_used}; {len(self.recomputed)} ops run once more, {self.flops} flops"
        )


def is_cheap(op: Op) -> bool:
    """Whether an op is repeated rather than its result kept."""
    if op.nested or op.traits & (Trait.RANDOM | Trait.EFFECT | Trait.DATA_SHAPE | Trait.STACK):
        return False
    cheap = Trait.ELEMENTWISE | Trait.VIEW | Trait.CREATION
    return bool(op.traits & cheap) or op.name in CHEAP


def nbytes(value: Value) -> int:
    kind = value.type
    if not isinstance(kind, TensorType):
        return STACK_BYTES
    size = kind.dtype.itemsize
    for axis in kind.shape:
        size *= axis if isinstance(axis, int) else USUAL_SIZE
    return size


def split(
    inputs: Iterable[Value],
    forward: Sequence[Node],
    backward: Sequence[Node],
    gradients: Iterable[Value | None],
) -> Split:
    """Choose what the forward part saves for the backward part."""
    made_later = {value for node in backward for value in node.outputs}
    known = set(inputs)
    makers = {value: node for node in forward for value in node.outputs}
    used: dict[Value, None] = {}
    for node in backward:
        used.update(dict.fromkeys(node.inputs))
    used.update(dict.fromkeys(value for value in gradients if value is not None))
    needed = [v for v in used if v not in made_later and (v in makers or v in known)]
    chosen = _cut(needed, known, makers)
    recomputed = _recomputed(needed, chosen, makers, forward)
    return Split(
        tuple(chosen),
        tuple(recomputed),
        sum(nbytes(value) for value in needed if value not in known),
        sum(nbytes(value) for value in chosen if value not in known),
        sum(_flops(node) for node in recomputed),
    )


def _flops(node: Node) -> int:
    types = tuple(value.type for value in (*node.inputs, *node.outputs))
    if any(not isinstance(kind, TensorType) or any(dims_in(kind.shape)) for kind in types):
        return 0
    given = tuple(value.tensor_type for value in node.inputs)
    results = tuple(value.tensor_type for value in node.outputs)
    return node.op.estimate(given, results, **node.attrs).flops


def _recomputed(
    needed: Sequence[Value],
    saved: dict[Value, None],
    makers: dict[Value, Node],
    forward: Sequence[Node],
) -> list[Node]:
    """The nodes that lead from what is saved to what is needed."""
    wanted: set[Node] = set()
    stack = [value for value in needed if value not in saved]
    while stack:
        node = makers.get(stack.pop())
        if node is not None and node not in wanted:
            wanted.add(node)
            stack.extend(value for value in node.inputs if value not in saved)
    return [node for node in forward if node in wanted]


def _cut(
    needed: Sequence[Value], known: set[Value], makers: dict[Value, Node]
) -> dict[Value, None]:
    """The cheapest set of values from which all needed ones can be computed by cheap ops.

    In the flow network each value is an edge whose capacity is what saving it costs. From the
    source, flow enters at values that cannot be computed anew; it leaves at the needed ones.
    """
    network = _Network()
    source, sink = network.node(), network.node()
    enter: dict[Value, int] = {}
    leave: dict[Value, int] = {}
    edge_of: dict[Value, int] = {}
    stack = list(needed)
    while stack:
        value = stack.pop()
        if value in enter:
            continue
        enter[value], leave[value] = network.node(), network.node()
        cost = nbytes(value) * (HELD if value in known else 1) + 1
        edge_of[value] = network.edge(enter[value], leave[value], cost)
        node = makers.get(value)
        if value not in known and node is not None and is_cheap(node.op):
            stack.extend(node.inputs)
    for value in enter:
        node = makers.get(value)
        if value in known or node is None or not is_cheap(node.op):
            network.edge(source, enter[value], _ENDLESS)
        elif node.inputs:
            for given in node.inputs:
                network.edge(leave[given], enter[value], _ENDLESS)
        # What is made of nothing (a constant) has no way in: it is made anew.
    for value in needed:
        network.edge(leave[value], sink, _ENDLESS)
    reached = network.reached_after_flow(source, sink)
    return {v: None for v in enter if enter[v] in reached and leave[v] not in reached}


_ENDLESS = float("inf")


class _Network:
    """Maximum flow by Dinic's method; edges lie in pairs, each with its reverse."""

    def __init__(self) -> None:
        self.at: list[list[int]] = []  # of a node: the numbers of its edges
        self.to: list[int] = []
        self.left: list[float] = []

    def node(self) -> int:
        self.at.append([])
        return len(self.at) - 1

    def edge(self, a: int, b: int, capacity: float) -> int:
        number = len(self.to)
        self.to += [b, a]
        self.left += [capacity, 0.0]
        self.at[a].append(number)
        self.at[b].append(number + 1)
        return number

    def reached_after_flow(self, source: int, sink: int) -> set[int]:
        """The nodes that the source still reaches when no more can flow: one side of the cut."""
        while True:
            levels = self._levels(source)
            if sink not in levels:
                return set(levels)
            self._fill(source, sink, levels)

    def _levels(self, source: int) -> dict[int, int]:
        levels = {source: 0}
        queue = deque([source])
        while queue:
            a = queue.popleft()
            for number in self.at[a]:
                b = self.to[number]
                if self.left[number] > 0 and b not in levels:
                    levels[b] = levels[a] + 1
                    queue.append(b)
        return levels

    def _fill(self, source: int, sink: int, levels: dict[int, int]) -> None:
        """Send flow along shortest ways until each is blocked; by a path, not by recursion."""
        tried = [0] * len(self.at)
        path: list[int] = []
        here = source
        while True:
            if here == sink:
                amount = min(self.left[number] for number in path)
                for number in path:
                    self.left[number] -= amount
                    self.left[number ^ 1] += amount
                path, here = [], source
                continue
            for place in range(tried[here], len(self.at[here])):
                number = self.at[here][place]
                b = self.to[number]
                if self.left[number] > 0 and levels.get(b) == levels[here] + 1:
                    path.append(number)
                    here = b
                    break
                tried[here] = place + 1
            else:
                if not path:
                    return
                here = self.to[path.pop() ^ 1]
                tried[here] += 1
