"""The gradient of a weight: products of what is given and the source, summed over positions.

Lanes run *across* outputs where there are enough of them: what is given is transposed, tile by
tile, so that the outputs of one position lie side by side, and each vector of them is multiplied by
elements of the source's panel. Where there are few outputs, as in depthwise convolutions, lanes run
along positions: both sides are panels of the same rows, and each sum is a vector of partial ones.

Items sum over chunks of the images into memory of their own; a second kernel adds the chunks in
their order, and the lanes.
"""

from __future__ import annotations

import math

from weft.codegen.conv.element import Element
from weft.codegen.conv.exact import exact_weight, summed_again
from weft.codegen.conv.loops import add, at, inside, least, mul, nest, split_index, table
from weft.codegen.conv.panel import fill_panel
from weft.codegen.conv.transpose import transpose
from weft.codegen.conv.weight_plan import Pieces, WeightPlan, WeightProblem, plan_weight
from weft.codegen.kernel import PARAMS, Kernel, argument
from weft.codegen.scalar.forms import memory_type, store
from weft.codegen.text import Function, Module

__all__ = ["emit_weight"]


def emit_weight(
    module: Module, name: str, problem: WeightProblem, element: Element
) -> list[Kernel] | None:
    """Kernels with the source at place 0, what is given at 1, the result at 2, scratch at 3.

    None where windows reach so far that a tile does not fit the stack.
    """
    plan = plan_weight(problem, element, module.machine)
    room = (plan.panel_room(element) + plan.given_room(element)) * element.width
    if room > module.machine.caches.room:
        return None
    writing = _Weight(module.function(name, "i32", PARAMS), problem, plan, element)
    items = writing.write()
    scratch = items * plan.room(problem, element) * element.width
    positions = math.prod(axis.count for axis in problem.axes)
    work = problem.batch * problem.groups * problem.outputs * problem.channels * problem.taps
    cost = work * positions / element.lanes / items / module.machine.ghz
    added = _add_up(module, f"{name}.sum", problem, plan, element, scratch)
    return [Kernel(name, items, cost + 500, scratch), added]


class _Weight:
    """The writing of the kernel that makes partial sums."""

    def __init__(
        self, f: Function, problem: WeightProblem, plan: WeightPlan, element: Element
    ) -> None:
        self.f = f
        self.problem = problem
        self.plan = plan
        self.element = element
        self.memory = memory_type(element.dtype)
        self.width = plan.width(element)
        self.tile_strides = _strides(plan.panel.tile)
        self.given_panel = plan.given_panel()
        self.apart = plan.apart(element)
        self.source = self.given = self.sums = ""

    def write(self) -> int:
        f, problem, plan, element = self.f, self.problem, self.plan, self.element
        x, g, scratch = (argument(f, place) for place in (0, 1, 3))
        self._room()
        blocks, parts = plan.blocks(problem, element), plan.parts(problem)
        sizes = [plan.chunks, problem.groups, blocks, parts]
        units = plan.units(problem)
        room = plan.room(problem, element)
        image, volume = problem.image, problem.volume
        each = plan.outputs * (element.lanes if plan.across else 1)
        with f.loop("%begin", "%end") as item:
            chunk, group, block, part = split_index(f, item, sizes)
            self.sums = at(f, element.kind, scratch, mul(f, item, room))
            _clear(f, self.sums, room * element.width)
            channel = mul(f, part, plan.part)
            left = f(f"sub i64 {problem.channels}, {channel}")
            channels = least(f, left, str(plan.part))
            output = mul(f, block, each)
            outputs = least(f, f(f"sub i64 {problem.outputs}, {output}"), str(each))
            first = f(f"udiv i64 {mul(f, chunk, units)}, {plan.chunks}")
            beyond = f(f"udiv i64 {mul(f, add(f, chunk, 1), units)}, {plan.chunks}")
            with f.loop(first, beyond) as unit:
                n, *tiles = split_index(f, unit, [problem.batch, *plan.panel.tiles])
                starts = [mul(f, t, size) for t, size in zip(tiles, plan.panel.tile, strict=True)]
                stops = []
                for axis, start, tile in zip(problem.axes, starts, plan.panel.tile, strict=True):
                    stops.append(least(f, add(f, start, tile), str(axis.result)))
                number = add(f, mul(f, n, problem.groups), group)
                place = add(f, mul(f, number, problem.channels), channel)
                base = at(f, self.memory, x, mul(f, place, image))
                fill_panel(f, plan.panel, element, base, self.source, channels, starts)
                place = add(f, mul(f, number, problem.outputs), output)
                base = at(f, self.memory, g, mul(f, place, volume))
                if plan.across:
                    self._fill_across(base, outputs, starts, stops)
                else:
                    own = (element, base, self.given, outputs, starts, stops, self.apart)
                    fill_panel(f, self.given_panel, *own)
                counts = [
                    f(f"sub i64 {stop}, {start}") for start, stop in zip(starts, stops, strict=True)
                ]
                for pieces in plan.pieces:
                    self._multiply(pieces, channels, counts)
        f.do("ret i32 0")
        return math.prod(sizes)

    def _room(self) -> None:
        """Memory on the stack: panels of the source and of what is given, each with some spare."""
        plan, element = self.plan, self.element
        count = plan.panel_room(element)
        given = plan.given_room(element)
        self.source = self.f.var(element.kind, count=count, align=64)
        self.given = self.f.var(element.kind, count=given, align=64)
        if not plan.across:  # whole vectors read beyond panels: numbers there, times zeros
            _clear(self.f, self.source, count * element.width)
            _clear(self.f, self.given, given * element.width)

    def _fill_across(self, base: str, outputs: str, starts: list[str], stops: list[str]) -> None:
        """What is given, with the outputs of each position of the tile side by side."""
        f, element, lanes = self.f, self.element, self.element.lanes
        axes = self.problem.axes
        volume = math.prod(axis.result for axis in axes)
        counts = [f(f"sub i64 {b}, {a}") for a, b in zip(starts, stops, strict=True)]
        last_output = f(f"sub i64 {outputs}, 1")
        with nest(f, counts[:-1]) as leading:
            flat, row = "0", "0"
            for axis, start, i, stride in zip(
                axes, starts, leading, self.tile_strides, strict=False
            ):
                flat = add(f, mul(f, flat, axis.result), start, i)
                row = add(f, row, mul(f, i, stride))
            flat = add(f, mul(f, flat, axes[-1].result), starts[-1])
            together = min(lanes, 8) if element.moved > 1 else 1  # eight are a small code
            with (
                f.loop("0", counts[-1], str(together)) as i,
                f.loop("0", str(self.width), str(together)) as o,
            ):
                target = at(f, element.kind, self.given, mul(f, add(f, row, i), self.width), o)
                left = f(f"sub i64 {counts[-1]}, {i}")
                mask = inside(f, "0", left, together) if together > 1 else None
                vectors = []
                for lane in range(together):  # an output too many is one more time the last
                    own = least(f, add(f, o, lane), last_output)
                    place = at(f, self.memory, base, mul(f, own, volume), flat, i)
                    vectors.append(element.load(f, place, together, mask))
                if together > 1:
                    vectors = transpose(f, element.kind, vectors)
                for lane, vector in enumerate(vectors):
                    place = at(f, element.kind, target, lane * self.width)
                    element.put(f, place, vector, together)

    # --- sums -----------------------------------------------------------------------------------

    def _multiply(self, pieces: Pieces, channels: str, counts: list[str]) -> None:
        """Add a tile's products to the sums, for all channels and all pieces of a pattern."""
        f, plan, element, problem = self.f, self.plan, self.element, self.problem
        taps = [
            (c, k, c * plan.panel.channel + place)
            for c in range(plan.channels)
            for k, place in enumerate(pieces.pattern)
        ]
        with (
            f.loop("0", channels, str(plan.channels)) as channel,
            nest(f, [str(len(pieces.starts))]) as (piece,),
        ):
            start = table(f, [place for place, _ in pieces.starts], piece)
            tap = table(f, [k for _, k in pieces.starts], piece)
            x = at(f, element.kind, self.source, mul(f, channel, plan.panel.channel), start)
            number = add(f, mul(f, channel, problem.taps), tap)
            sums = at(f, element.kind, self.sums, mul(f, number, self.width))
            places = [
                at(f, element.kind, sums, (c * problem.taps + k) * self.width + v * element.lanes)
                for c, k, _ in taps
                for v in range(plan.outputs)
            ]
            totals = [f.var(element.vector, element.get(f, place)) for place in places]
            if plan.across:
                self._across(x, taps, totals, counts)
            else:
                self._along(x, taps, totals)
            for total, place in zip(totals, places, strict=True):
                element.put(f, place, f.get(element.vector, total))

    def _across(
        self, x: str, taps: list[tuple[int, int, int]], totals: list[str], counts: list[str]
    ) -> None:
        f, plan, element = self.f, self.plan, self.element
        with nest(f, counts[:-1]) as leading:
            row = panel_row = "0"
            for i, stride, panel_stride in zip(
                leading, self.tile_strides, plan.panel.strides, strict=False
            ):
                row = add(f, row, mul(f, i, stride))
                panel_row = add(f, panel_row, mul(f, i, panel_stride))
            with f.loop("0", counts[-1]) as i:
                own = at(f, element.kind, self.given, mul(f, add(f, row, i), self.width))
                vectors = [
                    element.get(f, at(f, element.kind, own, v * element.lanes))
                    for v in range(plan.outputs)
                ]
                here = at(f, element.kind, x, panel_row, i)
                left = iter(totals)
                for _, _, place in taps:
                    one = element.get(f, at(f, element.kind, here, place), 1)
                    factor = element.spread(f, one)
                    for vector in vectors:
                        self._add(next(left), vector, factor)

    def _along(self, x: str, taps: list[tuple[int, int, int]], totals: list[str]) -> None:
        f, plan, element = self.f, self.plan, self.element
        with f.loop("0", str(plan.panel.positions), str(element.lanes)) as q:
            given = [
                element.get(f, at(f, element.kind, self.given, q, v * self.apart))
                for v in range(plan.outputs)
            ]
            left = iter(totals)
            for _, _, place in taps:
                vector = element.get(f, at(f, element.kind, x, q, place))
                for other in given:
                    self._add(next(left), other, vector)

    def _add(self, total: str, one: str, other: str) -> None:
        f, element = self.f, self.element
        so_far = f.get(element.vector, total)
        f.set(element.vector, total, element.madd(f, one, other, so_far))


def _clear(f: Function, pointer: str, size: int) -> None:
    name = f.module.declare("void", "llvm.memset.p0.i64", "ptr, i8, i64, i1")
    f.do(f"call void @{name}(ptr {pointer}, i8 0, i64 {size}, i1 false)")


def _strides(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(sizes[i + 1 :]) for i in range(len(sizes)))


def _add_up(
    module: Module,
    name: str,
    problem: WeightProblem,
    plan: WeightPlan,
    element: Element,
    scratch: int,
) -> Kernel:
    """The kernel that adds the chunks, and the lanes of each sum, and writes the result."""
    f = module.function(name, "i32", PARAMS)
    result, sums = argument(f, 2), argument(f, 3)
    blocks, parts = plan.blocks(problem, element), plan.parts(problem)
    room, width = plan.room(problem, element), plan.width(element)
    each = plan.outputs * (element.lanes if plan.across else 1)
    kept = f.var(element.kind, count=width, align=64)
    memory = memory_type(element.dtype)
    apart = problem.groups * blocks * parts
    # Lanes along positions run over the ends of rows, where numbers of x meet zeros.
    exact = "" if plan.across or not element.real else exact_weight(module, name, problem, element)
    source, given = argument(f, 0), argument(f, 1)
    image, volume = problem.image, problem.volume
    with f.loop("%begin", "%end") as item:
        group, block, channel = split_index(f, item, [problem.groups, blocks, problem.channels])
        part = f(f"udiv i64 {channel}, {plan.part}")
        inner = f(f"urem i64 {channel}, {plan.part}")
        number = add(f, mul(f, add(f, mul(f, group, blocks), block), parts), part)
        output = mul(f, block, each)
        outputs = least(f, f(f"sub i64 {problem.outputs}, {output}"), str(each))
        row = add(f, mul(f, group, problem.outputs), output)
        with f.loop("0", str(problem.taps)) as tap:
            place = add(f, mul(f, inner, problem.taps), tap)
            own = at(f, element.kind, sums, mul(f, number, room), mul(f, place, width))
            with f.loop("0", str(plan.outputs)) as v:
                first = at(f, element.kind, own, mul(f, v, element.lanes))
                total = f.var(element.vector, element.get(f, first))
                with f.loop("1", str(plan.chunks)) as chunk:
                    more = at(f, element.kind, first, mul(f, chunk, apart * room))
                    value = element.add(f, f.get(element.vector, total), element.get(f, more))
                    f.set(element.vector, total, value)
                value = f.get(element.vector, total)
                target = at(f, element.kind, kept, mul(f, v, element.lanes))
                element.put(f, target, value)
            with f.loop("0", outputs) as o:
                if plan.across:
                    value = element.get(f, at(f, element.kind, kept, o), 1)
                else:
                    start = at(f, element.kind, kept, mul(f, o, element.lanes))
                    value = _lanes_added(f, element, start)
                if exact:
                    place = add(f, mul(f, group, problem.channels), channel)
                    x = at(f, memory, source, mul(f, place, image))
                    g = at(f, memory, given, mul(f, add(f, row, o), volume))
                    taps = split_index(f, tap, [axis.kernel for axis in problem.axes])
                    call = f"@{exact}(ptr {x}, ptr {g}" + "".join(f", i64 {k}" for k in taps)
                    value = summed_again(f, element, value, 1, "1", call)
                line = add(f, mul(f, add(f, row, o), problem.channels), channel)
                address = at(f, memory, result, mul(f, line, problem.taps), tap)
                store(f, element.dtype, address, element.rounded(f, value, 1), 1)
    f.do("ret i32 0")
    done = problem.taps * plan.outputs * (plan.chunks + element.lanes)
    return Kernel(name, problem.groups * blocks * problem.channels, done / 2 + 5, scratch)


def _lanes_added(f: Function, element: Element, start: str) -> str:
    """The sum of the lanes of a vector in memory, in their order."""
    total = f.var(element.kind, element.get(f, start, 1))
    with f.loop("1", str(element.lanes)) as lane:
        more = element.get(f, at(f, element.kind, start, lane), 1)
        f.set(element.kind, total, element.add(f, f.get(element.kind, total), more, 1))
    return f.get(element.kind, total)
