"""Keys of groups: groups with one key have one kernel.

Equal layers of a model give groups that differ only in which values they read and write. A kernel
gets the addresses of its buffers when it is called, so such groups can share it.
"""

from __future__ import annotations

from collections.abc import Hashable

from weft.ir.attributes import attr_key, attrs_key
from weft.ir.graph import Node, Value
from weft.schedule.groups import Group, Leaf, Operand, Scalar

__all__ = ["group_key"]


def group_key(group: Group) -> Hashable:
    """All that an emitter reads of a group, with values numbered in the order of their use."""
    return _Keys().of(group)


class _Keys:
    def __init__(self) -> None:
        self.numbers: dict[Value, int] = {}
        self.nodes: dict[Node, int] = {}

    def of(self, group: Group) -> Hashable:
        space, number = group.space, self._number
        return (
            group.kind,
            tuple(space.sizes.items()),
            tuple(space.order),
            tuple(group.marks.items()),
            tuple([(at, self.of(loops)) for at, loops in group.prologues.items()]),
            tuple([self._node(group, node) for node in group.nodes]),
            # In the order in which buffers become arguments.
            tuple([(self._at(node), self._operands(ops)) for node, ops in group.operands.items()]),
            tuple([number(value) for value in group.outputs]),
            tuple(sorted([number(value) for value in group.after])),
            None if group.tail is None else self._node(group, group.tail),
        )

    def _at(self, node: Node) -> int:
        return self.nodes.setdefault(node, len(self.nodes))

    def _number(self, value: Value) -> int:
        return self.numbers.setdefault(value, len(self.numbers))

    def _node(self, group: Group, node: Node) -> Hashable:
        number = self._number
        return (
            self._at(node),
            node.op,
            attrs_key(node.attrs),
            group.places.get(node),
            tuple([(number(value), value.type) for value in node.inputs]),
            tuple([(number(value), value.type, group.maps.get(value)) for value in node.outputs]),
        )

    def _operands(self, operands: list[Operand]) -> Hashable:
        found: list[Hashable] = []
        for operand in operands:
            if isinstance(operand, Leaf):
                root = operand.root
                found.append((self._number(root), root.type, operand.view))
            elif isinstance(operand, Scalar):
                found.append(("scalar", attr_key(operand.number)))
            else:
                found.append(self._number(operand))
        return tuple(found)
