"""The backward of max pooling whose windows tile the elements: winners are found and used at once.

Each window is looked at once: its gradient goes to its largest element, the first of equals or NaN,
and its other elements get 0. So no index of a winner is written to memory.
"""

from __future__ import annotations

from weft.base.dims import has_dims
from weft.codegen.conv.loops import inside
from weft.codegen.index import Ptr, Size, unravel
from weft.codegen.kernel import PARAMS, Store, argument, each_item
from weft.codegen.pool.problem import Pooling, rows_of
from weft.codegen.pool.taps import (
    WRITTEN_IN_ALL,
    Row,
    each_vector,
    interleaved,
    lanes_of,
    lies_inside,
)
from weft.codegen.scalar.vec import Vec, constant
from weft.codegen.text import Function, Module

__all__ = ["can_tile", "emit_tiled"]


def can_tile(problem: Pooling) -> bool:
    """Whether there is such a kernel: pairs of neighbours, of one row or of a few."""
    windows = problem.windows
    if len(windows) > 2 or problem.last.stride != 2 or has_dims((problem.taps,)):
        return False
    tiles = all(
        w.low == 0 and w.dilation == 1 and w.taps == w.stride and lies_inside(w) for w in windows
    )
    return tiles and problem.taps <= WRITTEN_IN_ALL and lanes_of(problem) > 1


def emit_tiled(module: Module, name: str, problem: Pooling, result: Store) -> int:
    """Write the kernel: g, x and out are at positions 0, 1 and 2. Returns its number of items."""
    f = module.function(name, "i32", PARAMS)
    result.begin(f)
    memory = problem.element.memory
    g, x, out = (argument(f, place, memory) for place in range(3))
    rows = problem.windows[0].out if len(problem.windows) > 1 else 1
    cut = problem.parts(rows)
    with each_item(f) as item:
        n, channel, part = unravel(item, [problem.batch, problem.channels, cut[1]])
        plane = n * problem.channels + channel
        given, made = (pointer + plane * problem.out for pointer in (g, out))
        writer = _Plane(f, problem, given, x + plane * problem.size, made, result, (n, channel))
        begin, count = rows_of(part, rows, cut)
        with f.loop(begin, begin + count) as row:
            writer.windows(row)
        if len(problem.windows) > 1:
            writer.rest(f(f"icmp eq i64 {f.size(begin + count)}, {f.size(rows)}"))
    f.do("ret i32 0")
    return problem.planes * cut[1]


class _Plane:
    def __init__(
        self,
        f: Function,
        problem: Pooling,
        given: Ptr,
        elements: Ptr,
        made: Ptr,
        result: Store,
        index: tuple[Size, Size],
    ) -> None:
        self.f = f
        self.problem = problem
        self.element = problem.element
        self.given, self.elements, self.made = given, elements, made
        self.result = result
        self.index = index
        self.lanes = lanes_of(problem)
        last = problem.last
        self.odd = f(f"icmp sgt i64 {f.size(last.size)}, {f.size(last.out * 2)}")
        self.tall = problem.windows[0].stride if len(problem.windows) > 1 else 1

    def windows(self, row: Size) -> None:
        """The elements of a row of windows, and zeros after the last window."""
        last = self.problem.last
        starts = [(row * self.tall + tap) * last.size for tap in range(self.tall)]
        each_vector(
            self.f,
            self.problem,
            self.lanes,
            lambda x, mask, sure: self._vector(row * last.out, starts, x, mask, sure),
        )
        if has_dims((last.size,)) or last.size > last.out * 2:
            with self.f.when(self.odd):
                for start in starts:
                    self._zeros(start + last.out * 2, start + last.size, 1)

    def rest(self, last_part: str) -> None:
        """Zeros in the rows after the last window."""
        first, last = self.problem.windows
        if has_dims((first.size,)) or first.size > first.out * self.tall:
            with self.f.when(last_part):
                self._zeros(first.out * self.tall * last.size, self.problem.size, self.lanes)

    def _vector(
        self, flat: Size, starts: list[Size], x: Size, some: str | None, sure: bool
    ) -> None:
        f, element, lanes = self.f, self.element, self.lanes
        last, kind = self.problem.last, element.kind
        wanted = Vec(f, kind, lanes, element.load(f, self.made + (flat + x), lanes, some))
        g = Vec(f, kind, lanes, element.load(f, self.given + (flat + x), lanes, some))
        free = Vec(f, "i1", lanes, "splat (i1 true)")
        for start in starts:
            row = Row(f, element, self.elements + start, last, sure)
            parts = []
            for tap in range(2):
                found = Vec(f, kind, lanes, row.load(x, tap, lanes))
                hit = found.equals(wanted)
                if element.real:
                    hit = hit | found.is_nan()
                hit = hit & free
                free = free ^ hit
                parts.append(element.rounded(f, hit.pick(g, 0).name, lanes))
            for half, value in enumerate(interleaved(f, kind, parts, lanes)):
                here = x * 2 + half * lanes
                mask = None if sure else inside(f, here, last.out * 2, lanes)
                self.result.put(f, value, lanes, (*self.index, start + here), mask)

    def _zeros(self, begin: Size, end: Size, lanes: int) -> None:
        """Zeros from one position of the plane to another."""
        f = self.f
        zero = self.element.rounded(f, constant(self.element.kind, 0, lanes), lanes)
        with f.loop(begin, end, lanes) as at:
            mask = inside(f, 0, end - at, lanes) if lanes > 1 else None
            self.result.put(f, zero, lanes, (*self.index, at), mask)
