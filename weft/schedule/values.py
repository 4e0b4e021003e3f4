"""Where values are found: in a group's loops, in memory, or nowhere yet.

Views belong to no group: they say how the value they look at is read. Where strides cannot say it,
or who reads it needs its elements side by side, it is copied.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from weft.ir.graph import Node, Value
from weft.ir.literal import CONSTANT, Literal
from weft.ir.types import TensorType
from weft.ops.cards import IDENTITY
from weft.schedule.axes import Map
from weft.schedule.groups import IN_REGISTERS, Group, Leaf, Operand, Scalar
from weft.schedule.inline_cheap import MOST as MOST_FLOATING
from weft.schedule.inline_cheap import Floating
from weft.schedule.inline_cheap import size_of as size_of_floating
from weft.schedule.layouts import Layout, suits
from weft.schedule.nodes import is_view, literal_of, tensor_type
from weft.schedule.reasons import BEGINS, COPIED, FLOATS, Why
from weft.schedule.rematerialize import bytes_written, recipes, roots_of
from weft.schedule.views import dense, viewed

__all__ = ["Values"]


class Values:
    """The groups so far, and where they leave what they compute."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.constants: dict[Value, Literal] = {}
        self.why: dict[Node, Why] = {}  # why each node is where it is: see `weft.schedule.reasons`
        self._last_loop: Group | None = None
        self._home: dict[Value, Group] = {}  # the group that computes a value
        self._copies: dict[Value, Value] = {}  # views that had to be copied
        self._floating: dict[Value, Floating] = {}  # without a group
        self._recipes: dict[Value, Floating] = {}  # those, and what was written to memory after all
        self._only_packed: frozenset[Node] = frozenset()  # these float, too
        self._wanted: dict[Value, None] = {}  # what must lie in memory
        self._kept: Collection[Value] = ()  # what will lie there in any case
        self._users: Mapping[Value, Sequence[Node]] = {}

    def _new(self, kind: str) -> Group:
        group = Group(kind)
        group.position = len(self.groups)
        self.groups.append(group)
        if kind == "loop":
            self._last_loop = group
        return group

    def root(self, value: Value) -> tuple[Value, list[Node]]:
        """The value that a view looks at, and the views from there to it."""
        chain: list[Node] = []
        while value.node is not None and is_view(value.node):
            chain.append(value.node)
            value = value.node.inputs[0]
        return value, chain[::-1]

    def leaf(self, value: Value) -> Leaf | Scalar:
        """How a value is read from memory; a view that strides cannot say is copied first."""
        root, chain = self.root(value)
        number = literal_of(root)
        if number is not None:
            return Scalar(number)
        if root in self._floating:
            self._sink(root)
        root = self._in_memory(root)
        view = dense(tensor_type(root).shape)
        for node in chain:
            shape = tensor_type(node.outputs[0]).shape
            found = viewed(view, node.op, node.attrs, shape)
            if found is None:
                before = node.inputs[0]
                if before not in self._copies:
                    self._copies[before] = self._copied(before, Leaf(root, view))
                root = self._copies[before]
                self._wanted[root] = None
                found = viewed(dense(view.shape), node.op, node.attrs, shape)
                assert found is not None
            view = found
        self._wanted[root] = None
        return Leaf(root, view)

    def _in_memory(self, root: Value) -> Value:
        if root.node is not None and root.node.op is CONSTANT:
            self.constants[root] = root.node.attrs["value"]
        return root

    def _copied(self, value: Value, operand: Leaf | Scalar) -> Value:
        """A value of its own with the elements of another, in C order.

        The group that computes the elements writes them there itself, where it can.
        """
        kind = tensor_type(value)
        node = Node(IDENTITY, [value], {}, [kind], (), None)
        root = self.root(value)[0]
        home = self._home.get(root)
        place = None if home is None else self._place_in(home, root, value)
        if home is not None and place is not None:
            group = home
            group.add(node, place, [root], place)
        else:
            if isinstance(operand, Leaf):
                self._wanted[operand.root] = None
            group = self._new("loop")
            place = group.space.full(kind.shape)
            group.add(node, place, [operand], place)
        made = node.outputs[0]
        self._home[made] = group
        self.why[node] = COPIED
        return made

    def _place_in(self, group: Group, root: Value, value: Value) -> Map | None:
        """Where a view of a value lies in the loops that compute it; None if not in them."""
        if group.kind not in ("loop", *IN_REGISTERS) or root in group.after:
            return None
        self._inside(group, value)  # what a view cuts is cut before it is read
        found = self._inside(group, value)
        if found is None:
            return None
        if any(not axes and size != 1 for axes, size in zip(*found, strict=True)):
            return None  # repeated: there are more elements than the loops go through
        return found[0] if group.fits(found[0]) else None

    def _settled(self, value: Value) -> Value:
        """A value that lies in memory in C order from its first byte on, equal to this one."""
        if not isinstance(value.type, TensorType):  # a stack, or a token
            self._wanted[value] = None
            return value
        root = self.root(value)[0]
        wanted = root in self._wanted
        found = self.leaf(value)
        if isinstance(found, Leaf) and suits(Layout.DENSE, found):
            return found.root
        if value not in self._copies:
            if not wanted and isinstance(found, Leaf) and found.root is root:
                del self._wanted[root]  # only the copy may be needed, and its group knows
            self._copies[value] = self._copied(value, found)
        self._wanted[self._copies[value]] = None
        return self._copies[value]

    def handed(self, value: Value, layout: Layout) -> Leaf:
        """An operand for an emitter that reads it in a layout: a copy, where it lies otherwise."""
        shape = value.type.shape if isinstance(value.type, TensorType) else ()
        if layout is not Layout.DENSE:
            found = self.leaf(value)
            if isinstance(found, Leaf) and suits(layout, found):
                return found
        return Leaf(self._settled(value), dense(shape))

    # --- cheap nodes of inputs ----------------------------------------------------------------

    def _floats(self, node: Node) -> bool:
        """Whether a node is computed where it is used; see `weft.schedule.inline_cheap`."""
        if not node.op.cheap and node not in self._only_packed:
            return False
        operands: list[Operand] = []
        for value in node.inputs:
            root, chain = self.root(value)
            if root in self._floating:
                if chain:
                    return False
                operands.append(root)
            elif root.node is None or literal_of(root) is not None or root in self.constants:
                operands.append(self.leaf(value))
            else:
                return False
        count = size_of_floating(tuple(operands), self._floating)
        if count > MOST_FLOATING:
            return False
        self.why[node] = FLOATS
        found = Floating(node, tuple(operands), count)
        self._floating[node.outputs[0]] = self._recipes[node.outputs[0]] = found
        return True

    def _sink(self, value: Value) -> None:
        """Give a floating value a group of its own, which writes it to memory."""
        found = self._floating[value]
        if self.why[found.node] is FLOATS:
            self.why[found.node] = BEGINS
        group = self._new("loop")
        place = group.space.full(tensor_type(value).shape)
        for operand in found.operands:
            if isinstance(operand, Value):
                pulled = self._pull(group, operand, place)
                assert pulled, operand
        group.add(found.node, place, list(found.operands), place)
        del self._floating[value]
        self._home[value] = group

    def _stays(self, value: Value) -> bool:
        """Whether a value lies in memory, or will."""
        return value in self._wanted or value in self._kept

    def _is_made(self, value: Value, group: Group) -> bool:
        """Whether a value is computed by the time that a group has run: a floating one that the
        group computes for itself may be written only later."""
        home = self._home.get(value)
        return home is not None and home.position <= group.position

    def _is_ready(self, operand: Operand, group: Group) -> bool:
        """Whether a group can read an operand: all of what lies in memory is written before the
        group runs. What the group itself writes is not, nor is a copy made after it."""
        home = self._home.get(operand.root) if isinstance(operand, Leaf) else None
        return home is None or home.position < group.position

    def _again(self, value: Value, group: Group | None) -> bool:
        """Whether a value that follows a product is computed again in a group: `_recipes` then says
        how. See `weft.schedule.rematerialize`."""
        home = self._home.get(value)
        if home is None or home is group or home.kind != "product" or self._stays(value):
            return False
        if value is home.nodes[0].outputs[0]:
            return False
        found = recipes(value, home, lambda root: self._stays(root) and self._is_made(root, home))
        if found is None:
            return False
        roots = roots_of(found)
        known = (
            ()
            if group is None
            else {op.root for ops in group.operands.values() for op in ops if isinstance(op, Leaf)}
        )
        moved = sum(
            tensor_type(root).nbytes * (1 if self._stays(root) else 2)
            for root in roots
            if root not in known
        )
        if moved >= 2 * bytes_written(home, self._users, self._stays):
            return False
        self._wanted.update(roots)
        self._recipes.update(found)
        return True

    def _pull(self, group: Group, value: Value, place: Map) -> bool:
        """Compute a floating value in a group, for a node at `place`; False if it is there already,
        along other axes, or reads what is not written yet when the group runs."""
        shape = tensor_type(value).shape
        own = tuple(place[i - len(shape)] if size != 1 else () for i, size in enumerate(shape))
        if value in group.maps:
            return group.maps[value] == own
        found = self._recipes[value]
        for operand in found.operands:
            if not self._is_ready(operand, group):
                return False
            if isinstance(operand, Value) and not self._pull(group, operand, own):
                return False
        group.add(found.node, own, list(found.operands), own)
        return True

    def _inside(self, group: Group, value: Value) -> tuple[Map, Sequence[int]] | None:
        """Where a value computed in a group's loops lies, seen through views."""
        root, chain = self.root(value)
        found = group.maps[root]
        shape = tensor_type(root).shape
        for node in chain:
            new = tensor_type(node.outputs[0]).shape
            seen = group.space.viewed(found, shape, node.op, node.attrs, new)
            if seen is None:
                return None
            found, shape = seen, new
        return found, shape
