"""From a graph to its groups, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import DType
from weft.base.shapes import size_of
from weft.ir.graph import Graph, Node, Value
from weft.ir.literal import Literal
from weft.ir.op import OPS, Trait
from weft.ir.types import TensorType
from weft.schedule.attention import Pattern, attentions
from weft.schedule.axes import Map
from weft.schedule.floating import CHEAP, Floating
from weft.schedule.floating import MOST as MOST_FLOATING
from weft.schedule.floating import size_of as size_of_floating
from weft.schedule.groups import (
    MOST_BUFFERS,
    MOST_NODES,
    REDUCTIONS,
    Group,
    Leaf,
    Operand,
    Scalar,
    buffers_of,
    is_small,
)
from weft.schedule.views import VIEW_OPS, View, dense, viewed

__all__ = ["IN_REGISTERS", "Grouping", "tensor_type"]

#: Kinds of groups whose first node gives elements that the others take from registers.
IN_REGISTERS = ("product", "attention")

#: Whether a node can be computed element by element in generated loops.
Emits = Callable[[Node], bool]


def tensor_type(value: Value) -> TensorType:
    kind = value.type
    assert isinstance(kind, TensorType)
    return kind


class Grouping:
    """
    emits     whether there is an emitter for an elementwise node, or a reduction
    special   whether a node has kernels of its own: "product" or "kernel", or ""
    """

    def __init__(self, graph: Graph, emits: Emits, special: Callable[[Node], str]) -> None:
        self.graph = graph
        self.groups: list[Group] = []
        self._last_loop: Group | None = None
        self._emits = emits
        self._special = special
        self._home: dict[Value, Group] = {}  # the group that computes a value
        self._copies: dict[Value, Value] = {}  # views that had to be copied
        self._floating: dict[Value, Floating] = {}  # without a group
        self._recipes: dict[Value, Floating] = {}  # those, and what was written to memory after all
        self.constants: dict[Value, Literal] = {}
        self._wanted: dict[Value, None] = {}
        found = attentions(graph)
        self._attentions = {node: whole for node, whole in found.items() if special(node)}
        self._inner = {node for whole in self._attentions.values() for node in whole.inner}
        for node in _early_first(graph):
            self._take(node)
        self.results = [self._settled(value) for value in graph.outputs]
        for group in self.groups:
            made = dict.fromkeys(value for node in group.nodes for value in node.outputs)
            group.outputs = [v for v in made if v in self._wanted and self._home[v] is group]

    # --- what a value is ----------------------------------------------------------------------

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
            found = viewed(view, node.op.name, node.attrs, shape)
            if found is None:
                before = node.inputs[0]
                if before not in self._copies:
                    self._copies[before] = self._copied(before, Leaf(root, view))
                root = self._copies[before]
                self._wanted[root] = None
                found = viewed(dense(view.shape), node.op.name, node.attrs, shape)
                assert found is not None
            view = found
        self._wanted[root] = None
        return Leaf(root, view)

    def _in_memory(self, root: Value) -> Value:
        if root.node is not None and root.node.op.name == "constant":
            self.constants[root] = root.node.attrs["value"]
        return root

    def _copied(self, value: Value, operand: Leaf | Scalar) -> Value:
        """A value of its own with the elements of another, in C order.

        The group that computes the elements writes them there itself, where it can.
        """
        kind = tensor_type(value)
        node = Node(OPS["identity"], [value], {}, [kind], (), None)
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
        if isinstance(found, Leaf) and found.view.is_dense:
            whole = size_of(tensor_type(found.root).shape)
            if size_of(found.view.shape) == whole:
                return found.root
        if value not in self._copies:
            if not wanted and isinstance(found, Leaf) and found.root is root:
                del self._wanted[root]  # only the copy may be needed, and its group knows
            self._copies[value] = self._copied(value, found)
        self._wanted[self._copies[value]] = None
        return self._copies[value]

    # --- nodes --------------------------------------------------------------------------------

    def _new(self, kind: str) -> Group:
        group = Group(kind)
        group.position = len(self.groups)
        self.groups.append(group)
        if kind == "loop":
            self._last_loop = group
        return group

    def _take(self, node: Node) -> None:
        if is_view(node) or (node.outputs and literal_of(node.outputs[0]) is not None):
            return
        name = node.op.name
        if name == "constant" or node in self._inner:
            return
        if node in self._attentions:
            self._attend(node, self._attentions[node])
            return
        if node.graphs:
            self._alone(node, "control")
        elif node.op.elementwise and self._emits(node):
            if not self._floats(node):
                self._elementwise(node)
        elif name in REDUCTIONS and self._emits(node):
            self._reduce(node)
        else:
            special = self._special(node)
            self._alone(node, special or "call")

    def _alone(self, node: Node, kind: str) -> None:
        operands: list[Operand] = []
        for value in node.inputs:
            if kind == "product":
                operands.append(self._strided(value))
            else:
                shape = value.type.shape if isinstance(value.type, TensorType) else ()
                operands.append(Leaf(self._settled(value), dense(shape)))
        group = self._new(kind)
        group.space.may_split = False
        group.nodes.append(node)
        group.operands[node] = operands
        for value in node.outputs:
            self._home[value] = group
            if kind != "product":
                self._wanted[value] = None
        if kind == "product":
            place = group.space.full(tensor_type(node.outputs[0]).shape)
            group.places[node] = group.maps[node.outputs[0]] = place

    def _attend(self, node: Node, pattern: Pattern) -> None:
        given = [pattern.q, pattern.k_turned, pattern.v]
        operands: list[Operand] = [
            self._side_by_side(value, -2 if value is pattern.k_turned else -1) for value in given
        ]
        if pattern.mask is not None:
            operands.append(self._side_by_side(pattern.mask, -1))
        group = self._new("attention")
        group.blank = pattern.blank
        group.space.may_split = False
        group.nodes.append(node)
        group.operands[node] = operands
        self._home[node.outputs[0]] = group
        place = group.space.full(tensor_type(node.outputs[0]).shape)
        group.places[node] = group.maps[node.outputs[0]] = place

    def _side_by_side(self, value: Value, axis: int) -> Leaf:
        """How a value is read, its elements side by side along an axis; else a copy is."""
        found = self.leaf(value)
        shape = tensor_type(value).shape
        if isinstance(found, Leaf) and (len(shape) < -axis or shape[axis] == 1):
            return found
        if isinstance(found, Leaf) and found.view.strides[axis] == 1:
            return found
        if axis == -1:
            return Leaf(self._settled(value), dense(shape))
        turned = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
        kind = tensor_type(value).like(shape=tuple(shape[i] for i in turned))
        other = Node(OPS["permute_dims"], [value], {"axes": turned}, [kind], (), None).outputs[0]
        view = dense(kind.shape)
        return Leaf(
            self._settled(other),
            View(tuple(shape), tuple(view.strides[i] for i in turned), 0),
        )

    def _strided(self, value: Value) -> Leaf:
        found = self.leaf(value)
        if isinstance(found, Leaf):
            inner = [s for n, s in zip(found.view.shape, found.view.strides, strict=True) if n != 1]
            if not inner or 1 in inner[-2:]:
                return found
        root = self._settled(value)
        return Leaf(root, dense(tensor_type(value).shape))

    def _latest(self, node: Node) -> Group | None:
        homes = [self._home.get(self.root(value)[0]) for value in node.inputs]
        return max((h for h in homes if h is not None), key=lambda h: h.position, default=None)

    def _candidates(self, node: Node) -> list[Group]:
        """The groups that a node may join: all that it needs is there when they run."""
        for value in node.inputs:  # what is seen through views is computed, and may be joined
            root, chain = self.root(value)
            if chain and root in self._floating:
                self._sink(root)
        latest = self._latest(node)
        found = [] if latest is None else [latest]
        last = self._last_loop
        if last is None or last is latest:
            return found
        if latest is None or last.position > latest.position:
            found.append(last)
        return found

    # --- cheap nodes of inputs ----------------------------------------------------------------

    def _floats(self, node: Node) -> bool:
        """Whether a node is left to be computed where it is used; see `weft.schedule.floating`."""
        if node.op.name not in CHEAP:
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
        found = Floating(node, tuple(operands), count)
        self._floating[node.outputs[0]] = self._recipes[node.outputs[0]] = found
        return True

    def _sink(self, value: Value) -> None:
        """Give a floating value a group of its own, which writes it to memory."""
        found = self._floating[value]
        group = self._new("loop")
        place = group.space.full(tensor_type(value).shape)
        for operand in found.operands:
            if isinstance(operand, Value):
                self._pull(group, operand, place)
        group.add(found.node, place, list(found.operands), place)
        del self._floating[value]
        self._home[value] = group

    def _pull(self, group: Group, value: Value, place: Map) -> bool:
        """Compute a floating value in a group, for a node at `place`; False if it is there already,
        along other axes."""
        shape = tensor_type(value).shape
        own = tuple(place[i - len(shape)] if size != 1 else () for i, size in enumerate(shape))
        if value in group.maps:
            return group.maps[value] == own
        found = self._recipes[value]
        for operand in found.operands:
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
            seen = group.space.viewed(found, shape, node.op.name, node.attrs, new)
            if seen is None:
                return None
            found, shape = seen, new
        return found, shape

    def _joined(
        self, group: Group, node: Node, shape: Sequence[int]
    ) -> tuple[Map, list[Operand]] | None:
        """Where the operands of a node lie in a group's loops, and what they are; None if it
        does not fit in."""
        if group.kind not in ("loop", *IN_REGISTERS) or len(group.nodes) >= MOST_NODES:
            return None
        if 0 in group.space.sizes.values():  # a copy of nothing
            return None
        values = [self.root(value)[0] for value in node.inputs]
        if any(value in group.after for value in values):
            return None
        mine = [
            i for i, value in enumerate(values) if value in group.maps and literal_of(value) is None
        ]
        for i in mine:  # twice: what one view cuts is cut for the others too
            if self._inside(group, node.inputs[i]) is None:
                return None
        inside = [self._inside(group, node.inputs[i]) for i in mine]
        if any(found is None for found in inside):
            return None
        place = group.place_of(shape, [found for found in inside if found is not None])
        if place is None:
            return None
        if buffers_of(group) + len(node.inputs) - len(mine) > MOST_BUFFERS:
            return None
        operands: list[Operand] = []
        for i, value in enumerate(node.inputs):
            if i in mine:
                operands.append(values[i])
                continue
            if values[i] in self._floating and value is values[i]:
                if not self._pull(group, value, place):
                    return None
                operands.append(value)
                continue
            before = len(self.groups)
            found = self.leaf(value)
            if len(self.groups) != before:  # a copy was needed, which runs after this group
                return None
            operands.append(found)
        return place, operands

    def _begun(self, node: Node, shape: Sequence[int]) -> tuple[Group, Map, list[Operand]]:
        """A group for a node that fits into none, and what it computes with."""
        roots = [self.root(value)[0] for value in node.inputs]
        pulled = [
            value
            for value, root in zip(node.inputs, roots, strict=True)
            if root is value and root in self._floating
        ]
        leaves = {value: self.leaf(value) for value in node.inputs if value not in pulled}
        group = self._new("loop")
        place = group.space.full(shape)
        operands: list[Operand] = []
        for value in node.inputs:
            if value not in pulled:
                operands.append(leaves[value])
            else:
                self._pull(group, value, place)
                operands.append(value)
        return group, place, operands

    def _elementwise(self, node: Node) -> None:
        shape = tensor_type(node.outputs[0]).shape
        joined = None
        for group in self._candidates(node):
            joined = self._joined(group, node, shape)
            if joined is not None:
                break
        if joined is None:
            group, place, operands = self._begun(node, shape)
            joined = place, operands
        group.add(node, joined[0], joined[1], joined[0])
        self._home[node.outputs[0]] = group

    def _reduce(self, node: Node) -> None:
        shape = tensor_type(node.inputs[0]).shape
        axes: Sequence[int] = node.attrs["axis"]
        joined, how = None, None
        for group in self._candidates(node):
            joined = self._joined(group, node, shape) if group.kind == "loop" else None
            how = None if joined is None else group.reduction(joined[0], axes, node)
            if how is not None:
                break
        if joined is None or how is None:
            group, place, operands = self._begun(node, shape)
            joined = place, operands
            how = group.reduction(joined[0], axes, node)
            assert how is not None
        place, given = joined
        keep = node.attrs["keepdims"]
        out = tuple(
            () if i in axes else part for i, part in enumerate(place) if keep or i not in axes
        )
        group.add(node, place, given, out)
        over = tuple(a for a in group.space.order if any(a in place[i] for i in axes))
        group.marks["row" if how == "row" else "columns"] = (over,)
        self._home[node.outputs[0]] = group
        if how == "column":
            group.after.add(node.outputs[0])


def is_view(node: Node) -> bool:
    if node.op.name not in VIEW_OPS:
        return False
    if node.op.name == "getitem":
        return _plain_index(node.attrs["index"])
    return isinstance(node.outputs[0].type, TensorType)


def _plain_index(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return all(
        part is None
        or part is Ellipsis
        or isinstance(part, slice)
        or (hasattr(part, "__index__") and not isinstance(part, (bool, np.bool_)))
        for part in parts
    )


def literal_of(value: Value) -> Any:
    """The number that all elements of a value are, where it is known: as a NumPy scalar."""
    node = value.node
    if node is None or not isinstance(value.type, TensorType):
        return None
    dtype: DType = value.type.dtype
    if node.op.name == "full":
        return np.asarray(node.attrs["value"]).astype(dtype.numpy)[()]
    if node.op.name == "constant" and size_of(value.type.shape) == 1:
        return node.attrs["value"].array.reshape(())[()]
    return None


def _early_first(graph: Graph) -> list[Node]:
    """The nodes, small ones that depend on nothing but inputs first: rates, counts, masks."""
    early: set[Value] = set(graph.inputs)
    first: list[Node] = []
    rest: list[Node] = []
    for node in graph.nodes:
        simple = node.op.elementwise or is_view(node) or Trait.CREATION in node.op.traits
        small = all(isinstance(v.type, TensorType) and is_small(v) for v in node.outputs)
        if simple and small and all(value in early for value in node.inputs):
            early.update(node.outputs)
            first.append(node)
        else:
            rest.append(node)
    return first + rest
