"""Carries the history of a loss that one iteration computes and the next one differentiates.

A carried value is an input of the body. Its history lies in the previous iteration and is hidden.
If a backward pass in the body needs it, the loop also carries what the nodes of that history keep
for the backward, and the body rebuilds the nodes on these inputs. So the history must have the same
form before the loop and after the body: the same ops in the same order, which lead to the same
leaves or to other carried values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft.autodiff.node import FREED, Dropped, Node, OpNode, PartNode, count, part_of
from weft.autodiff.save_plan import ArrayType
from weft.core.symbolic import SymbolicArray
from weft.ir.attributes import attrs_key
from weft.ir.graph import Value
from weft.ir.literal import CONSTANT
from weft.record.control.borders import Border, CarriedNode


class NotCarried(Exception):
    """The history of a carried value cannot be carried; the message says why."""


class _Slot:
    """Stands for the array of this number among those that the loop carries for a history."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class History:
    """The history of one carried value: before the loop and after the body, compared node by node.

    starts, ends   arrays that the nodes keep and the loop must carry
    shape          the form of the history; must be the same in each recording of the body
    """

    def __init__(
        self, first: Any, last: Any, carried: Mapping[Any, Any], outer: Mapping[Value, Value]
    ) -> None:
        """Compare the histories before the loop (`first`) and after the body (`last`).

        carried   the other carried values, by their pairs of histories
        outer     captured values of the body -> values outside
        """
        self._carried = carried
        self._outer = outer
        self.starts: list[Any] = []
        self.ends: list[Any] = []
        self.shape: list[Any] = []
        self._kept: dict[Node, Any] = {}
        self._edges: dict[Node, list[tuple[str, Any]]] = {}
        self._root = first
        if first is None or last is None:
            raise NotCarried("it has none before the loop" if first is None else "it has none")
        twins: dict[Node, Node] = {}
        waiting = [(first, last)]
        while waiting:
            one, two = waiting.pop()
            if one in twins:
                if twins[one] is not two:
                    raise NotCarried("it is another one before the loop")
                continue
            twins[one] = two
            self._note(one, two)
            waiting += [
                (a, b)
                for a, b, (kind, _) in zip(one.edges, two.edges, self._edges[one], strict=True)
                if kind == "inner"
            ]
        self._order = sorted(twins, key=lambda node: node.number)

    def _note(self, one: Node, two: Node) -> None:
        """Compare two nodes."""
        if isinstance(two, (Border, CarriedNode)):
            raise NotCarried("it reaches back over several iterations")
        if type(two) not in (OpNode, PartNode):
            raise NotCarried(f"it goes through {two.name()}")
        if type(one) is not type(two) or one.name() != two.name() or one.shape != two.shape:
            raise NotCarried(f"it is {one.name()} before the loop, and {two.name()} in the body")
        if len(one.edges) != len(two.edges) or one.extra is not None or two.extra is not None:
            raise NotCarried(f"{one.name()} has a hook, or other operands before the loop")
        if isinstance(one, PartNode) and isinstance(two, PartNode):
            if one.index != two.index:
                raise NotCarried("it is another one before the loop")
        elif isinstance(one, OpNode) and isinstance(two, OpNode):
            if one.plan is not two.plan or not _equal(one.attrs, two.attrs):
                raise NotCarried(f"{one.name()} has other arguments before the loop")
            if one.kept is FREED or any(n.kept.__class__ is Dropped for n in (one, two)):
                raise NotCarried(f"what {one.name()} kept is freed, or computed again (checkpoint)")
            self._kept[one] = self._pair(one.kept, two.kept, one.name())
        edges = [self._edge(a, b) for a, b in zip(one.edges, two.edges, strict=True)]
        self._edges[one] = edges
        self.shape.append([edge if edge[0] == "carried" else edge[0] for edge in edges])

    def _edge(self, one: Any, two: Any) -> tuple[str, Any]:
        if one is two:
            return "fixed", one
        other = self._carried.get((one, two))
        if other is not None:
            return "carried", other
        if one is None or two is None:
            raise NotCarried("it has other operands with gradients before the loop")
        return "inner", one

    def _pair(self, one: Any, two: Any, name: str) -> Any:
        """What a node keeps, with slots for arrays that change from iteration to iteration."""
        if isinstance(one, tuple) and isinstance(two, tuple) and len(one) == len(two):
            return tuple([self._pair(a, b, name) for a, b in zip(one, two, strict=True)])
        if isinstance(one, ArrayType) and isinstance(two, ArrayType):
            if one.is_like(two):
                return one
        elif self._is_same(one, two):
            self.shape.append("fixed")
            return one
        elif _is_array(one) and _is_array(two) and ArrayType(one).is_like(two):
            self.starts.append(one)
            self.ends.append(two)
            self.shape.append("slot")
            return _Slot(len(self.starts) - 1)
        raise NotCarried(f"{name} keeps something else before the loop")

    def _is_same(self, one: Any, two: Any) -> bool:
        if one is two:
            return True
        if one.__class__ is not SymbolicArray or two.__class__ is not SymbolicArray:
            return False
        value = self._outer.get(two.value, two.value)
        return value is one.value or _is_constant(one.value, value)

    def build(self, arrays: Sequence[Any]) -> Node:
        """The history rebuilt on these arrays and on the current histories of other carries."""
        made: dict[Any, Any] = {}
        for node in self._order:
            edges = tuple(
                [
                    edge if kind == "fixed" else edge.border if kind == "carried" else made[edge]
                    for kind, edge in self._edges[node]
                ]
            )
            if isinstance(node, PartNode):
                made[node] = part_of(edges[0], node.index, node.shape)
                continue
            assert isinstance(node, OpNode)
            twin = CarriedNode()
            twin.plan, twin.attrs, twin.shape = node.plan, node.attrs, node.shape
            twin.edges, twin.extra, twin.number = edges, None, next(count)
            twin.kept = _filled(self._kept[node], arrays)
            made[node] = twin
        found: Node = made[self._root]
        return found


def _filled(kept: Any, arrays: Sequence[Any]) -> Any:
    if kept.__class__ is tuple:
        return tuple([_filled(part, arrays) for part in kept])
    return arrays[kept.number] if kept.__class__ is _Slot else kept


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and not isinstance(value, ArrayType)


def _is_constant(one: Value, two: Value) -> bool:
    """Whether two values are equal constants of the graph."""
    a, b = one.node, two.node
    if a is None or b is None or a.op is not b.op or a.inputs or b.inputs or a.graphs or b.graphs:
        return False
    return a.op is CONSTANT and one.type == two.type and _equal(a.attrs, b.attrs)


def _equal(one: Any, two: Any) -> bool:
    return attrs_key(one) == attrs_key(two)
