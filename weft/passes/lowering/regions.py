"""The regions of a graph that is lowered: what stands in one context, and the frames of loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.base.dims import has_dims
from weft.ir.contexts import BODY, EXIT
from weft.ir.graph import Node, Value
from weft.ir.sizes import bare_names, size_names
from weft.ir.types import StackType, TensorType, Type
from weft.ops.flow import (
    FLOW_COND,
    FLOW_ENTER,
    FLOW_EXIT,
    FLOW_MERGE,
    FLOW_NEXT,
    FLOW_STEP,
    FLOW_SWITCH,
    FLOW_ZERO,
)
from weft.ops.stacks import STACK_NEW, STACK_PUSH, stack_attrs

if TYPE_CHECKING:
    from weft.passes.lowering.frames import Lowering

__all__ = ["Loop", "Region", "element_of"]


class Region:
    """One context of the graph that is made: outside, a frame, or one side of a branch.

    passed   a value of the region around this one -> the value here
    names    what the names of values here begin with, as they are not those of other regions
    """

    def __init__(self, around: Region | None, passed: Callable[[Value], Value], names: str) -> None:
        self.around = around
        self.passed = passed
        self.names = names
        self.signal: Value | None = None
        self.known: dict[Value, Value] = {}
        self._tellers: dict[str, Value] = {}

    def define(self, old: Value, new: Value) -> None:
        """A value of the old graph is this one here."""
        self.known[old] = new
        self.tells(new)

    def tells(self, new: Value) -> None:
        """The names of sizes that a value here tells. An axis that is a name alone is best."""
        if isinstance(new.type, TensorType) and has_dims(new.type.shape):
            bare = bare_names(new)
            for name in size_names([new]):
                old = self._tellers.get(name)
                if old is None or (name in bare and name not in bare_names(old)):
                    self._tellers[name] = new

    def teller(self, name: str) -> Value | None:
        """A value here whose shape tells the size of a name."""
        found = self._tellers.get(name)
        if found is None and self.around is not None:
            outer = self.around.teller(name)
            if outer is not None:
                found = self.passed(outer)
                self.tells(found)
        return found


class Loop:
    """A frame and its body, while they are made."""

    def __init__(self, lowering: Lowering, node: Node, region: Region) -> None:
        self.lowering = lowering
        self.node = node
        self.region = region
        self.name = lowering.fresh(node)
        self.merges: list[Value] = []
        self.sent: set[Value] = set()
        self.predicate: Value | None = None
        self._switches: dict[Value, Node] = {}
        self.frame = Region(region, lambda v: self.fixed(v, "control"), f"{self.name}.")
        self.body = Region(self.frame, self.inside, f"{self.name}.body.")

    def fixed(self, value: Value, role: str, kind: Type | None = None) -> Value:
        """The value in all iterations."""
        kinds = [kind or value.type]
        return self.lowering.typed(FLOW_ENTER, [value], kinds, frame=self.name, role=role).out

    def carried(self, value: Value, role: str, kind: Type | None = None) -> Value:
        """The value in this iteration, of one that each iteration hands to the next."""
        entered = self.fixed(value, role)
        merge = self.lowering.typed(FLOW_MERGE, [entered], [kind or value.type], of=self.name).out
        self.merges.append(merge)
        return merge

    def counter(self) -> Value:
        signal = self.lowering.signal(self.region)
        return self.carried(self.lowering.add(FLOW_ZERO, signal), "count")

    def empty(self, element: Type) -> Value:
        """An empty stack, in the region around the loop."""
        kind = StackType(element_of(element))
        node = Node(STACK_NEW, [], stack_attrs(kind), [kind], (), self.node.location)
        return self.lowering.started(node, self.region)[0]

    def open(self, predicate: Value) -> None:
        self.predicate = self.lowering.add(FLOW_COND, predicate, frame=self.name)

    def _switched(self, value: Value, kind: Type | None = None) -> Node:
        if value not in self._switches:
            assert self.predicate is not None
            kinds = [kind or value.type, value.type]
            self._switches[value] = self.lowering.typed(
                FLOW_SWITCH, [value, self.predicate], kinds, of=self.name
            )
        return self._switches[value]

    def inside(self, value: Value) -> Value:
        """A value of the frame, in the body."""
        return self._switched(value).outputs[BODY]

    def take(self, old: Value, value: Value) -> None:
        """The input of the body that is this value of the frame."""
        new = self._switched(value, old.type).outputs[BODY]
        self.lowering.name(old, new, self.body)
        self.body.define(old, new)

    def send(self, merge: Value, value: Value) -> None:
        self.sent.add(merge)
        self.lowering.node(FLOW_NEXT, merge, value, frame=self.name)

    def step(self, count: Value) -> None:
        self.send(count, self.lowering.add(FLOW_STEP, self.inside(count)))

    def push(self, merge: Value, value: Value) -> None:
        self.send(merge, self.lowering.add(STACK_PUSH, self.inside(merge), value))

    def exit(self, merge: Value, result: Value) -> Value:
        """The value after the loop, which becomes this result of the old node."""
        left = self._switched(merge).outputs[EXIT]
        return self.lowering.typed(FLOW_EXIT, [left], [result.type], frame=self.name).out


def element_of(kind: Type) -> TensorType | StackType:
    assert isinstance(kind, (TensorType, StackType))
    return kind
