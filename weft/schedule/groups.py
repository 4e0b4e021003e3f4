"""Groups of nodes that become one kernel, and how nodes find their group.

Nodes are visited in order. A node joins the latest group that computes one of its operands, if the
loops of that group can compute the node, too. All its other operands are computed by then, so the
order of groups has no cycles, and grouping takes time linear in the number of nodes. Any other node
begins a group of its own. Views belong to no group: they only say how a buffer is read.

    loop      elementwise ops and reductions over one iteration space
    product   a matrix product or convolution, and elementwise ops on its result
    attention       a whole attention, and elementwise ops on its result
    attention_grad  the gradients of an attention
    kernel    one node that has an emitter of its own
    control   a node with nested graphs
    stack     a node that pushes to a stack of the run, or pops from it
    call      a node whose card is called in Python
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.base.dims import has_dims
from weft.base.shapes import size_of
from weft.ir.graph import Node, Value
from weft.schedule.axes import Map, Space
from weft.schedule.views import View

__all__ = ["IN_REGISTERS", "Group", "Leaf", "Operand", "Scalar"]

#: Kinds of groups whose first node leaves its elements in registers for the other nodes.
IN_REGISTERS = ("product", "attention")


@dataclass(frozen=True, slots=True)
class Leaf:
    """An operand that is read from a buffer."""

    root: Value
    view: View


@dataclass(frozen=True, slots=True)
class Scalar:
    """An operand that is a number known at compile time."""

    number: Any


#: A value that the same loops compute, one that is read from memory, or a number.
Operand = Value | Leaf | Scalar


@dataclass(eq=False)
class Group:
    """
    maps      for each value that the loops compute: the axes that its dimensions run along
    places    for each node: the axes that the dimensions of its operands, aligned to the right, run
              along
    operands  for each node: what it computes with
    marks     "row": the axes of reductions whose results the loops use; "columns": the axes of
              reductions whose results exist only after the loops
    after     the results of the latter
    prologues of a product: for the number of an operand, the loops that compute its elements. They
              are no group of their own: they run where the operand is packed. Their operands are
              among those of the group
    """

    kind: str
    nodes: list[Node] = field(default_factory=list)
    space: Space = field(default_factory=Space)
    maps: dict[Value, Map] = field(default_factory=dict)
    places: dict[Node, Map] = field(default_factory=dict)
    operands: dict[Node, list[Operand]] = field(default_factory=dict)
    marks: dict[str, Map] = field(default_factory=dict)
    after: set[Value] = field(default_factory=set)
    outputs: list[Value] = field(default_factory=list)
    position: int = -1
    prologues: dict[int, Group] = field(default_factory=dict)
    tail: Node | None = None  # of a convolution: the pooling of its result

    def __post_init__(self) -> None:
        maps: list[Any] = [self.maps, self.places, self.marks]
        self.space.maps = maps

    @property
    def row(self) -> tuple[int, ...] | None:
        found = self.marks.get("row")
        return None if found is None else found[0]

    @property
    def columns(self) -> tuple[int, ...] | None:
        found = self.marks.get("columns")
        return None if found is None else found[0]

    @property
    def written(self) -> list[Value]:
        """The results that loops or an epilogue write; not other results of a kernel."""
        found = [value for value in self.outputs if value in self.maps]
        if self.kind != "loop":
            found = [value for value in found if value not in self.after]
        return found if self.tail is None else [*found, self.tail.inputs[0]]

    def in_order(self) -> list[Node]:
        """All nodes in the order of computation: prologues first, the tail last."""
        first = [node for loops in self.prologues.values() for node in loops.nodes]
        return [*first, *self.nodes, *([] if self.tail is None else [self.tail])]

    @property
    def totals(self) -> list[Node]:
        """The reductions of all elements that a kernel leaves in registers."""
        if self.kind == "loop":
            return []
        return [node for node in self.nodes if node.outputs[0] in self.after]

    @property
    def reduces(self) -> bool:
        return bool(self.marks)

    def add(self, node: Node, place: Map, operands: list[Operand], out: Map) -> None:
        self.nodes.append(node)
        self.places[node] = place
        self.operands[node] = operands
        self.maps[node.outputs[0]] = out

    def leaves(self) -> Iterator[tuple[Node, int, Leaf]]:
        """What it reads from memory: the node, the number of its operand, how it is read."""
        for node, operands in self.operands.items():
            for place, operand in enumerate(operands):
                packed = node is self.nodes[0] and place in self.prologues
                if isinstance(operand, Leaf) and not packed:
                    yield node, place, operand

    def reads(self) -> list[Value]:
        """The values that it reads from memory, each once."""
        return list(dict.fromkeys(leaf.root for _, _, leaf in self.leaves()))

    # --- joining ------------------------------------------------------------------------------

    def place_of(
        self, shape: Sequence[int], inside: Sequence[tuple[Map, Sequence[int]]]
    ) -> Map | None:
        """The axes of a result of this shape, computed from operands in the loops. None if the
        loops do not go over its elements."""
        space = self.space
        made: list[tuple[int, ...] | None] = [None if size != 1 else () for size in shape]
        for found, sizes in inside:
            for back in range(1, len(sizes) + 1):
                axes = found[-back]
                if not axes or sizes[-back] == 1:
                    continue
                if made[-back] not in (None, axes):
                    return None
                made[-back] = axes
        used = {axis for axes in made if axes for axis in axes}
        free = [axis for axis in space.order if axis not in used]
        for i, size in enumerate(shape):
            if made[i] is not None:
                continue
            taken: list[int] = []
            left = size
            while not _is_one(left) and free and left % space.sizes[free[0]] == 0:
                taken.append(free.pop(0))
                left //= space.sizes[taken[-1]]
            if left != 1:
                return None
            made[i] = tuple(taken)
        found = tuple(axes or () for axes in made)
        return found if self.fits(found) else None

    def fits(self, place: Map) -> bool:
        """Whether the loops can compute a value along these axes: at each point, or once a row."""
        axes = [axis for part in place for axis in part]
        if len(set(axes)) != len(axes):
            return False
        missing = set(self.space.order) - set(axes)
        if not missing:
            # Lanes run along the innermost axis: a result along another one is not written here.
            return not axes or axes[-1] == self.space.order[-1]
        return self.row is not None and missing == set(self.row)

    def reduction(self, place: Map, axes: Sequence[int], node: Node, small: int) -> str | None:
        """How these loops can reduce some dimensions of a value: as "row", "column", or not (None).

        The loops can use the result of a row; that of a column exists only after them. A total over
        at most `small` elements is a row.
        """
        space = self.space
        over = tuple(axis for axis in space.order if any(axis in place[i] for i in axes))
        if {axis for part in place for axis in part} != set(space.order):
            return None
        whole = len(over) == len(space.order)
        total = space.size_of(space.order)
        large = has_dims((total,)) or total > small
        if whole and large and self.row != over:
            return "column" if self._may_columns(over, node) else None
        if not over or space.order[-1] in over:
            if self.row is not None:
                return "row" if set(self.row) == set(over) else None
            if self.columns is not None and set(self.columns) & set(over):
                return None
            return "row"
        return "column" if self._may_columns(over, node) else None

    def _may_columns(self, over: tuple[int, ...], node: Node) -> bool:
        if self.columns is not None:
            return set(self.columns) == set(over)
        whole = len(over) == len(self.space.order)
        return self.row is None or whole or not set(self.row) & set(over)


def buffers_of(group: Group) -> int:
    """How many buffers a group reads."""
    return len({op.root for ops in group.operands.values() for op in ops if isinstance(op, Leaf)})


def is_small(value: Value) -> bool:
    shape: Any = value.type.shape  # type: ignore[union-attr]
    return not has_dims(shape) and size_of(shape) <= 1


def _is_one(size: int) -> bool:
    """Whether a size is 1 (or 0), for all sizes of a run."""
    return not has_dims((size,)) and size <= 1
