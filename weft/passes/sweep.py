"""One walk over a graph in order, in which a rule may replace the results of a node.

The walk goes from inputs to outputs, so a rule sees its inputs as already rewritten: one walk does
most chains of rewrites. No graph is built before the first rule matches, so a graph without work
costs only the matching. Nodes that become unused are left to `dead_code`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.errors import WeftError
from weft.ir.graph import Builder, Graph, Node, Value
from weft.ir.literal import CONSTANT, constant_attrs
from weft.ir.op import Op
from weft.ir.types import TensorType
from weft.ops.cards import BROADCAST_TO, FULL
from weft.passes.facts import one_number

#: (node, sweep) -> the values that replace its results, one by one and with the same types; or None
#: to leave the node as it is. The new values must not use the old ones.
Rule = Callable[[Node, "Sweep"], "Value | Sequence[Value] | None"]

#: The most times that a rule is applied again to what it has just made.
MOST_TRIES = 16


class Sweep:
    """The walk, and the methods with which rules build new nodes.

    A rule gets a node of the old graph until something has changed, and of the new graph from then
    on. It may return values of either graph.
    """

    def __init__(self, graph: Graph) -> None:
        self.old = graph
        self.source: Node  # the current node of the old graph
        self.changes = 0
        self._builder: Builder | None = None
        self._position = 0  # of `source` in the old graph
        self._mark = 0  # how many new nodes there were before

    def run(self, rule: Rule) -> Graph:
        """The graph with the rule applied everywhere; the old one if it never matches."""
        for position, node in enumerate(self.old.nodes):
            self._position, self.source = position, node
            before = self._builder
            if before is None:
                tried = node
            else:
                self._mark = len(before.graph.nodes)
                tried = before.copy(node)
            found = rule(tried, self)
            if found is not None:
                if before is not None:
                    del before.graph.nodes[self._mark]  # `tried`
                self._replace(node, found, rule)
            elif before is not None:
                del before.graph.nodes[self._mark + 1 :]  # a rule may add nodes and then give up
            else:
                self._give_up(node)
        return self.old if self._builder is None or not self.changes else self._builder.finish()

    # --- what rules use -----------------------------------------------------------------------

    def add(self, op: Op, *inputs: Value, **attrs: Any) -> Value:
        """A new node with one result."""
        builder = self._start()
        new = [builder.map.get(value, value) for value in inputs]
        return builder.add(op, *new, like=self.source, **attrs)

    def constant(self, array: np.ndarray[Any, Any], like: TensorType) -> Value:
        """A constant on the device of `like`; `full` if it has axes and holds one number."""
        number = one_number(array) if array.shape else None
        if number is not None:
            return self.uniform(number, like.like(shape=array.shape))
        return self.add(CONSTANT, **constant_attrs(array, like.device))

    def uniform(self, number: np.ndarray[Any, Any], like: TensorType) -> Value:
        """One number (a 0-d array) everywhere, as a value of type `like`."""
        if not like.shape:
            return self.constant(number, like)
        return self.add(
            FULL, shape=like.shape, value=number.item(), dtype=like.dtype, device=like.device
        )

    def fitted(self, value: Value, like: TensorType) -> Value | None:
        """`value`, broadcast to the shape of `like`; None if that is not possible."""
        type = value.tensor_type
        if type.dtype is not like.dtype:
            return None
        if type.shape == like.shape:
            return value
        try:
            return self.add(BROADCAST_TO, value, shape=like.shape)
        except WeftError:  # sizes that cannot be shown to fit
            return None

    # --- within -------------------------------------------------------------------------------

    def _start(self) -> Builder:
        """Start the new graph, with copies of all nodes so far."""
        if self._builder is None:
            self._builder = Builder(self.old)
            for node in self.old.nodes[: self._position]:
                self._builder.copy(node)
            self._mark = self._position
        return self._builder

    def _give_up(self, node: Node) -> None:
        """Undo what a rule added before it gave up, if that started the new graph."""
        if self._builder is not None:
            del self._builder.graph.nodes[self._mark :]
            self._builder.copy(node)

    def _replace(self, node: Node, found: Value | Sequence[Value], rule: Rule) -> None:
        """Replace the results of `node` by what the rule returned, and try the rule on these."""
        builder = self._start()
        nodes = builder.graph.nodes
        get = builder.map.get
        again: Value | Sequence[Value] | None = found
        tries = 0
        while again is not None:
            self.changes += 1
            tries += 1
            values = [again] if isinstance(again, Value) else list(again)
            values = [get(value, value) for value in values]
            made = values[0].node
            last = len(nodes) - 1
            if tries == MOST_TRIES or last < self._mark or made is not nodes[last]:
                break
            again = rule(made, self) if len(values) == 1 else None
            if again is not None:
                del nodes[last]
            else:
                del nodes[last + 1 :]
        new = set(nodes[self._mark :])
        for old, value in zip(node.outputs, values, strict=True):
            if old.name and not value.name and value.node in new:
                value.name = old.name
        builder.map.update(zip(node.outputs, values, strict=True))
