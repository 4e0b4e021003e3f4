"""How the threads of a block go over one row: in a loop for each stage, or once, in registers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from weft.codegen.cuda.builder import KernelBuilder
from weft.codegen.index import Ptr, Size
from weft.codegen.loops.access import Access
from weft.codegen.loops.point import Point
from weft.ir.graph import Node, Value

if TYPE_CHECKING:
    from weft.codegen.cuda.loops import GroupCode

__all__ = ["KeptRow", "LoopedRow", "Row"]


class Row:
    """How the threads of a block go over one row. `known`: what is the same for all of it."""

    def __init__(self, group: GroupCode, builder: KernelBuilder, sums: Mapping[Node, Ptr]) -> None:
        self.group = group
        self.builder = builder
        self.sums = sums
        self.known: dict[Value, str] = {}

    def over(self, parts: Mapping[Node, Ptr], after: list[Node], stored: list[Value]) -> None:
        """One stage: add to the parts of reductions and to what exists after the loops, and store
        results."""
        raise NotImplementedError


class LoopedRow(Row):
    """A loop for each stage: values are read and computed again."""

    def __init__(
        self,
        group: GroupCode,
        builder: KernelBuilder,
        row: list[int],
        outer: Mapping[int, Size],
        pointers: Mapping[Access, Ptr],
        threads: int,
        sums: Mapping[Node, Ptr],
        columns: Mapping[Node, Ptr],
    ) -> None:
        super().__init__(group, builder, sums)
        self.loops = group.loops(row)
        self.length = group.count(row)
        self.outer, self.pointers, self.threads = outer, pointers, threads
        self.columns = columns

    def over(self, parts: Mapping[Node, Ptr], after: list[Node], stored: list[Value]) -> None:
        group, f = self.group, self.builder.f
        first = self.builder.thread() if self.threads > 1 else 0
        with f.loop(first, self.length, self.threads) as place:
            index = {**self.outer, **group.index(self.loops, place)}
            point = Point(f, group.group, self.pointers.__getitem__, index, known=self.known)
            group.add(point, parts)
            for node in after:
                if node in self.columns:
                    group.add_column(point, node, self.columns[node] + place)
                else:
                    group.add(point, {node: self.sums[node]})
            for value in stored:
                group.store(point, value)


class KeptRow(Row):
    """Each thread keeps its few elements in registers: they are read and computed once. It has
    `each` times `lanes` neighbours."""

    def __init__(
        self,
        group: GroupCode,
        builder: KernelBuilder,
        row: list[int],
        outer: Mapping[int, Size],
        pointers: Mapping[Access, Ptr],
        threads: int,
        each: int,
        lanes: int,
        sums: Mapping[Node, Ptr],
        columns: Mapping[Node, list[Ptr]],
    ) -> None:
        super().__init__(group, builder, sums)
        loops, thread = group.loops(row), builder.thread()
        self.columns = columns
        self.points = []
        for number in range(each):
            index = {**outer, **group.index(loops, (thread + number * threads) * lanes)}
            point = group.point(builder.f, pointers, index, loops[-1].axis, lanes)
            point._known = self.known  # grows from stage to stage
            self.points.append(point)

    def over(self, parts: Mapping[Node, Ptr], after: list[Node], stored: list[Value]) -> None:
        group = self.group
        for number, point in enumerate(self.points):
            group.add(point, parts)
            for node in after:
                own = self.columns.get(node)
                if own is None:
                    group.add(point, {node: self.sums[node]})
                else:
                    group.add_lanes(point, node, own[number])
        for point in self.points:
            for value in stored:
                point.value(value)
        for point in self.points:
            for value in stored:
                group.store(point, value)
