"""Splits a joint graph: what the forward part saves, and what the backward part recomputes.

Saving a value costs its bytes; recomputing it costs time. Ops that only move or map elements are
cheap to repeat, so of their results as few bytes as possible are saved: a minimum cut through the
forward graph, between values that must be kept (inputs, and results of ops that are not repeated)
and values that the backward part uses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import field

from weft.autodiff.budget import within
from weft.autodiff.recompute_schedule import JointParts, Outcome, flops, may_repeat
from weft.base.dataclass import dataclass
from weft.ir.graph import Node, Value
from weft.ir.liveness import nbytes
from weft.ir.op import Trait

#: Ops that cost nothing to repeat: they map elements, or only move them.
FREE = Trait.ELEMENTWISE | Trait.VIEW | Trait.CREATION | Trait.JOINT
#: Reductions, and composites without a product, read their input a few times. They are repeated if
#: that saves more than this fraction of its bytes.
PASS = 0.3


@dataclass(frozen=True, slots=True)
class BackwardSplit:
    """How a joint graph was split.

    saved           values of the forward part that are inputs of the backward part
    recomputed      forward nodes that the backward part repeats, in order
    nodes           the backward part with these, each right before its first use
    bytes_used      bytes of all forward values that the backward part uses
    bytes_saved     bytes of the saved ones
    flops           work of the recomputed nodes
    peak            the most bytes alive at once in both parts, without inputs
    peak_used       the same if all used values were saved: the base of a budget
    budget          the fraction of `peak_used` that was asked for, or None
    """

    saved: tuple[Value, ...] = field(repr=False)
    recomputed: tuple[Node, ...] = field(repr=False)
    nodes: tuple[Node, ...] = field(repr=False)
    bytes_used: int
    bytes_saved: int
    flops: int
    peak: int
    peak_used: int
    budget: float | None = None

    @property
    def reached(self) -> bool:
        """Whether the peak is within the budget."""
        return self.budget is None or self.peak <= self.budget * self.peak_used

    def __str__(self) -> str:
        text = (
            f"{len(self.saved)} values saved, {self.bytes_saved} bytes instead of "
            f"{self.bytes_used}; {len(self.recomputed)} ops run once more, {self.flops} flops; "
            f"peak {self.peak} bytes instead of {self.peak_used}"
        )
        if self.budget is None:
            return text
        return f"{text}, budget {self.budget:g} {'' if self.reached else 'not '}reached"


def price(node: Node) -> int | None:
    """The cost of repeating a node, in bytes of saved values; None if it is not repeated."""
    op = node.op
    if not may_repeat(node) or op.random:
        return None
    if op.traits & FREE:
        return 0
    if op.traits & (Trait.REDUCTION | Trait.COMPOSITE) and Trait.PRODUCT not in op.traits:
        return int(PASS * sum(map(nbytes, node.inputs)))
    return None


def split(
    inputs: Iterable[Value],
    forward: Sequence[Node],
    backward: Sequence[Node],
    gradients: Iterable[Value | None],
    *,
    lasting: Iterable[Value] = (),
    crossing: Iterable[Value] = (),
    budget: float | None = None,
) -> BackwardSplit:
    """Choose what the forward part saves for the backward part; for the values see `JointParts`.

    With a budget, more is recomputed, also matrix products, until the peak of memory is below that
    fraction of the peak with everything saved.
    """
    pair = JointParts(
        inputs, forward, backward, lasting=lasting, gradients=gradients, crossing=crossing
    )
    reference = pair.outcome(pair.needed)
    outcome = pair.outcome(cut(pair))
    if budget is not None:
        outcome = within(pair, outcome, budget * reference.peak)
    return described(pair, outcome, reference, budget)


def described(
    pair: JointParts, outcome: Outcome, reference: Outcome, budget: float | None
) -> BackwardSplit:
    again = [step.node for step in outcome.again]
    return BackwardSplit(
        tuple([pair.values[value] for value in outcome.saved]),
        tuple(again),
        tuple([step.node for step, _ in outcome.order]),
        pair.bytes_of(pair.needed),
        pair.bytes_of(outcome.saved),
        sum(map(flops, again)),
        outcome.peak,
        reference.peak,
        budget,
    )


def cut(pair: JointParts) -> set[int]:
    """The cheapest set of values from which all needed ones can be computed by cheap ops.

    In the flow network each value is an edge whose capacity is the cost of saving it. Flow enters
    from the source at values that are not recomputed, or with the cost of recomputing them; it
    leaves at the needed ones.
    """
    network = _Network()
    source, sink = network.node(), network.node()
    enter: dict[int, int] = {}
    leave: dict[int, int] = {}
    stack = list(pair.needed)
    while stack:
        value = stack.pop()
        if value in enter:
            continue
        enter[value], leave[value] = network.node(), network.node()
        network.edge(enter[value], leave[value], saving(pair, value))
        step = pair.maker[value]
        assert step is not None
        cost = price(step.node)
        if cost is None:
            network.edge(source, enter[value], _ENDLESS)
        else:
            if cost:
                network.edge(source, enter[value], cost // len(step.outputs) + 1)
            # Inputs and constants are held anyway: no flow enters there.
            stack.extend(v for v in step.inputs if v >= pair.held)
    for value in enter:
        step = pair.maker[value]
        assert step is not None
        if price(step.node) is not None:
            for given in step.inputs:
                if given >= pair.held:
                    network.edge(leave[given], enter[value], _ENDLESS)
    for value in pair.needed:
        network.edge(leave[value], sink, _ENDLESS)
    late = network.last_cut(source, sink)
    return {v for v in enter if enter[v] not in late and leave[v] in late}


def saving(pair: JointParts, value: int) -> int:
    """The cost of saving a value: a view holds the whole value that it is a view of."""
    own = nbytes(pair.values[value])
    return max(own, pair.size[pair.root[value]]) + 1


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

    def last_cut(self, source: int, sink: int) -> set[int]:
        """The nodes behind the minimum cut; if there are several, the one closest to the sink."""
        while True:
            levels = self._levels(source)
            if sink not in levels:
                return self._leading_to(sink)
            self._fill(source, sink, levels)

    def _leading_to(self, sink: int) -> set[int]:
        """The nodes from which more could flow to the sink."""
        found = {sink}
        stack = [sink]
        while stack:
            for number in self.at[stack.pop()]:
                a = self.to[number]
                if self.left[number ^ 1] > 0 and a not in found:
                    found.add(a)
                    stack.append(a)
        return found

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
        """Send flow along shortest paths until each is blocked, without recursion."""
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
