"""A forward and a backward part as one sequence of steps, and the memory that it needs.

Values of the forward part that the backward part uses are saved, or recomputed from saved ones. A
recomputed node runs as late as possible, right before its first use, so that its result is alive
for a short time. Values are numbers here, since the search for what to save evaluates the sequence
many times.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from weft.base.dataclass import dataclass
from weft.base.dims import has_dims
from weft.ir.graph import Node, Value
from weft.ir.literal import CONSTANT
from weft.ir.liveness import Storages, memory_plan, nbytes
from weft.ir.op import Trait
from weft.ir.types import TensorType

#: Ops that are never recomputed.
_ONCE = Trait.EFFECT | Trait.STACK | Trait.DATA_SHAPE | Trait.COLLECTIVE


def may_repeat(node: Node) -> bool:
    """Whether a node can be recomputed: it gives the same result and has no effects."""
    return not node.graphs and not node.op.traits & _ONCE


def flops(node: Node) -> int:
    """The work of a node; 0 if its sizes are not known."""
    types = tuple(value.type for value in (*node.inputs, *node.outputs))
    if any(not isinstance(kind, TensorType) or has_dims(kind.shape) for kind in types):
        return 0
    given = tuple(value.tensor_type for value in node.inputs)
    results = tuple(value.tensor_type for value in node.outputs)
    return node.op.estimate(given, results, **node.attrs).flops


class NodeCost:
    """A node, with values as numbers."""

    __slots__ = ("extra", "inputs", "node", "outputs", "repeats", "shares")

    def __init__(self, node: Node, number: dict[Value, int], shares: bool) -> None:
        self.node = node
        self.inputs = tuple([number[value] for value in node.inputs])
        self.outputs = tuple([number[value] for value in node.outputs])
        self.shares = shares  # its result lies in the memory of its input
        self.repeats = may_repeat(node)
        self.extra = max((memory_plan(graph).peak for graph in node.graphs), default=0)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The sequence for one choice of saved values.

    saved   the saved values that are read, with those that cannot be recomputed
    order   the backward part: (step, whether it is a recomputed step of the forward part)
    runs    the steps of the forward part that are needed
    peak    the most bytes that are alive at once; `place` is the step, counted from the forward
            part on
    last    for each storage the last step that uses it; storages of recomputed steps come last
    """

    saved: tuple[int, ...]
    order: tuple[tuple[NodeCost, bool], ...]
    runs: tuple[NodeCost, ...]
    peak: int
    place: int
    last: list[int]

    @property
    def again(self) -> list[NodeCost]:
        return [step for step, again in self.order if again]


class JointParts:
    """The forward and the backward part.

    inputs      values that the caller holds, also inputs of the backward part only
    lasting     values of the forward part that are held to the end of both: its results
    crossing    values of the forward part that are held until its end
    gradients   the results of the backward part
    """

    def __init__(
        self,
        inputs: Iterable[Value],
        forward: Sequence[Node],
        backward: Sequence[Node],
        *,
        lasting: Iterable[Value],
        gradients: Iterable[Value | None],
        crossing: Iterable[Value] = (),
    ) -> None:
        held = list(dict.fromkeys(inputs))
        # Nodes that answered a question of Python during the backward are in both parts.
        both = set(backward)
        forward = [node for node in forward if node not in both]
        nodes = [*forward, *backward]
        made = [value for node in nodes for value in node.outputs]
        self.values: list[Value] = [*held, *made]
        number = {value: i for i, value in enumerate(self.values)}
        storages = Storages()
        steps = [NodeCost(node, number, storages.add(node)) for node in nodes]
        self.root = [number[storages.of(value)] for value in self.values]
        self.size = [0] * len(held) + [
            0 if storages.of(value) is not value else nbytes(value) for value in made
        ]
        for step in steps:
            if step.node.op is CONSTANT:
                self.size[step.outputs[0]] = 0
        self.forward = steps[: len(forward)]
        self.held = len(held)
        first_later = self.held + sum(len(step.outputs) for step in self.forward)
        self.later = first_later  # values of the backward part have numbers from here on
        self.gradients = [number[value] for value in gradients if value is not None]
        self.lasting = [number[value] for value in lasting]
        self.crossing = [number[v] for v in crossing if number[v] < first_later]
        self.backward = _leading_to(self.gradients, steps[len(forward) :])
        self.maker: list[NodeCost | None] = [None] * first_later
        for step in self.forward:
            for value in step.outputs:
                self.maker[value] = step
        used = [value for step in self.backward for value in step.inputs]
        #: Values of the forward part that the backward part uses, without inputs.
        self.needed = [
            v for v in dict.fromkeys([*used, *self.gradients]) if self.held <= v < self.later
        ]

    def numbers(self, values: Iterable[Value]) -> set[int]:
        number = {value: i for i, value in enumerate(self.values)}
        return {number[value] for value in values}

    def bytes_of(self, values: Iterable[int]) -> int:
        """The bytes of the storages that these values lie in."""
        return sum(self.size[storage] for storage in {self.root[value] for value in values})

    # --- the order ----------------------------------------------------------------------------

    def outcome(self, saved: Collection[int]) -> Outcome:
        """The sequence for these saved values, and its memory."""
        order, read = self._late(self._settled(set(saved)))
        wanted = [*self.lasting, *self.crossing, *read]
        runs = _leading_to(wanted, self.forward)
        peak, place, last = self._memory(runs, order)
        return Outcome(tuple(read), tuple(order), tuple(runs), peak, place, last)

    def _settled(self, saved: set[int]) -> set[int]:
        """For a step with several results, save all that are needed, or none."""
        if not any(len(self._step(value).outputs) > 1 for value in saved):
            return saved
        stack = [value for value in self.needed if value not in saved]
        seen: set[int] = set()
        while stack:
            value = stack.pop()
            if value in seen or value < self.held:
                continue
            seen.add(value)
            step = self._step(value)
            if step.repeats:
                saved.difference_update(step.outputs)
                stack += [v for v in step.inputs if v not in saved]
        return saved

    def _step(self, value: int) -> NodeCost:
        step = self.maker[value]
        assert step is not None
        return step

    def _late(self, saved: set[int]) -> tuple[list[tuple[NodeCost, bool]], dict[int, None]]:
        """The backward part with recomputed steps, each right before its first use."""
        there = bytearray(self.later)
        for value in range(self.held):
            there[value] = 1
        read: dict[int, None] = {}
        order: list[tuple[NodeCost, bool]] = []

        def fetch(wanted: int) -> None:
            stack = [wanted]
            while stack:
                value = stack[-1]
                if there[value]:
                    stack.pop()
                    continue
                step = self._step(value)
                if value in saved or not step.repeats:
                    there[value] = 1
                    read[value] = None
                    stack.pop()
                    continue
                missing = [v for v in step.inputs if not there[v]]
                if missing:
                    stack += missing[::-1]
                    continue
                order.append((step, True))
                for out in step.outputs:
                    there[out] = 1
                stack.pop()

        for step in self.backward:
            for value in step.inputs:
                if value < self.later and not there[value]:
                    fetch(value)
            order.append((step, False))
        for value in self.gradients:
            if value < self.later and not there[value]:
                fetch(value)
        return order, read

    # --- the memory ---------------------------------------------------------------------------

    def _memory(
        self, runs: Sequence[NodeCost], order: Sequence[tuple[NodeCost, bool]]
    ) -> tuple[int, int, list[int]]:
        count = len(self.values)
        where = list(self.root)  # the storage of each value; recomputed ones get new storages
        last = [-1] * (2 * count)
        steps = len(runs) + len(order)
        change = [0] * (steps + 1)  # change of the bytes alive at the start of each step
        size, root = self.size, self.root
        extra: list[int] = [0] * steps
        for i, step in enumerate(runs):
            for value in step.inputs:
                last[root[value]] = i
            for value in step.outputs:
                last[root[value]] = i
                change[i] += size[value]
            extra[i] = step.extra
        for value in (*self.lasting, *self.crossing):
            last[root[value]] = len(runs) - 1
        for i, (step, again) in enumerate(order, len(runs)):
            for value in step.inputs:
                last[where[value]] = i
            for value in step.outputs:
                if step.shares:
                    where[value] = where[step.inputs[0]]
                elif again:
                    where[value] = count + value
                change[i] += size[value]
                last[where[value]] = i
            extra[i] = step.extra
        for value in self.gradients:
            last[where[value]] = steps
        for value in self.lasting:
            last[root[value]] = steps
        for storage, end in enumerate(last):
            if 0 <= end < steps:
                change[end + 1] -= size[storage - count if storage >= count else storage]
        now = peak = place = 0
        for i in range(steps):
            now += change[i]
            if now + extra[i] > peak:
                peak, place = now + extra[i], i
        return peak, place, last


def _leading_to(wanted: Iterable[int], steps: Sequence[NodeCost]) -> list[NodeCost]:
    """The steps, in order, that values depend on or that have effects."""
    marked = set(wanted)
    found: list[NodeCost] = []
    for step in reversed(steps):
        if not marked.isdisjoint(step.outputs) or step.node.op.effect:
            found.append(step)
            marked.update(step.inputs)
    return found[::-1]
