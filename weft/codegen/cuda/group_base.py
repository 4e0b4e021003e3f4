"""What the kernels of a loop group share: their buffers, and how parts of sums are joined.

Sums are joined in one order: by the threads of a warp, by the warps of a block, by the blocks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weft.codegen.cuda.builder import KernelBuilder
from weft.codegen.cuda.machine import GpuMachine
from weft.codegen.elementwise import load, memory_type, store
from weft.codegen.index import Ptr, Size, minimum, unravel
from weft.codegen.loops.access import Access, Loop, coalesced, dtype_of, result_access
from weft.codegen.loops.plan import all_accesses
from weft.codegen.loops.point import Point
from weft.codegen.loops.reduce import Reduction, across
from weft.codegen.loops.stages import levels
from weft.codegen.text import Module
from weft.ir.graph import Node, Value
from weft.schedule.groups import Group

__all__ = ["GroupBase", "Launch"]

#: Parts of a sum that a thread loads before it adds the first.
PARTS = 8
#: Threads that share one column of many parts.
SHARED_BY = 8


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel with its grid; its buffers are those of its step, in their order. `shared`: bytes of
    shared memory that it gets when it is launched."""

    name: str
    blocks: int
    threads: int
    shared: int = 0


def _bytes(reduction: Reduction) -> int:
    return max(1, reduction.dtype.itemsize)


class GroupBase:
    def __init__(
        self,
        module: Module,
        name: str,
        group: Group,
        places: Mapping[Value, int],
        gated: bool,
        part_of: GpuMachine | None,
    ) -> None:
        self.module = module
        self.gated = gated
        self.machine: GpuMachine = part_of or module.machine
        self._part_of = part_of
        self.name = name
        self.group = group
        self.places = places
        self.sizes = group.space.sizes
        self.accesses = all_accesses(group)
        self.levels = levels(group)
        self.reductions = {node: Reduction(node) for node in group.nodes if node.op.reduction}
        self.launches: list[Launch] = []
        self.scratch = 0
        self.scratch_at: dict[Node, int] = {}

    # --- what all kernels share -----------------------------------------------------------------

    def count(self, axes: Sequence[int]) -> int:
        return math.prod(self.sizes[axis] for axis in axes)

    def _builder(self, suffix: str = "") -> KernelBuilder:
        buffers = len(self.places) + 1
        name = self.name + suffix
        builder = KernelBuilder(self.module, name, buffers + self.gated, self._part_of)
        if self.gated:
            builder.stop_if(builder.buffer(buffers, "i32"))
        return builder

    def _threads(self, items: int) -> int:
        """How many threads a block has to go over some items: those of a part of a kernel are
        given, as all of them wait for each other."""
        most = self.machine.row
        threads = most if self._part_of else min(32, most)
        while threads < most and threads < items:
            threads *= 2
        return threads

    def _launch(self, builder: KernelBuilder, blocks: int, threads: int) -> None:
        if self._part_of is None:
            builder.end(threads)
        else:
            builder.f.do("ret void")
        self.launches.append(Launch(builder.name, blocks, threads))

    def _pointers(self, builder: KernelBuilder) -> dict[Access, Ptr]:
        return {
            access: builder.buffer(self.places[access.root], memory_type(access.dtype))
            + access.offset
            for access in self.accesses
        }

    def loops(self, axes: Sequence[int]) -> list[Loop]:
        return coalesced(axes, self.sizes, self.accesses)

    @staticmethod
    def index(loops: Sequence[Loop], item: Size) -> dict[int, Size]:
        found = unravel(item, [loop.size for loop in loops])
        return {loop.axis: i for loop, i in zip(loops, found, strict=True)}

    def store(self, point: Point, value: Value) -> None:
        point.store(result_access(self.group, value), point.value(value))

    def _part(self, builder: KernelBuilder, node: Node) -> Ptr:
        """Where the parts of a sum lie in scratch memory."""
        kind = memory_type(self.reductions[node].dtype)
        return builder.buffer(len(self.places), "i8").bytes(self.scratch_at[node]).of(kind)

    def _take(self, node: Node, count: int) -> None:
        self.scratch_at[node] = self.scratch
        self.scratch += -(-count * _bytes(self.reductions[node]) // 256) * 256

    # --- parts ----------------------------------------------------------------------------------

    def _begin(
        self, builder: KernelBuilder, nodes: Sequence[Node], lanes: int = 1
    ) -> dict[Node, Ptr]:
        """A variable for each sum, with its initial value."""
        return {
            node: builder.f.var(
                self.reductions[node].kind(lanes), self.reductions[node].begin(lanes)
            )
            for node in nodes
        }

    def _taken(self, point: Point, node: Node) -> str:
        """The operand of a reduction at a point."""
        given = point.operand(node, self.group.operands[node][0])
        return self.reductions[node].taken(point.f, given, point.lanes, None)

    def add(self, point: Point, sums: Mapping[Node, Ptr]) -> None:
        for node, var in sums.items():
            reduction = self.reductions[node]
            value = across(point.f, reduction, self._taken(point, node), point.lanes)
            var.store(reduction.joined(point.f, var.load(), value, 1))

    def add_lanes(self, point: Point, node: Node, var: Ptr) -> None:
        """Add to a variable with a sum for each lane."""
        value = self._taken(point, node)
        var.store(self.reductions[node].joined(point.f, var.load(), value, point.lanes))

    def add_column(self, point: Point, node: Node, place: Ptr) -> None:
        reduction, f = self.reductions[node], point.f
        value = self._taken(point, node)
        before = load(f, reduction.dtype, place, 1)
        store(f, reduction.dtype, place, reduction.joined(f, before, value, 1), 1)

    def _joined(self, builder: KernelBuilder, node: Node, value: str, threads: int) -> str:
        """What all threads of a block have, joined: each thread gets it. Warps join what their
        threads have in registers, then each thread joins what the warps have, in order."""
        f, reduction = builder.f, self.reductions[node]
        if threads == 1:
            return value
        kind, warp = reduction.kind(1), self.machine.warp
        if kind not in ("float", "double") or threads % warp:
            return self._joined_in_tree(builder, node, value, threads)
        step = warp // 2
        while step:
            value = reduction.joined(f, value, builder.shuffled(kind, value, step), 1)
            step //= 2
        most = max(self.machine.threads, self.machine.row)
        room = builder.shared(memory_type(reduction.dtype), most)
        thread = builder.thread()
        builder.wait()  # for those that still read what was joined before
        with f.when(f(f"icmp eq i64 {thread % warp}, 0")):
            store(f, reduction.dtype, room + thread // warp, value, 1)
        builder.wait()
        found = load(f, reduction.dtype, room, 1)
        for place in range(1, threads // warp):
            found = reduction.joined(f, found, load(f, reduction.dtype, room + place, 1), 1)
        return found

    def _joined_in_tree(self, builder: KernelBuilder, node: Node, value: str, threads: int) -> str:
        f, reduction = builder.f, self.reductions[node]
        most = max(self.machine.threads, self.machine.row)
        room = builder.shared(memory_type(reduction.dtype), most)
        thread = builder.thread()
        mine = room + thread
        builder.wait()  # for those that still read what was joined before
        store(f, reduction.dtype, mine, value, 1)
        half = threads // 2
        while half:
            builder.wait()
            with f.when(f(f"icmp ult i64 {thread}, {half}")):
                a = load(f, reduction.dtype, mine, 1)
                b = load(f, reduction.dtype, mine + half, 1)
                store(f, reduction.dtype, mine, reduction.joined(f, a, b, 1), 1)
            half //= 2
        builder.wait()
        return load(f, reduction.dtype, room, 1)

    def _whole_or_part(
        self, builder: KernelBuilder, node: Node, var: Ptr, blocks: int, threads: int
    ) -> None:
        """Store what a block has of a total: the result itself, if there is one block."""
        f, reduction = builder.f, self.reductions[node]
        made = self._joined(builder, node, var.load(), threads)
        with f.when(f(f"icmp eq i64 {builder.thread()}, 0")):
            if blocks == 1:
                self._store_total(builder, node, reduction.finished(f, made))
            else:
                place = self._part(builder, node) + builder.block()
                store(f, reduction.dtype, place, made, 1)

    def _store_total(self, builder: KernelBuilder, node: Node, made: str) -> None:
        value = node.outputs[0]
        out = builder.buffer(self.places[value], memory_type(dtype_of(value)))
        store(builder.f, dtype_of(value), out, made, 1)

    def _total_of_parts(self, node: Node, count: int) -> None:
        """One block adds the parts of a total."""
        if count == 1:
            return
        builder = self._builder(f"_sum{len(self.launches)}")
        f, reduction = builder.f, self.reductions[node]
        threads = min(self.machine.threads, self._threads(count))
        parts = self._part(builder, node)
        var = self._begin(builder, [node])[node]
        with f.loop(builder.thread(), count, threads) as i:
            part = load(f, reduction.dtype, parts + i, 1)
            var.store(reduction.joined(f, var.load(), part, 1))
        made = reduction.finished(f, self._joined(builder, node, var.load(), threads))
        with f.when(f(f"icmp eq i64 {builder.thread()}, 0")):
            self._store_total(builder, node, made)
        self._launch(builder, 1, threads)

    def _column_of_parts(self, node: Node, kept: list[int], row: list[int], pieces: int) -> None:
        """Some threads for each column add its pieces: each of them some, in order, and the first
        one what they have."""
        builder = self._builder(f"_sum{len(self.launches)}")
        f, reduction, value = builder.f, self.reductions[node], node.outputs[0]
        inner = self.count(row)
        columns = self.count(kept) * inner
        threads = self.machine.threads
        many = not self._part_of and pieces >= SHARED_BY and threads % SHARED_BY == 0
        several = SHARED_BY if many else 1
        width, share = threads // several, -(-pieces // several)
        thread = builder.thread()
        item, number = builder.block() * width + thread % width, thread // width
        access = result_access(self.group, value)
        kept_loops = [Loop(axis, self.sizes[axis]) for axis in kept]
        row_loops = [Loop(axis, self.sizes[axis]) for axis in row]
        outer, place = item // inner, item % inner
        inside = f(f"icmp ult i64 {item}, {columns}")
        var = self._begin(builder, [node])[node]
        with f.when(inside):
            first = self._part(builder, node) + (outer * (pieces * inner) + place)

            def add(places: Sequence[Size]) -> None:
                parts = [load(f, reduction.dtype, first + at * inner, 1) for at in places]
                for part in parts:
                    var.store(reduction.joined(f, var.load(), part, 1))

            start: Size = number * share if many else 0
            stop = minimum(start + share, pieces)
            left = f.var("i64", start)
            with f.loop(start, stop - (PARTS - 1), PARTS) as piece:
                add([piece + k for k in range(PARTS)])
                left.store(piece + PARTS)
            with f.loop(left.load_index(), stop) as piece:
                add([piece])
        if many:
            room = builder.shared(memory_type(reduction.dtype), max(threads, self.machine.row))
            store(f, reduction.dtype, room + thread, var.load(), 1)
            builder.wait()
            inside = f(f"and i1 {inside}, {f(f'icmp eq i64 {number}, 0')}")
        with f.when(inside):
            for other in range(1, several):
                part = load(f, reduction.dtype, room + (thread + other * width), 1)
                var.store(reduction.joined(f, var.load(), part, 1))
            index = self.index(kept_loops, outer) | self.index(row_loops, place)
            out = builder.buffer(self.places[value], memory_type(access.dtype)) + access.offset
            for axis, step in access.steps:
                if axis in index:
                    out = out + index[axis] * step
            store(f, access.dtype, out, reduction.finished(f, var.load()), 1)
        self._launch(builder, -(-columns // width), threads)
