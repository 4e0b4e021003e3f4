"""The gradient of a weight: products of the output's gradient and the source, summed over
positions.

Lanes run *across* outputs if there are enough of them: the output's gradient is transposed, tile by
tile, so that the outputs of one position are contiguous, and each vector of them is multiplied by
elements of the source's panel. With few outputs, as in depthwise convolutions, lanes run along
positions: both sides are panels with the same rows, and each sum is a vector of partial sums.

Items sum over chunks of the images into scratch memory; a second kernel adds the chunks, in order,
and then the lanes.
"""

from __future__ import annotations

import math

from weft.base.dim_algebra import constant_term
from weft.base.dims import has_dims, typical
from weft.codegen.conv.element import Element
from weft.codegen.conv.exact import exact_weight, recompute_nans, size_arguments
from weft.codegen.conv.loops import inside, kept_table, nest, table
from weft.codegen.conv.panel import fill_panel
from weft.codegen.conv.sized import hold_small
from weft.codegen.conv.transpose import transpose
from weft.codegen.conv.weight_plan import Pieces, WeightPlan, WeightProblem, plan_weight
from weft.codegen.index import Ptr, Size, divide, minimum, unravel
from weft.codegen.kernel import PARAMS, Kernel, argument, each_item
from weft.codegen.scalar.forms import store
from weft.codegen.text import Function, Module

__all__ = ["emit_weight"]


def emit_weight(
    module: Module, name: str, problem: WeightProblem, element: Element
) -> list[Kernel] | None:
    """Kernels with the source at position 0, the output's gradient at 1, the result at 2, scratch
    at 3.

    Returns None if a tile does not fit in local memory, as windows reach too far.
    """
    plan = plan_weight(problem, element, module.machine, module.sizes)
    room = (plan.panel_room(element) + plan.given_room(element)) * element.width
    if room > module.machine.caches.room:
        return None
    writing = _Weight(module.function(name, "i32", PARAMS), problem, plan, element)
    items = writing.write()
    scratch = items * plan.room(problem, element) * element.width
    positions = math.prod(axis.count for axis in problem.axes)
    each = problem.groups * problem.outputs * problem.channels * problem.taps
    each = each / element.lanes / module.machine.ghz
    cost = typical(problem.batch * positions) * each / typical(items)
    work = 0
    if plan.varies:
        work = items * 500_000 + problem.batch * positions * math.ceil(each * 1000)
        hold_small(problem.axes, module.sizes)
    added = _add_up(module, f"{name}.sum", problem, plan, element, scratch)
    return [Kernel(name, items, cost + 500, scratch, work=work), added]


class _Weight:
    """Writes the kernel that computes partial sums."""

    source: Ptr
    given: Ptr
    sums: Ptr

    def __init__(
        self, f: Function, problem: WeightProblem, plan: WeightPlan, element: Element
    ) -> None:
        self.f = f
        self.problem = problem
        self.plan = plan
        self.element = element
        self.width = plan.width(element)
        self.tile_strides = _strides(plan.panel.tile)
        self.given_panel = plan.given_panel()
        self.apart = plan.apart(element)

    def write(self) -> int:
        f, problem, plan, element = self.f, self.problem, self.plan, self.element
        x, g = (argument(f, place, element.memory) for place in (0, 1))
        scratch = argument(f, 3, element.kind)
        self._room()
        blocks, parts = plan.blocks(problem, element), plan.parts(problem)
        sizes = [plan.chunks, problem.groups, blocks, parts]
        units = plan.units(problem)
        room = plan.room(problem, element)
        image, volume = problem.image, problem.volume
        each = plan.outputs * (element.lanes if plan.across else 1)
        with each_item(f) as item:
            chunk, group, block, part = unravel(item, sizes)
            self.sums = scratch + item * room
            _clear(f, self.sums, room * element.width)
            channel = part * plan.part
            channels = minimum(problem.channels - channel, plan.part)
            output = block * each
            outputs = minimum(problem.outputs - output, each)
            first = chunk * units // plan.chunks
            beyond = (chunk + 1) * units // plan.chunks
            with f.loop(first, beyond) as unit:
                n, *tiles = unravel(unit, [problem.batch, *plan.panel.tiles])
                starts = [(t * size) for t, size in zip(tiles, plan.panel.tile, strict=True)]
                stops = [
                    minimum(start + tile, axis.result)
                    for axis, start, tile in zip(problem.axes, starts, plan.panel.tile, strict=True)
                ]
                number = n * problem.groups + group
                place = number * problem.channels + channel
                base = x + place * image
                fill_panel(f, plan.panel, element, base, self.source, channels, starts)
                place = number * problem.outputs + output
                base = g + place * volume
                if plan.across:
                    self._fill_across(base, outputs, starts, stops)
                else:
                    own = (element, base, self.given, outputs, starts, stops, self.apart)
                    fill_panel(f, self.given_panel, *own)
                counts = [(stop - start) for start, stop in zip(starts, stops, strict=True)]
                for pieces in plan.pieces:
                    self._multiply(pieces, channels, counts)
        f.do("ret i32 0")
        return math.prod(sizes)

    def _room(self) -> None:
        """Allocate local memory: panels of the source and of the output's gradient, with some
        spare."""
        plan, element = self.plan, self.element
        count = plan.panel_room(element)
        given = plan.given_room(element)
        self.source = self.f.var(element.kind, count=count, align=64)
        self.given = self.f.var(element.kind, count=given, align=64)
        if not plan.across:  # whole vectors read beyond panels: finite numbers there, times zeros
            if plan.varies:  # of what this run uses
                count = (plan.part + 1) * plan.panel.channel + 3 * element.lanes
                given = plan.outputs * self.apart + element.lanes
            _clear(self.f, self.source, count * element.width)
            _clear(self.f, self.given, given * element.width)

    def _fill_across(self, base: Ptr, outputs: Size, starts: list[Size], stops: list[Size]) -> None:
        """Copy the output's gradient so that the outputs of each position are contiguous."""
        f, element, lanes = self.f, self.element, self.element.lanes
        axes = self.problem.axes
        volume = math.prod(axis.result for axis in axes)
        counts = [(b - a) for a, b in zip(starts, stops, strict=True)]
        last_output = outputs - 1
        with nest(f, counts[:-1]) as leading:
            flat: Size = 0
            row: Size = 0
            for axis, start, i, stride in zip(
                axes, starts, leading, self.tile_strides, strict=False
            ):
                flat = flat * axis.result + start + i
                row = row + i * stride
            flat = flat * axes[-1].result + starts[-1]
            together = min(lanes, 8) if element.moved > 1 else 1  # eight keep the code small
            with (
                f.loop(0, counts[-1], together) as i,
                f.loop(0, self.width, together) as o,
            ):
                target = self.given + ((row + i) * self.width + o)
                left = counts[-1] - i
                mask = inside(f, 0, left, together) if together > 1 else None
                vectors = []
                for lane in range(together):  # outputs beyond the last repeat it
                    own = minimum(o + lane, last_output)
                    place = base + (own * volume + flat + i)
                    vectors.append(element.load(f, place, together, mask))
                if together > 1:
                    vectors = transpose(f, element.kind, vectors)
                for lane, vector in enumerate(vectors):
                    place = target + lane * self.width
                    element.put(f, place, vector, together)

    # --- sums -----------------------------------------------------------------------------------

    def _multiply(self, pieces: Pieces, channels: Size, counts: list[Size]) -> None:
        """Add a tile's products to the sums, for all channels and all pieces of a pattern."""
        f, plan, element, problem = self.f, self.plan, self.element, self.problem
        taps = [
            (c, k, c * plan.panel.channel + place)
            for c in range(plan.channels)
            for k, place in enumerate(pieces.pattern)
        ]
        start_of = kept_table(f, [place for place, _ in pieces.starts])
        with (
            f.loop(0, channels, plan.channels) as channel,
            nest(f, [len(pieces.starts)]) as (piece,),
        ):
            start = start_of(piece)
            tap = table(f, [k for _, k in pieces.starts], piece)
            x = self.source + (channel * plan.panel.channel + start)
            number = channel * problem.taps + tap
            sums = self.sums + number * self.width
            places = [
                (sums + ((c * problem.taps + k) * self.width + v * element.lanes))
                for c, k, _ in taps
                for v in range(plan.outputs)
            ]
            totals = [f.var(element.vector, element.get(f, place)) for place in places]
            # Taps a known distance apart share a pointer.
            known = [constant_term(place) for _, _, place in taps]
            far = [place - near for (_, _, place), near in zip(taps, known, strict=True)]
            pointers = {place: x + place for place in far}
            sources = [*zip(far, known, strict=True)]
            if plan.across:
                self._across(pointers, sources, totals, counts)
            else:
                self._along(pointers, sources, totals)
            for total, place in zip(totals, places, strict=True):
                element.put(f, place, total.load())

    def _across(
        self,
        pointers: dict[int, Ptr],
        sources: list[tuple[int, int]],
        totals: list[Ptr],
        counts: list[Size],
    ) -> None:
        f, plan, element = self.f, self.plan, self.element
        with nest(f, counts[:-1]) as leading:
            row: Size = 0
            panel_row: Size = 0
            for i, stride, panel_stride in zip(
                leading, self.tile_strides, plan.panel.strides, strict=False
            ):
                row = row + i * stride
                panel_row = panel_row + i * panel_stride
            with f.loop(0, counts[-1]) as i:
                own = self.given + (row + i) * self.width
                vectors = [element.get(f, own + v * element.lanes) for v in range(plan.outputs)]
                at = panel_row + i
                here = {far: x + at for far, x in pointers.items()}
                left = iter(totals)
                for far, place in sources:
                    one = element.get(f, here[far] + place, 1)
                    factor = element.splat(f, one)
                    for vector in vectors:
                        self._add(next(left), vector, factor)

    def _along(
        self, pointers: dict[int, Ptr], sources: list[tuple[int, int]], totals: list[Ptr]
    ) -> None:
        f, plan, element = self.f, self.plan, self.element
        with f.loop(0, plan.panel.positions, element.lanes) as q:
            given = [element.get(f, self.given + (q + v * self.apart)) for v in range(plan.outputs)]
            left = iter(totals)
            for far, place in sources:
                vector = element.get(f, pointers[far] + (q + place))
                for other in given:
                    self._add(next(left), other, vector)

    def _add(self, total: Ptr, one: str, other: str) -> None:
        total.store(self.element.madd(self.f, one, other, total.load()))


def _clear(f: Function, pointer: Ptr, size: Size) -> None:
    name = f.module.declare("void", "llvm.memset.p0.i64", "ptr, i8, i64, i1")
    f.do(f"call void @{name}(ptr {pointer}, i8 0, i64 {f.size(size)}, i1 false)")


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
    """The kernel that adds the chunks and the lanes of each sum, and writes the result."""
    f = module.function(name, "i32", PARAMS)
    result, sums = argument(f, 2, element.memory), argument(f, 3, element.kind)
    blocks, parts = plan.blocks(problem, element), plan.parts(problem)
    room, width = plan.room(problem, element), plan.width(element)
    each = plan.outputs * (element.lanes if plan.across else 1)
    kept = f.var(element.kind, count=width, align=64)
    apart = problem.groups * blocks * parts
    # Lanes along positions run past the ends of rows, where elements of x are multiplied by zeros.
    exact = "" if plan.across or not element.real else exact_weight(module, name, problem, element)
    source, given = (argument(f, place, element.memory) for place in (0, 1))
    image, volume = problem.image, problem.volume
    with each_item(f) as item:
        group, block, channel = unravel(item, [problem.groups, blocks, problem.channels])
        part, inner = divide(channel, plan.part)
        number = (group * blocks + block) * parts + part
        output = block * each
        outputs = minimum(problem.outputs - output, each)
        row = group * problem.outputs + output
        with f.loop(0, problem.taps) as tap:
            place = inner * problem.taps + tap
            own = sums + (number * room + place * width)
            with f.loop(0, plan.outputs) as v:
                first = own + v * element.lanes
                total = f.var(element.vector, element.get(f, first))
                with f.loop(1, plan.chunks) as chunk:
                    more = first + chunk * (apart * room)
                    total.store(element.add(f, total.load(), element.get(f, more)))
                element.put(f, kept + v * element.lanes, total.load())
            with f.loop(0, outputs) as o:
                if plan.across:
                    value = element.get(f, kept + o, 1)
                else:
                    start = kept + o * element.lanes
                    value = _lanes_added(f, element, start)
                if exact:
                    x = source + (group * problem.channels + channel) * image
                    g = given + (row + o) * volume
                    taps = unravel(tap, [axis.kernel for axis in problem.axes])
                    call = f"@{exact}(ptr {x}, ptr {g}" + "".join(f", i64 {k}" for k in taps)
                    if has_dims((problem.batch,)):
                        call += f", i64 {f.size(problem.batch)}"
                    call += size_arguments(f, problem.axes)
                    value = recompute_nans(f, element, value, 1, 1, call)
                line = (row + o) * problem.channels + channel
                address = result + (line * problem.taps + tap)
                store(f, element.dtype, address, element.rounded(f, value, 1), 1)
    f.do("ret i32 0")
    done = problem.taps * plan.outputs * (typical(plan.chunks) + element.lanes)
    return Kernel(name, problem.groups * blocks * problem.channels, done / 2 + 5, scratch)


def _lanes_added(f: Function, element: Element, start: Ptr) -> str:
    """The sum of the lanes of a vector in memory, in order."""
    total = f.var(element.kind, element.get(f, start, 1))
    with f.loop(1, element.lanes) as lane:
        more = element.get(f, start + lane, 1)
        total.store(element.add(f, total.load(), more, 1))
    return total.load()
