"""A forward and a backward part as one sequence of steps, and the memory that it needs.

What the backward part uses of the forward part is saved, or computed anew from what is saved. A
node that is run once more stands as late as it can, right before the first that uses it: so what
it makes is alive for as short as possible. Values are numbers here, since a search for what to
save goes through the sequence many times.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from weft.base.dims import has_dims
from weft.ir.graph import Node, Value
from weft.ir.literal import CONSTANT
from weft.ir.liveness import Storages, memory_plan, nbytes
from weft.ir.op import Trait
from weft.ir.types import TensorType

#: Ops that are never run once more.
_ONCE = Trait.EFFECT | Trait.STACK | Trait.DATA_SHAPE


def may_repeat(node: Node) -> bool:
    """Whether a node gives the same when it is run once more, and does nothing beside that."""
    return not node.graphs and not node.op.traits & _ONCE


def flops(node: Node) -> int:
    """The work of a node; 0 where its sizes are not known."""
    types = tuple(value.type for value in (*node.inputs, *node.outputs))
    if any(not isinstance(kind, TensorType) or has_dims(kind.shape) for kind in types):
        return 0
    given = tuple(value.tensor_type for value in node.inputs)
    results = tuple(value.tensor_type for value in node.outputs)
    return node.op.estimate(given, results, **node.attrs).flops


class NodeCost:
    """A node in numbers."""

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
    """What comes of saving some values.

    saved   what is read of them, with those that cannot be computed anew
    order   the backward part: (step, whether it is of the forward part and run once more)
    runs    the steps of the forward part that are needed then
    peak    the most bytes that are alive at once; `place` says at which step, forward first
    last    for each storage the step that uses it last: those of what is run once more stand
            behind the others
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
    """The two parts.

    inputs      values that the caller holds, those that only the backward part is given included
    lasting     values of the forward part that somebody holds to the end: its results
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
        # What answered a question that Python asked while it went backward stands in both parts.
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
        self.later = first_later  # the values of the backward part have numbers from here on
        self.gradients = [number[value] for value in gradients if value is not None]
        self.lasting = [number[value] for value in lasting]
        self.crossing = [number[v] for v in crossing if number[v] < first_later]
        self.backward = _leading_to(self.gradients, steps[len(forward) :])
        self.maker: list[NodeCost | None] = [None] * first_later
        for step in self.forward:
            for value in step.outputs:
                self.maker[value] = step
        used = [value for step in self.backward for value in step.inputs]
        #: What the backward part itself uses of the forward part, inputs aside.
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
        """The sequence that comes of saving these values, and its memory."""
        order, read = self._late(self._settled(set(saved)))
        wanted = [*self.lasting, *self.crossing, *read]
        runs = _leading_to(wanted, self.forward)
        peak, place, last = self._memory(runs, order)
        return Outcome(tuple(read), tuple(order), tuple(runs), peak, place, last)

    def _settled(self, saved: set[int]) -> set[int]:
        """Of a step with several results, either what is needed of them is saved, or nothing."""
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
        """The backward part with what is run once more, each right before its first use."""
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
        where = list(self.root)  # the storage in which a value is found; of the second runs: later
        last = [-1] * (2 * count)
        steps = len(runs) + len(order)
        change = [0] * (steps + 1)  # of the bytes alive when a step begins
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
    """Those of some steps, in order, that lead to values, or do something."""
    marked = set(wanted)
    found: list[NodeCost] = []
    for step in reversed(steps):
        if not marked.isdisjoint(step.outputs) or step.node.op.effect:
            found.append(step)
            marked.update(step.inputs)
    return found[::-1]
