"""Elementwise ops on an operand of a product, fused into its packing.

The right operand of a large product is copied once into panels, which tiles read in order. Ops that
compute its elements can run there: the elements are then never stored in their own layout and read
back. The left operand is usually read in place; if all of the right one stays in the cache, or
copies are shared, it may be copied once as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.base.dtypes import NARROW_FLOATS
from weft.codegen.elementwise import emit
from weft.codegen.epilogue import index_of
from weft.codegen.index import Ptr, Size, minimum
from weft.codegen.loops.access import Access, dtype_of, operand
from weft.codegen.loops.plan import all_accesses
from weft.codegen.loops.point import Point
from weft.codegen.matmul.numbers import Number, ones
from weft.codegen.matmul.pack import transpose_block
from weft.codegen.scalar.vec import vector_type
from weft.codegen.text import Function
from weft.ir.graph import Value
from weft.schedule.groups import Group

__all__ = ["Prologue"]


class Prologue:
    """The elements of an operand, computed while they are packed.

    `group` is a loop over them that never runs by itself. `axes` maps each dimension of the operand
    to axes of the group; by default the result's own.
    """

    def __init__(
        self,
        group: Group,
        places: Mapping[Value, int],
        axes: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self.group = group
        self.axes = group.maps[group.outputs[0]] if axes is None else axes
        self.places = places
        self.value = group.outputs[0]
        self.roots = sorted({access.root for access in all_accesses(group)} & places.keys(),
                            key=places.__getitem__)  # fmt: skip

    def _pointers(self, f: Function) -> dict[Value, Ptr]:
        return {root: operand(f, self.places, root) for root in self.roots}

    def panel(
        self,
        f: Function,
        number: Number,
        dst: Ptr,
        batch: Sequence[Size],
        terms: tuple[Size, Size],
        left: Size,
        vectors: int,
        columns: int,
    ) -> None:
        """Write a panel of an operand of shape (…, terms, columns): for each of `terms` (the first,
        how many) `vectors` vectors, from column `left` on; 0 beyond the last of all `columns`."""
        pointers = self._pointers(f)
        lanes = f.module.machine.lanes(number.width)
        width = vectors * lanes

        def rows(count: int) -> None:
            """With this number of columns in the panel."""
            with f.loop(0, terms[1]) as i:
                term = terms[0] + i
                line = dst.of(number.kind) + i * width
                for v in range(vectors):
                    some = min(lanes, max(0, count - v * lanes))
                    value = "zeroinitializer"
                    if some:
                        column = left + v * lanes
                        value = self._at(f, pointers, number, [*batch, term, column], lanes, some)
                    kind = vector_type(number.kind, lanes)
                    (line + v * lanes).of(kind).store(value, number.width)

        rest = columns % width
        if not rest:
            rows(width)
        elif columns < width:
            rows(rest)
        else:
            last = f(f"icmp sge i64 {left}, {columns - rest}")
            with f.when(last):
                rows(rest)
            with f.when(f(f"xor i1 {last}, true")):
                rows(width)

    def transposed_panel(
        self,
        f: Function,
        number: Number,
        dst: Ptr,
        batch: Sequence[Size],
        terms: tuple[Size, Size],
        left: Size,
        vectors: int,
        columns: int,
    ) -> None:
        """As `panel`, for an operand of shape (…, columns, terms): square blocks are transposed.
        Beyond the last column, its elements are repeated."""
        pointers = self._pointers(f)
        lanes = f.module.machine.lanes(number.width)
        side: int = min(lanes, 32 // number.width)
        width: int = vectors * lanes
        first, count = terms

        def column(i: Size, more: int = 0) -> Size:
            return minimum(left + i + more, columns - 1)

        def place(term: Size, i: Size) -> Ptr:
            return dst.of(number.kind) + (term * width + i)

        short = f(f"icmp slt i64 {count}, {side}")
        with f.when(short), f.loop(0, width) as i, f.loop(0, count) as j:
            index = [*batch, column(i), first + j]
            value = self._at(f, pointers, number, index, 1, 1)
            place(j, i).store(value, number.width)
        with f.when(f(f"xor i1 {short}, true")), f.loop(0, width, side) as i:
            rows = [column(i, t) for t in range(side)]
            edge = count - side
            with f.loop(0, count, side) as j:
                term = minimum(j, edge)
                start = first + term

                def part(t: int, skip: int, some: int, start: Size = start) -> str:
                    index = [*batch, rows[t], start + skip]
                    return self._at(f, pointers, number, index, some, some)

                kind = vector_type(number.kind, side)
                for t, row in enumerate(transpose_block(f, number, side, part)):
                    place(term + t, i).of(kind).store(row, number.width)

    def lines(
        self,
        f: Function,
        number: Number,
        dst: Ptr,
        pitch: int,
        batch: Sequence[Size],
        rows: tuple[Size, Size],
        terms: tuple[Size, Size],
        along: bool,
    ) -> None:
        """Write some terms of some rows (of each the first, how many) of an operand (…, rows,
        terms). With `along` each row is a line of contiguous terms; else each term is a line. The
        length of lines is known. They are `pitch` bytes apart, and padded to whole vectors."""
        pointers = self._pointers(f)
        lanes = f.module.machine.lanes(number.width)
        kind = vector_type(number.kind, lanes)
        (first, count), (start, length) = (rows, terms) if along else (terms, rows)

        def put(line: Ptr, i: Size, j: Size, some: int) -> None:
            pair = first + i, start + j
            index = [*batch, *(pair if along else pair[::-1])]
            value = self._at(f, pointers, number, index, lanes, some, -1 if along else -2)
            (line + j).of(kind).store(value, number.width)

        assert isinstance(length, int)
        whole, rest = length // lanes * lanes, length % lanes
        with f.loop(0, count) as i:
            line = dst.of(number.kind).bytes(i * pitch)
            if whole:
                with f.loop(0, whole, lanes) as j:
                    put(line, i, j, lanes)
            if rest:
                put(line, i, whole, rest)

    def _at(
        self,
        f: Function,
        pointers: Mapping[Value, Ptr],
        number: Number,
        index: Sequence[Size],
        lanes: int,
        some: int,
        dim: int = -1,
    ) -> str:
        """The first `some` of `lanes` elements from an index on, along one of its dimensions, in
        the dtype to compute with."""

        def start(access: Access) -> Ptr:
            return pointers[access.root] + access.offset

        axes = self.axes[-len(index) :]
        at = index_of(self.group, index[-len(axes) :], axes)
        mask = None if some == lanes else (ones(some, lanes), some)
        axis = self.axes[dim][-1]
        point = Point(f, self.group, start, at, axis=axis, lanes=lanes, mask=mask)
        value, dtype = point.value(self.value), dtype_of(self.value)
        if dtype in NARROW_FLOATS:
            wide = emit(f, "astype", [(dtype, value)], number.dtype, lanes,
                        {"dtype": number.dtype})  # fmt: skip
            assert wide is not None
            value = wide
        if mask is None:
            return value
        kind = vector_type(number.kind, lanes)
        return f(f"select <{lanes} x i1> {mask[0]}, {kind} {value}, {kind} zeroinitializer")
