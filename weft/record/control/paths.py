"""The conditions that are known to hold where code is recorded, and what follows from them.

Inside of a branch its condition is a fact. Others follow: after `if c: ...; return`, the rest of a
function is recorded under `not returned`, and `returned` is true only if c was.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from weft.ir.graph import Node, Value
from weft.ir.literal import CONSTANT
from weft.ops.cards import IF, LOGICAL_AND, LOGICAL_NOT, LOGICAL_OR

#: Conditions that are assumed to hold, each with its truth.
Facts = tuple[tuple[Value, bool], ...]
#: By condition: 0 if it holds, 1 if not.
Taken = Mapping[Value, int]
DEEPEST = 60  # how many nodes back conditions are followed


class Paths:
    """The facts at this point of a run."""

    def __init__(self) -> None:
        self.facts: Facts = ()
        self._outer: dict[Value, Value] = {}

    def captured(self, inner: Value, outer: Value) -> None:
        """Note that a value of a nested graph is an input for one of the enclosing graph."""
        self._outer[inner] = outer

    def learn(self, condition: Value, truth: bool) -> None:
        """Note a condition that was asked or follows: from here on it is a fact."""
        if (condition, truth) not in self.facts:
            self.facts = (*self.facts, (condition, truth))

    @contextlib.contextmanager
    def assuming(self, condition: Value, truth: bool) -> Iterator[None]:
        before = self.facts
        self.facts = (*before, (condition, truth))
        try:
            yield
        finally:
            self.facts = before

    def key(self, condition: Value) -> tuple[Value, bool]:
        """The condition without negations, and whether it is negated."""
        opposite = False
        while True:
            condition = self._outermost(condition)
            node = condition.node
            if node is None or node.op is not LOGICAL_NOT:
                return condition, opposite
            condition, opposite = node.inputs[0], not opposite

    def possible(self, taken: Taken, facts: Facts) -> bool:
        """Whether these decisions are possible if all facts hold."""
        if not all(self.truth(value, taken) in (None, truth) for value, truth in facts):
            return False
        return all(
            self._decided(key, taken, DEEPEST) in (None, way == 0) for key, way in taken.items()
        )

    def known(self, condition: Value) -> bool | None:
        """Whether a condition holds here; None if the facts do not decide it."""
        key, opposite = self.key(condition)
        keys = [(*self.key(value), truth) for value, truth in self.facts]
        taken = {value: int(truth is not_) for value, not_, truth in keys}
        ways = [taken[key]] if key in taken else [0, 1]
        ways = [way for way in ways if self.possible({**taken, key: way}, self.facts)]
        return None if len(ways) != 1 else (ways[0] == 0) is not opposite

    def truth(self, value: Value, taken: Taken, depth: int = DEEPEST) -> bool | None:
        """Whether a condition holds given these decisions; None if they do not decide it."""
        value = self._outermost(value)
        return taken[value] == 0 if value in taken else self._decided(value, taken, depth)

    def _decided(self, value: Value, taken: Taken, depth: int) -> bool | None:
        """The same, from the node that computes the condition."""
        node = value.node
        if node is None or not depth:
            return None
        op = node.op
        if op is IF:
            return self._of_if(node, value.index, taken, depth - 1)
        if op is CONSTANT:
            array = node.attrs["value"].array
            return bool(array.reshape(())) if array.size == 1 else None
        if op not in (LOGICAL_NOT, LOGICAL_AND, LOGICAL_OR):
            return None
        parts = [self.truth(part, taken, depth - 1) for part in node.inputs]
        if op is LOGICAL_NOT:
            return None if parts[0] is None else not parts[0]
        decisive = op is LOGICAL_OR
        if decisive in parts:
            return decisive
        return None if None in parts else not decisive

    def _of_if(self, node: Node, index: int, taken: Taken, depth: int) -> bool | None:
        holds = self.truth(node.inputs[0], taken, depth)
        graphs = node.graphs if holds is None else node.graphs[:1] if holds else node.graphs[1:]
        found = {self.truth(graph.outputs[index], taken, depth) for graph in graphs}
        return found.pop() if len(found) == 1 else None

    def _outermost(self, value: Value) -> Value:
        while value in self._outer:
            value = self._outer[value]
        return value
