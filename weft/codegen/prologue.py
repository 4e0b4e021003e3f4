"""Elementwise ops on an operand of a product, done while it is packed.

The right operand of a large product is copied once into panels, which tiles read in order. What
computes its elements from others may just as well run there: they are never written to memory in
their own order, and not read again from it. The left operand is mostly read where it lies; where
all of the right one stays in the cache, or copies are shared, it may be copied once as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.base.dtypes import NARROW_FLOATS
from weft.codegen.elementwise import emit, memory_type
from weft.codegen.epilogue import index_of
from weft.codegen.kernel import argument
from weft.codegen.loops.access import Access, dtype_of
from weft.codegen.loops.plan import all_accesses
from weft.codegen.loops.point import Point
from weft.codegen.matmul.arith import address, plus, times
from weft.codegen.matmul.numbers import Number, ones
from weft.codegen.matmul.pack import exchange
from weft.codegen.scalar.vec import vector_type
from weft.codegen.text import Function
from weft.ir.graph import Value
from weft.schedule.groups import Group

__all__ = ["Prologue"]


class Prologue:
    """The elements of an operand, computed where they are packed.

    `group` is a loop over them, which is never run on its own. `axes` says along which of its axes
    an index of the operand runs, dimension by dimension; where it is not given, as it lies.
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

    def panel(
        self,
        f: Function,
        number: Number,
        dst: str,
        batch: Sequence[str],
        terms: tuple[str, str],
        left: str,
        vectors: int,
        columns: int,
    ) -> None:
        """Write a panel of an operand of shape (…, terms, columns): for each of `terms` (the first,
        how many) `vectors` vectors, from column `left` on; behind the last of all `columns` it is
        0."""
        pointers = {root: argument(f, self.places[root]) for root in self.roots}
        lanes = f.module.machine.lanes(number.width)
        width = vectors * lanes

        def rows(count: int) -> None:
            """With so many columns in the panel."""
            with f.loop("0", terms[1]) as i:
                term = f(f"add i64 {terms[0]}, {i}")
                line = f(
                    f"getelementptr {number.kind}, ptr {dst}, i64 {f(f'mul i64 {i}, {width}')}"
                )
                for v in range(vectors):
                    some = min(lanes, max(0, count - v * lanes))
                    value = "zeroinitializer"
                    if some:
                        column = f(f"add i64 {left}, {v * lanes}")
                        value = self._at(f, pointers, number, [*batch, term, column], lanes, some)
                    place = f(f"getelementptr {number.kind}, ptr {line}, i64 {v * lanes}")
                    kind = vector_type(number.kind, lanes)
                    f.do(f"store {kind} {value}, ptr {place}, align {number.width}")

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

    def turned(
        self,
        f: Function,
        number: Number,
        dst: str,
        batch: Sequence[str],
        terms: tuple[str, str],
        left: str,
        vectors: int,
        columns: int,
    ) -> None:
        """As `panel`, of an operand of shape (…, columns, terms): in square blocks that are turned.
        Behind the last column stands what is in it."""
        pointers = {root: argument(f, self.places[root]) for root in self.roots}
        lanes = f.module.machine.lanes(number.width)
        side, width = min(lanes, 32 // number.width), vectors * lanes
        first, count = terms
        least = f.module.declare("i64", "llvm.smin.i64", "i64, i64")

        def column(i: str, more: int = 0) -> str:
            at = f(f"add i64 {f(f'add i64 {left}, {i}')}, {more}")
            return f(f"call i64 @{least}(i64 {at}, i64 {columns - 1})")

        def place(term: str, i: str) -> str:
            at = f(f"add i64 {f(f'mul i64 {term}, {width}')}, {i}")
            return f(f"getelementptr {number.kind}, ptr {dst}, i64 {at}")

        short = f(f"icmp slt i64 {count}, {side}")
        with f.when(short), f.loop("0", str(width)) as i, f.loop("0", count) as j:
            index = [*batch, column(i), f(f"add i64 {first}, {j}")]
            value = self._at(f, pointers, number, index, 1, 1)
            f.do(f"store {number.kind} {value}, ptr {place(j, i)}, align {number.width}")
        with f.when(f(f"xor i1 {short}, true")), f.loop("0", str(width), str(side)) as i:
            rows = [column(i, t) for t in range(side)]
            edge = f(f"sub i64 {count}, {side}")
            with f.loop("0", count, str(side)) as j:
                term = f(f"call i64 @{least}(i64 {j}, i64 {edge})")
                start = f(f"add i64 {first}, {term}")

                def part(t: int, skip: int, some: int, start: str = start) -> str:
                    index = [*batch, rows[t], f(f"add i64 {start}, {skip}")]
                    return self._at(f, pointers, number, index, some, some)

                kind = vector_type(number.kind, side)
                for t, row in enumerate(exchange(f, number, side, part)):
                    to = place(f(f"add i64 {term}, {t}"), i)
                    f.do(f"store {kind} {row}, ptr {to}, align {number.width}")

    def lines(
        self,
        f: Function,
        number: Number,
        dst: str,
        pitch: int,
        batch: Sequence[str],
        rows: tuple[str, str],
        terms: tuple[str, str],
        along: bool,
    ) -> None:
        """Write some terms of some rows (of each the first, how many) of an operand (…, rows,
        terms). Each row is a line, its terms side by side where they lie `along`; else each term is
        one. How long lines are is known. `pitch` bytes lead from one to the next; they have room
        for whole vectors."""
        pointers = {root: argument(f, self.places[root]) for root in self.roots}
        lanes = f.module.machine.lanes(number.width)
        kind = vector_type(number.kind, lanes)
        (first, count), (start, length) = (rows, terms) if along else (terms, rows)

        def put(line: str, i: str, j: str, some: int) -> None:
            pair = plus(f, first, i), plus(f, start, j)
            index = [*batch, *(pair if along else pair[::-1])]
            value = self._at(f, pointers, number, index, lanes, some, -1 if along else -2)
            place = f(f"getelementptr {number.kind}, ptr {line}, i64 {j}")
            f.do(f"store {kind} {value}, ptr {place}, align {number.width}")

        rest = int(length) % lanes
        whole = int(length) - rest
        with f.loop("0", count) as i:
            line = address(f, dst, times(f, i, pitch))
            if whole:
                with f.loop("0", str(whole), str(lanes)) as j:
                    put(line, i, j, lanes)
            if rest:
                put(line, i, str(whole), rest)

    def _at(
        self,
        f: Function,
        pointers: Mapping[Value, str],
        number: Number,
        index: Sequence[str],
        lanes: int,
        some: int,
        dim: int = -1,
    ) -> str:
        """The first `some` of so many elements from an index on, along one of its dimensions, as
        they are computed with."""

        def start(access: Access) -> str:
            pointer = pointers[access.root]
            if not access.offset:
                return pointer
            kind = memory_type(access.dtype)
            return f(f"getelementptr {kind}, ptr {pointer}, i64 {access.offset}")

        axes = self.axes[-len(index) :]
        at = index_of(f, self.group, index[-len(axes) :], axes)
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
