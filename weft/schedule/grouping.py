"""From a graph to its groups, in the order in which they run."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from weft.ir.graph import Graph, Node, Value
from weft.ir.literal import CONSTANT
from weft.ir.types import TensorType
from weft.ops.cards import SUM
from weft.schedule.axes import Map
from weft.schedule.groups import (
    IN_REGISTERS,
    Group,
    Leaf,
    Operand,
    buffers_of,
)
from weft.schedule.inline_cheap import only_packed, uses_of
from weft.schedule.late import TELLING, late_names_of, mentions
from weft.schedule.layouts import Layout
from weft.schedule.nodes import early_first, is_view, literal_of, tensor_type
from weft.schedule.reasons import BEGINS, JOINED, Why
from weft.schedule.rematerialize import kept
from weft.schedule.target import Target
from weft.schedule.values import Values
from weft.schedule.views import View, dense, viewed

__all__ = ["Grouping"]


class Grouping(Values):
    """The groups of a graph, as its target can compute them.

    `refused` are nodes to call in Python, though the target said that it has kernels for them;
    `apart` are nodes that do not join products.
    """

    def __init__(
        self,
        graph: Graph,
        target: Target,
        refused: Collection[Node] = (),
        apart: Collection[Node] = (),
    ) -> None:
        super().__init__()
        self.graph = graph
        self._target = target
        self._refused = refused
        self._apart = apart
        self._recomputes = target.recomputes
        self._uses = uses_of(graph)
        self._users = graph.users()
        self._kept = kept(graph, self._in_loops)
        self._only_packed = only_packed(graph, self._uses)
        self._refusal: Why | None = None  # why the node at hand did not join the group it reads
        self._told: dict[str, int] = {}  # of each late name: the group that tells it
        for node in early_first(graph, target.late):
            self._take(node)
        self.results = [self._dense(value) for value in graph.outputs]
        for group in self.groups:
            made = dict.fromkeys(value for node in group.in_order() for value in node.outputs)
            group.outputs = [v for v in made if v in self._wanted and self._home.get(v) is group]
        # All that loops compute may be computed again where it is used.
        self.groups = [group for group in self.groups if group.kind != "loop" or group.outputs]

    def _in_loops(self, node: Node) -> bool:
        return (node.op.elementwise or node.op.reduction) and self._target.emits(node)

    # --- nodes --------------------------------------------------------------------------------

    def _take(self, node: Node) -> None:
        if is_view(node) or (node.outputs and literal_of(node.outputs[0]) is not None):
            return
        if node.op is CONSTANT:
            return
        if node.graphs:
            self._alone(node, "control")
        elif node.op.elementwise and self._target.emits(node):
            if not self._inlines(node):
                self._elementwise(node)
        elif node.op.reduction and self._target.emits(node):
            self._reduce(node)
        else:
            special = "" if node in self._refused else self._target.kind(node)
            if special.startswith("attention"):
                self._attend(node, special)
            elif special != "kernel" or not self._follows(node):
                self._alone(node, special or "call")

    def _alone(self, node: Node, kind: str) -> None:
        operands: list[Operand] = []
        prologues: dict[int, Group] = {}
        for place in range(len(node.inputs)):
            prologue = self._prologue(node, place, operands) if kind == "product" else None
            if prologue is not None:
                prologues[place], leaf = prologue
                operands.append(leaf)
            else:
                operands.append(self._handed_to(node, place, kind))
        group = self._new(kind)
        group.space.may_split = False
        group.nodes.append(node)
        group.operands[node] = operands
        for value in node.outputs:
            self._home[value] = group
            if kind != "product":
                self._wanted[value] = None
        if self._target.late and kind in TELLING:
            for value in node.outputs:
                if isinstance(value.type, TensorType):
                    for name in late_names_of(value.type, self._target.late):
                        self._told.setdefault(name, group.position)
        if kind == "product":
            full = group.space.full(tensor_type(node.outputs[0]).shape)
            group.places[node] = group.maps[node.outputs[0]] = full
        group.prologues = prologues
        for loops in prologues.values():
            group.operands.update(loops.operands)

    def _handed_to(self, node: Node, place: int, kind: str) -> Leaf:
        """An operand, laid out as the code of a node reads it; Python reads dense arrays."""
        layout = Layout.DENSE if kind == "call" else self._target.layout(node, place)
        return self.handed(node.inputs[place], layout)

    def _follows(self, node: Node) -> bool:
        """Let a pooling follow a convolution image by image, if nothing else uses its result."""
        if not node.inputs:
            return False
        value = node.inputs[0]
        home = self._home.get(value)
        if home is None or home.kind != "product" or home.after:
            return False
        if self._uses[value] != 1 or not self._target.pools(home.nodes[0], node):
            return False
        out = node.outputs[0]
        home.tail = node
        home.after.add(out)
        self._home[out] = home
        self._wanted[out] = None
        self.why[node] = ("follows", None)
        return True

    def _prologue(
        self, node: Node, side: int, before: Sequence[Operand]
    ) -> tuple[Group, Leaf] | None:
        """The prologue of an operand of a product: the loops that compute it where it is packed.
        With it, how the operand would be read from memory. None if it is not inlined, or is packed
        more than once. `before`: the operands before it."""
        root, chain = self.root(node.inputs[side])
        if root not in self._inlined or side > 1:
            return None
        if chain:
            ndim = tensor_type(root).ndim
            turned = (*range(ndim - 2), ndim - 1, ndim - 2)
            if len(chain) > 1 or chain[0].attrs.get("axes") != turned:
                return None
        other = self._view_beside(node, side, before)
        view = self._view_of(node.inputs[side])
        if view is None or other is None:
            return None
        made = self._inlined[root].node
        if not self._target.packs(node, side, *((view, other) if side == 0 else (other, view))):
            self.why[made] = ("unpacked", None)
            return None
        self.why[made] = ("packed", None)
        group = Group("loop", position=len(self.groups))
        pulled = self._inline_into(group, root, group.space.full(tensor_type(root).shape))
        assert pulled, root
        group.outputs = [root]
        return group, Leaf(root, view)

    def _view_beside(self, node: Node, side: int, before: Sequence[Operand]) -> View | None:
        """The layout of the other operand of a product; None where it is not known, or where both
        operands are one value."""
        if side == 1:
            return before[0].view if isinstance(before[0], Leaf) else None
        left, right = (self.root(value)[0] for value in node.inputs[:2])
        return None if left is right else self._view_of(node.inputs[1])

    def _view_of(self, value: Value) -> View | None:
        """How a value is read from its root; None if strides cannot express it."""
        root, chain = self.root(value)
        view: View | None = dense(tensor_type(root).shape)
        for node in chain:
            if view is not None:
                shape = tensor_type(node.outputs[0]).shape
                view = viewed(view, node.op, node.attrs, shape)
        return view

    def _attend(self, node: Node, kind: str) -> None:
        operands: list[Operand] = [
            self._handed_to(node, place, kind) for place in range(len(node.inputs))
        ]
        group = self._new(kind)
        group.space.may_split = False
        group.nodes.append(node)
        group.operands[node] = operands
        for value in node.outputs:
            self._home[value] = group
            if kind not in IN_REGISTERS:
                self._wanted[value] = None
        if kind in IN_REGISTERS:
            place = group.space.full(tensor_type(node.outputs[0]).shape)
            group.places[node] = group.maps[node.outputs[0]] = place

    def _latest(self, node: Node) -> Group | None:
        homes = [self._home.get(self.root(value)[0]) for value in node.inputs]
        return max((h for h in homes if h is not None), key=lambda h: h.position, default=None)

    def _candidates(self, node: Node) -> list[Group]:
        """The groups that a node may join: all its operands are computed when they run."""
        for value in node.inputs:  # what views look at is not inlined: its group may be joined
            root, chain = self.root(value)
            if chain and root in self._inlined:
                self._materialize(root)
        latest = self._latest(node)
        found = [] if latest is None else [latest]
        last = self._last_loop
        if last is not None and (latest is None or last.position > latest.position):
            found.append(last)
        if node in self._apart:
            found = [group for group in found if group.kind not in IN_REGISTERS]
        if not self._told:
            return found
        first = self._after_told(node)
        return [group for group in found if group.position >= first]

    def _after_told(self, node: Node) -> int:
        """The first position of groups that know the late sizes that a node needs."""
        return max((self._told.get(name, -1) for name in self._late_names(node)), default=-1) + 1

    def _late_names(self, node: Node) -> set[str]:
        found = mentions(node, self._target.late)
        for value in node.inputs:
            root, _ = self.root(value)
            if root.node is not None and (root in self._recipes or literal_of(root) is not None):
                found |= self._late_names(root.node)
        return found

    def _joined(
        self, group: Group, node: Node, shape: Sequence[int]
    ) -> tuple[Map, list[Operand]] | None:
        """The axes of a node in a group's loops, and its operands there; None if it does not fit,
        and `_refusal` says why."""
        found = self._try_join(group, node, shape)
        if isinstance(found, str):
            self._refusal = self._refusal or (found, group)
            return None
        return found

    def _try_join(
        self, group: Group, node: Node, shape: Sequence[int]
    ) -> tuple[Map, list[Operand]] | str:
        if group.kind not in ("loop", *IN_REGISTERS):
            return "no loops"
        if len(group.nodes) >= self._target.limits.nodes:
            return "full"
        if 0 in group.space.sizes.values():  # a copy without elements
            return "empty"
        values = [self.root(value)[0] for value in node.inputs]
        if any(value in group.after for value in values):
            return "total"
        mine = [
            i for i, value in enumerate(values) if value in group.maps and literal_of(value) is None
        ]
        for i in mine:  # in two rounds: one view may split an axis that another uses
            if self._map_inside(group, node.inputs[i]) is None:
                return "view"
        inside = [self._map_inside(group, node.inputs[i]) for i in mine]
        if any(found is None for found in inside):
            return "view"
        place = group.place_of(shape, [found for found in inside if found is not None])
        if place is None:
            return "shape"
        if buffers_of(group) + len(node.inputs) - len(mine) > self._target.limits.buffers:
            return "buffers"
        operands: list[Operand] = []
        for i, value in enumerate(node.inputs):
            if i in mine:
                operands.append(values[i])
                continue
            if value is values[i] and (
                value in self._inlined or self._rematerializes(value, group)
            ):
                if not self._inline_into(group, value, place):
                    return "twice"
                operands.append(value)
                continue
            found = self.leaf(value)
            if not self._is_ready(found, group):  # a copy that this group or a later one writes
                return "copy"
            operands.append(found)
        return place, operands

    def _new_group_for(self, node: Node, shape: Sequence[int]) -> tuple[Group, Map, list[Operand]]:
        """A new group for a node that fits into no other: its axes there, and its operands."""
        roots = [self.root(value)[0] for value in node.inputs]
        pulled = [
            value
            for value, root in zip(node.inputs, roots, strict=True)
            if root is value and (root in self._inlined or self._rematerializes(root, None))
        ]
        leaves = {value: self.leaf(value) for value in node.inputs if value not in pulled}
        group = self._new("loop")
        place = group.space.full(shape)
        operands: list[Operand] = []
        for value in node.inputs:
            if value not in pulled:
                operands.append(leaves[value])
            else:
                pulled_in = self._inline_into(group, value, place)
                assert pulled_in, value
                operands.append(value)
        return group, place, operands

    def _elementwise(self, node: Node) -> None:
        shape = tensor_type(node.outputs[0]).shape
        joined = self._refusal = None
        for group in self._candidates(node):
            joined = self._joined(group, node, shape)
            if joined is not None:
                break
        self.why[node] = JOINED if joined is not None else self._refusal or BEGINS
        if joined is None:
            group, place, operands = self._new_group_for(node, shape)
            joined = place, operands
        group.add(node, joined[0], joined[1], joined[0])
        self._home[node.outputs[0]] = group

    def _reduce(self, node: Node) -> None:
        shape = tensor_type(node.inputs[0]).shape
        axes: Sequence[int] = node.attrs["axis"]
        small = self._target.limits.total
        joined = how = self._refusal = None
        for group in self._candidates(node):
            if group.kind in IN_REGISTERS and not _may_total(group, node):
                self._refusal = self._refusal or ("registers", group)
                continue
            joined = self._joined(group, node, shape)
            if group.kind in IN_REGISTERS:
                how = None if joined is None else "total"
            else:
                how = None if joined is None else group.reduction(joined[0], axes, node, small)
            if how is not None:
                break
            self._refusal = self._refusal or ("axes", group)
        self.why[node] = JOINED if how is not None else self._refusal or BEGINS
        if joined is None or how is None:
            group, place, operands = self._new_group_for(node, shape)
            joined = place, operands
            how = group.reduction(joined[0], axes, node, small)
            assert how is not None
        place, given = joined
        keep = node.attrs["keepdims"]
        out = tuple(
            () if i in axes else part for i, part in enumerate(place) if keep or i not in axes
        )
        group.add(node, place, given, out)
        self._home[node.outputs[0]] = group
        if how != "row":
            group.after.add(node.outputs[0])
        if how != "total":
            over = tuple(a for a in group.space.order if any(a in place[i] for i in axes))
            group.marks["row" if how == "row" else "columns"] = (over,)


def _may_total(group: Group, node: Node) -> bool:
    """Whether a reduction is the sum of all elements that a product leaves in registers."""
    kind = tensor_type(node.inputs[0])
    return (
        group.kind == "product"
        and group.tail is None
        and node.op is SUM
        and tensor_type(node.outputs[0]).dtype.kind == "float"
        and len(set(node.attrs["axis"])) == kind.ndim
        and kind.size == group.space.size_of(group.space.order)
    )
