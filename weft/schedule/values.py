"""Where values are: in a group's loops, in memory, or not computed yet.

Views belong to no group: they say how a value in memory, their root, is read. A view is copied if
strides cannot express it, or if its reader needs dense elements.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from weft.base.dims import typical
from weft.ir.graph import Node, Value
from weft.ir.literal import CONSTANT, Literal
from weft.ir.types import TensorType
from weft.ops.cards import IDENTITY
from weft.schedule.axes import Map
from weft.schedule.groups import IN_REGISTERS, Group, Leaf, Operand, Scalar
from weft.schedule.inline_cheap import MOST as MOST_INLINED
from weft.schedule.inline_cheap import Recipe, count_of
from weft.schedule.layouts import Layout, suits
from weft.schedule.nodes import is_view, literal_of, tensor_type
from weft.schedule.reasons import BEGINS, COPIED, INLINED, Why
from weft.schedule.rematerialize import bytes_written, recipes, roots_of
from weft.schedule.views import dense, viewed

__all__ = ["Values"]


class Values:
    """The groups so far, and where their results are."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.constants: dict[Value, Literal] = {}
        self.why: dict[Node, Why] = {}  # why each node is where it is: see `weft.schedule.reasons`
        self._last_loop: Group | None = None
        self._home: dict[Value, Group] = {}  # the group that computes a value
        self._copies: dict[Value, Value] = {}  # copies of views
        self._inlined: dict[Value, Recipe] = {}  # values that are computed wherever they are used
        self._recipes: dict[
            Value, Recipe
        ] = {}  # of inlined values, also of those written to memory since
        self._only_packed: frozenset[Node] = frozenset()  # inlined where a product packs them
        self._wanted: dict[Value, None] = {}  # values that must be in memory
        self._kept: Collection[Value] = ()  # values that will be in memory anyway
        self._users: Mapping[Value, Sequence[Node]] = {}
        self._recomputes = False  # whether values of loops are computed again

    def _new(self, kind: str) -> Group:
        group = Group(kind)
        group.position = len(self.groups)
        self.groups.append(group)
        if kind == "loop":
            self._last_loop = group
        return group

    def root(self, value: Value) -> tuple[Value, list[Node]]:
        """The root of a view, and the views from the root to it."""
        chain: list[Node] = []
        while value.node is not None and is_view(value.node):
            chain.append(value.node)
            value = value.node.inputs[0]
        return value, chain[::-1]

    def leaf(self, value: Value) -> Leaf | Scalar:
        """How a value is read from memory; a view that strides cannot express is copied first."""
        root, chain = self.root(value)
        number = literal_of(root)
        if number is not None:
            return Scalar(number)
        if root in self._inlined:
            self._materialize(root)
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
        """A copy of a value in C order, written by the group that computes it if possible."""
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
        """The axes of a view in the loops that compute its root; None if they cannot write it."""
        if group.kind not in ("loop", *IN_REGISTERS) or root in group.after:
            return None
        self._map_inside(group, value)  # a view may split axes: then the second answer differs
        found = self._map_inside(group, value)
        if found is None:
            return None
        if any(not axes and size != 1 for axes, size in zip(*found, strict=True)):
            return None  # broadcast: it has more elements than the loops have points
        return found[0] if group.fits(found[0]) else None

    def _dense(self, value: Value) -> Value:
        """An equal value that lies dense in memory: this one, its root, or a copy."""
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
                del self._wanted[root]  # perhaps only the copy is needed
            self._copies[value] = self._copied(value, found)
        self._wanted[self._copies[value]] = None
        return self._copies[value]

    def handed(self, value: Value, layout: Layout) -> Leaf:
        """An operand for an emitter that reads this layout: a copy, if the value has another."""
        shape = value.type.shape if isinstance(value.type, TensorType) else ()
        if layout is not Layout.DENSE:
            found = self.leaf(value)
            if isinstance(found, Leaf) and suits(layout, found):
                return found
        return Leaf(self._dense(value), dense(shape))

    # --- cheap nodes of inputs ----------------------------------------------------------------

    def _inlines(self, node: Node) -> bool:
        """Whether a node is computed wherever it is used; see `weft.schedule.inline_cheap`."""
        if not node.op.cheap and node not in self._only_packed:
            return False
        if self._recomputes and node.outputs[0] in self._kept:
            return False  # it is written in any case, with what else its loops compute
        operands: list[Operand] = []
        for value in node.inputs:
            root, chain = self.root(value)
            if root in self._inlined:
                if chain:
                    return False
                operands.append(root)
            elif root.node is None or literal_of(root) is not None or root in self.constants:
                operands.append(self.leaf(value))
            else:
                return False
        count = count_of(tuple(operands), self._inlined)
        if count > MOST_INLINED:
            return False
        self.why[node] = INLINED
        found = Recipe(node, tuple(operands), count)
        self._inlined[node.outputs[0]] = self._recipes[node.outputs[0]] = found
        return True

    def _materialize(self, value: Value) -> None:
        """Compute an inlined value in a group of its own, which writes it to memory."""
        found = self._inlined[value]
        if self.why[found.node] is INLINED:
            self.why[found.node] = BEGINS
        group = self._new("loop")
        place = group.space.full(tensor_type(value).shape)
        for operand in found.operands:
            if isinstance(operand, Value):
                pulled = self._inline_into(group, operand, place)
                assert pulled, operand
        group.add(found.node, place, list(found.operands), place)
        del self._inlined[value]
        self._home[value] = group

    def _is_stored(self, value: Value) -> bool:
        """Whether a value is written to memory, now or later."""
        return value in self._wanted or value in self._kept

    def _is_computed(self, value: Value, group: Group) -> bool:
        """Whether a value is written once a group has run: an inlined one that the group computes
        for itself may be written later."""
        home = self._home.get(value)
        return home is not None and home.position <= group.position

    def _is_ready(self, operand: Operand, group: Group) -> bool:
        """Whether an operand in memory is written before a group runs, and not by the group itself
        or a later one."""
        home = self._home.get(operand.root) if isinstance(operand, Leaf) else None
        return home is None or home.position < group.position

    def _rematerializes(self, value: Value, group: Group | None) -> bool:
        """Whether a group rematerializes a value of a product's epilogue, or of other loops where
        the target recomputes these: `_recipes` then says how.
        See `weft.schedule.rematerialize`."""
        home = self._home.get(value)
        if home is None or home is group or self._is_stored(value):
            return False
        if home.kind != "product" and not (home.kind == "loop" and self._recomputes):
            return False
        if home.kind == "product" and value is home.nodes[0].outputs[0]:
            return False
        found = recipes(
            value, home, lambda root: self._is_stored(root) and self._is_computed(root, home)
        )
        if found is None:
            return False
        roots = roots_of(found)
        known = (
            ()
            if group is None
            else {op.root for ops in group.operands.values() for op in ops if isinstance(op, Leaf)}
        )
        moved = sum(
            typical(tensor_type(root).nbytes) * (1 if self._is_stored(root) else 2)
            for root in roots
            if root not in known
        )
        if moved >= 2 * bytes_written(home, self._users, self._is_stored):
            return False
        self._wanted.update(roots)
        self._recipes.update(found)
        return True

    def _inline_into(self, group: Group, value: Value, place: Map) -> bool:
        """Compute an inlined value in a group, for a node along the axes `place`. False if the
        group has it along other axes, or if it reads what is not written when the group runs."""
        shape = tensor_type(value).shape
        own = tuple(place[i - len(shape)] if size != 1 else () for i, size in enumerate(shape))
        if value in group.maps:
            return group.maps[value] == own
        found = self._recipes[value]
        for operand in found.operands:
            if not self._is_ready(operand, group):
                return False
            if isinstance(operand, Value) and not self._inline_into(group, operand, own):
                return False
        group.add(found.node, own, list(found.operands), own)
        return True

    def _map_inside(self, group: Group, value: Value) -> tuple[Map, Sequence[int]] | None:
        """The axes and the shape of a view of what a group's loops compute; None if not in them."""
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
