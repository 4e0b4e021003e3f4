"""Elementwise ops on the result of a product, fused while it is in registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.base.dtypes import NARROW_FLOATS, float32
from weft.codegen.elementwise import emit
from weft.codegen.index import Ptr, Size, unravel
from weft.codegen.kernel import argument
from weft.codegen.loops.access import Access, access_of, dtype_of, operand, result_access
from weft.codegen.loops.plan import all_accesses
from weft.codegen.loops.point import Point
from weft.codegen.loops.reduce import Reduction
from weft.codegen.scalar.masks import enabled
from weft.codegen.text import Function
from weft.codegen.totals import add_to_total
from weft.ir.graph import Value
from weft.schedule.groups import Group, Scalar

__all__ = ["Epilogue", "index_of"]


def index_of(group: Group, index: Sequence[Size], axes: Sequence[Sequence[int]]) -> dict[int, Size]:
    """The index along each axis of a group's space. Each dimension of `index` covers some of the
    axes, from outer to inner."""
    at: dict[int, Size] = {}
    for own, some in zip(index, axes, strict=True):
        at |= zip(some, unravel(own, [group.space.sizes[axis] for axis in some]), strict=True)
    return at


class Epilogue:
    """A `Store` that computes the rest of a group, and writes the group's results.

    `axes` maps the kernel's index to the group's space: for each dimension some axes, from outer to
    inner.
    """

    #: Bytes that all buffers begin at multiples of, if lanes begin at multiples of their number.
    aligned = 0

    def __init__(
        self, group: Group, places: Mapping[Value, int], axes: Sequence[Sequence[int]]
    ) -> None:
        self.group = group
        self.places = places
        self.axes = axes
        self.value = group.nodes[0].outputs[0]
        self.pointers: dict[Value, Ptr] = {}
        self.roots = list(dict.fromkeys(access.root for access in all_accesses(group)))

    def begin(self, f: Function) -> None:
        self._f = f
        self.pointers = {root: self._pointer(f, root) for root in self.roots}
        self.rooms = {
            node.outputs[0]: argument(f, self.places[node.outputs[0]]) for node in self.group.totals
        }
        self._once()

    def _pointer(self, f: Function, root: Value) -> Ptr:
        """The pointer to a buffer's elements."""
        return operand(f, self.places, root)

    def _once(self) -> None:
        """Compute values that are the same for all elements (a learning rate, say) before the
        loops."""
        group = self.group
        self.known: dict[Value, str] = {}
        point = Point(self._f, group, self._start, {})
        for node in group.nodes[1:]:
            value = node.outputs[0]
            alone = node.op.elementwise and not any(group.maps[value])
            if alone and all(
                operand in self.known
                if isinstance(operand, Value)
                else isinstance(operand, Scalar)
                or not access_of(group, operand, group.places[node]).steps
                for operand in group.operands[node]
            ):
                self.known[value] = point.value(value)

    def put(
        self, f: Function, value: str, lanes: int, index: Sequence[Size], mask: str | None = None
    ) -> None:
        self._f = f
        at = index_of(self.group, index, self.axes)
        last = self.axes[-1][-1] if self.axes and self.axes[-1] else None
        count = 0 if mask is None else enabled(f, mask, lanes)
        point = Point(
            f,
            self.group,
            self._start,
            at,
            axis=last,
            lanes=lanes,
            mask=None if mask is None else (mask, count),
            known=self.known,
            aligned=self.aligned,
        )
        dtype = dtype_of(self.value)
        if dtype in NARROW_FLOATS:
            from_wide = emit(f, "astype", [(float32, value)], dtype, lanes, {"dtype": dtype})
            assert from_wide is not None
            value = from_wide
        point.give(self.value, value)
        # Read everything before writing anything: a result may alias an operand.
        made = [point.value(out) for out in self.group.written]
        for node in self.group.totals:
            given = point.operand(node, self.group.operands[node][0])
            room = self.rooms[node.outputs[0]]
            add_to_total(f, Reduction(node), room, given, lanes, index, mask)
        for out, name in zip(self.group.written, made, strict=True):
            point.store(result_access(self.group, out), name)

    def _start(self, access: Access) -> Ptr:
        return self.pointers[access.root] + access.offset
