"""Convolutions and their transposes: sums of shifted vectors of a panel times weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from weft.base.dims import has_dims, typical
from weft.codegen.conv.element import Element
from weft.codegen.conv.exact import exact_result, recompute_nans, size_arguments
from weft.codegen.conv.loops import in_lanes, kept_table, nest, table
from weft.codegen.conv.panel import fill_panel
from weft.codegen.conv.plan import CorePlan, Problem, plan_core
from weft.codegen.conv.sized import hold_small
from weft.codegen.index import Index, Ptr, Size, divide, minimum, unravel
from weft.codegen.kernel import PARAMS, Kernel, Store, argument, each_item
from weft.codegen.machine import Machine
from weft.codegen.scalar.vec import vector_type
from weft.codegen.text import Function, Module

__all__ = ["Places", "core_room", "emit_core"]

#: One tap, or all channels of one, from the sums and the addresses of the source and the weight.
Body = Callable[[list[list[Ptr]], Ptr, Ptr], None]


@dataclass(frozen=True, slots=True)
class Places:
    """Positions of the operands in `args`; `weight` is of the accumulator's dtype, `bias` of the
    operands'."""

    source: int
    weight: int
    bias: int | None = None


def emit_core(
    module: Module, name: str, problem: Problem, element: Element, places: Places, store: Store
) -> Kernel | None:
    """Returns None if a tile does not fit in local memory, as windows reach too far."""
    plan = plan_core(problem, element, module.machine, module.sizes)
    if _room(plan, problem, element) > module.machine.caches.room:
        return None
    hold_small(problem.axes, module.sizes)
    f = module.function(name, "i32", PARAMS)
    _Core(f, problem, plan, element, places, store).write()
    items = plan.items(problem)
    taps = math.prod(axis.kernel for axis in problem.axes)
    each = problem.sources * taps / element.lanes / module.machine.ghz
    done = typical(plan.room) * typical(plan.results) * each
    work = 0
    if has_dims((plan.room,)):
        total = problem.batch * problem.groups * problem.results * problem.volume
        work = items * 200_000 + total * math.ceil(each * 1000)
    return Kernel(name, items, done + 200, work=work)


def core_room(problem: Problem, element: Element, machine: Machine) -> int:
    """How many bytes of local memory a kernel takes."""
    return _room(plan_core(problem, element, machine), problem, element)


def _room(plan: CorePlan, problem: Problem, element: Element) -> int:
    return (plan.panel_room + plan.sums_room(problem)) * element.width


class _Core:
    """Writes one kernel."""

    # Set while the kernel is written: operands, local memory, and the current item.
    weight: Ptr
    panel: Ptr
    sums: Ptr
    source: Ptr
    bias: Ptr | None
    n: Size
    group: Size
    first: Size
    blocks: Size
    starts: list[Size]

    def __init__(
        self,
        f: Function,
        problem: Problem,
        plan: CorePlan,
        element: Element,
        places: Places,
        store: Store,
    ) -> None:
        self.f = f
        self.problem = problem
        self.plan = plan
        self.element = element
        self.places = places
        self.store = store
        self.taps = plan.panel.taps()
        self.shift = kept_table(f, plan.panel.distances(f))
        self.room = f.size(plan.room)
        self.parted = plan.sources < problem.sources
        # Whether a transposed convolution reads zeros for terms that it does not have.
        zeros = not all(plan.panel.covered(number) for number in range(len(problem.axes)))
        self.exact = ""
        if problem.transposed and zeros and element.real:
            self.exact = exact_result(f.module, f.name, problem, element)

    def write(self) -> None:
        f, problem, plan = self.f, self.problem, self.plan
        self.store.begin(f)
        memory, bias = self.element.memory, self.places.bias
        source = argument(f, self.places.source, memory)
        self.weight = argument(f, self.places.weight, self.element.kind)
        self.bias = None if bias is None else argument(f, bias, memory)
        self._room()
        image = math.prod(axis.size for axis in problem.axes)
        sizes = [problem.batch, problem.groups, *plan.panel.tiles, plan.chunks(problem)]
        with each_item(f) as item:
            self.n, self.group, *tiles, chunk = unravel(item, sizes)
            self.starts = [(t * size) for t, size in zip(tiles, plan.panel.tile, strict=True)]
            self.first = chunk * plan.results
            number = self.n * problem.groups + self.group
            base = source + number * (problem.sources * image)
            self.source = base
            # Blocks of the item: the last item may have fewer.
            left = problem.results + plan.rows - 1 - self.first
            self.blocks = minimum(left // plan.rows, -(-plan.results // plan.rows))
            if not self.parted:
                self._fill(base, problem.sources)
                with f.loop(0, self.blocks) as block:
                    self._multiply(block, self.sums, 0, problem.sources)
                    self._copy_out(block, self.sums)
            else:
                with f.loop(0, problem.sources, plan.sources) as r:
                    count = minimum(problem.sources - r, plan.sources)
                    self._fill(base + r * image, count)
                    with f.loop(0, self.blocks) as block:
                        self._multiply(block, self._sums_of(block), r, count)
                with f.loop(0, self.blocks) as block:
                    self._copy_out(block, self._sums_of(block))
        f.do("ret i32 0")

    def _room(self) -> None:
        """Allocate local memory: a panel, and the sums of a block (or of all blocks of an item)."""
        plan, element = self.plan, self.element
        self.panel = self.f.var(element.kind, count=plan.panel_room, align=64)
        self.sums = self.f.var(element.kind, count=plan.sums_room(self.problem), align=64)
        self.step = self.room * len(self.taps)  # distance from the sums of one channel to the next

    def _sums_of(self, block: Size) -> Ptr:
        return self.sums + block * (self.plan.rows * self.step)

    def _fill(self, source: Ptr, channels: Size) -> None:
        panel, element, apart = self.plan.panel, self.element, self.plan.apart
        fill_panel(self.f, panel, element, source, self.panel, channels, self.starts, apart=apart)

    def _channels(self, block: Size) -> tuple[Size, Size]:
        """The first channel of a block: as counted, and shifted back so that the block has all
        rows."""
        counted = self.first + block * self.plan.rows
        return counted, minimum(counted, self.problem.results - self.plan.rows)

    # --- sums -----------------------------------------------------------------------------------

    def _multiply(self, block: Size, sums: Ptr, source: Size, count: Size) -> None:
        """Accumulate a block over `count` channels of the panel; the first is `source`."""
        f, plan, element = self.f, self.plan, self.element
        per_group, per_result, per_source = self.problem.weights
        _, channel = self._channels(block)
        weight = self.weight + (self.group * per_group + channel * per_result + source * per_source)
        ends = [0]
        for taps in self.taps:
            ends.append(ends[-1] + len(taps))
        kernel = [k for taps in self.taps for _, k in taps]
        start_of, stop_of = (partial(table, f, part) for part in (ends[:-1], ends[1:]))
        with nest(f, [len(self.taps)]) as (number,):
            for q, vectors in self._vectors():
                own = sums + (number * self.room + q)
                totals = self._totals(own, source, vectors)
                start, stop = start_of(number), stop_of(number)

                def each_tap(
                    x: Ptr,
                    w: Ptr,
                    body: Body,
                    start: Size = start,
                    stop: Size = stop,
                    totals: list[list[Ptr]] = totals,
                ) -> None:
                    if kernel:
                        with f.loop(start, stop) as t:
                            body(totals, x + self.shift(t), w + table(f, kernel, t))

                if plan.taps_outside:
                    each_tap(self.panel + q, weight, partial(self._channels_of_tap, count))
                else:
                    with f.loop(0, count) as r:
                        x = self.panel + (r * plan.apart + q)
                        each_tap(x, weight + r * per_source, self._step)
                for i, row in enumerate(totals):
                    for j, total in enumerate(row):
                        place = own + (i * self.step + j * element.lanes)
                        element.put(f, place, total.load())

    def _vectors(self) -> Iterator[tuple[Size, int]]:
        """The positions of a tile, block by block: the first of each, and how many vectors. What
        whole blocks leave is halved, where the run tells how much that is."""
        f, most, lanes = self.f, self.plan.vectors, self.element.lanes
        if not isinstance(self.room, Index):
            with self._places() as q:
                yield q, most
            return
        count = self.room // lanes
        left = count % most
        whole = count - left
        with f.loop(0, whole * lanes, most * lanes) as q:
            yield q, most
        part = 1 << ((most - 1).bit_length() - 1) if most > 1 else 0
        while part:
            with f.when(f(f"icmp ne i64 {f(f'and i64 {left}, {part}')}, 0")):
                yield (whole + (left - left % (2 * part))) * lanes, part
            part //= 2

    @contextmanager
    def _places(self) -> Iterator[Size]:
        """The positions that blocks begin with."""
        plan, block = self.plan, self.plan.vectors * self.element.lanes
        if not plan.by_rows:
            with self.f.loop(0, self.room, block) as q:
                yield q
            return
        *leading, row = plan.panel.tile
        with nest(self.f, leading) as places, self.f.loop(0, row, block) as q:
            for place, stride in zip(places, plan.panel.strides, strict=False):
                q = q + place * stride
            yield q

    def _totals(self, own: Ptr, source: Size, vectors: int) -> list[list[Ptr]]:
        """Variables for the sums of a block, starting from the sums so far if there are any."""
        f, plan, element = self.f, self.plan, self.element
        made = [
            [f.var(element.vector, "zeroinitializer") for _ in range(vectors)]
            for _ in range(plan.rows)
        ]
        if self.parted:
            with f.when(f(f"icmp ne i64 {source}, 0")):
                for i, row in enumerate(made):
                    for j, total in enumerate(row):
                        place = own + (i * self.step + j * element.lanes)
                        total.store(element.get(f, place))
        return made

    def _channels_of_tap(self, count: Size, totals: list[list[Ptr]], x: Ptr, w: Ptr) -> None:
        """One tap of all channels."""
        f, head, end = self.f, self.f.fresh("channels"), self.f.fresh("end")
        x_now, w_now, left = f.var("ptr", x), f.var("ptr", w), f.var("i64", count)
        f.jump(head)
        f.block(head)
        x, w = (f.ptr(now.load(), self.element.kind) for now in (x_now, w_now))
        self._step(totals, x, w)
        x_now.store(x + self.plan.apart)
        w_now.store(w + self.problem.weights[2])
        rest = left.load_index() - 1
        left.store(rest)
        f.branch(f(f"icmp sgt i64 {rest}, 0"), head, end)
        f.block(end)

    def _step(self, totals: list[list[Ptr]], x: Ptr, w: Ptr) -> None:
        """One tap of one channel, for all rows and vectors of a block."""
        f, element = self.f, self.element
        vectors = [element.get(f, x + j * element.lanes) for j in range(len(totals[0]))]
        for i, row in enumerate(totals):
            place = w + i * self.problem.weights[1]
            factor = element.splat(f, element.get(f, place, 1))
            for vector, total in zip(vectors, row, strict=True):
                total.store(element.madd(f, vector, factor, total.load()))

    # --- results --------------------------------------------------------------------------------

    def _copy_out(self, block: Size, sums: Ptr) -> None:
        """Pass the sums that are results to the store, row by row, with the bias."""
        f, problem, element = self.f, self.problem, self.element
        axes, panel = problem.axes, self.plan.panel
        counted, channel = self._channels(block)
        stops = []
        for axis, start, tile in zip(axes, self.starts, panel.tile, strict=True):
            left = axis.result - start * axis.spread
            cut = has_dims((axis.count, tile)) or axis.count > tile
            stops.append(minimum(left, tile * axis.spread) if cut else left)
        with f.loop(counted - channel, self.plan.rows) as row:
            own = channel + row
            out = self.group * problem.results + own
            bias = None
            if self.bias is not None:
                bias = element.load(f, self.bias + out, 1)
            with nest(f, stops[:-1]) as leading:
                which: Size = 0
                flat: Size = 0
                place = row * self.step
                for axis, start, stride, i in zip(
                    axes, self.starts, panel.strides, leading, strict=False
                ):
                    m, part = divide(i, axis.spread)
                    which = which * axis.spread + part
                    place = place + m * stride
                    y = start * axis.spread + i
                    flat = flat * axis.result + y
                last = axes[-1]
                place = place + which * (self.room * last.spread)
                begin = self.starts[-1] * last.spread
                flat = flat * last.result + begin
                base = sums + place
                most = element.whole_lanes(last.result) if last.spread <= 2 else 1
                ys = [
                    (start * axis.spread + i)
                    for axis, start, i in zip(axes, self.starts, leading, strict=False)
                ]

                def put(i: Size, lanes: int, mask: str | None) -> None:
                    value = self._results(base, i, lanes)
                    if self.exact:
                        call = self._exact_call(own, [*ys, begin + i])
                        count = minimum(stops[-1] - i, lanes)
                        value = recompute_nans(f, element, value, lanes, count, call)
                    if bias is not None:
                        value = element.add(f, value, element.splat(f, bias, lanes), lanes)
                    value = element.rounded(f, value, lanes)
                    self.store.put(f, value, lanes, (self.n, out, flat + i), mask)

                in_lanes(f, stops[-1], most, element.moved > 1, put)

    def _exact_call(self, channel: Size, places: list[Size]) -> str:
        """The call that recomputes results of a channel, from a position on."""
        f = self.f
        per_group, per_result, _ = self.problem.weights
        weight = self.weight + (self.group * per_group + channel * per_result)
        given = "".join(f", i64 {place}" for place in places)
        given += size_arguments(f, self.problem.axes)
        return f"@{self.exact}(ptr {self.source}, ptr {weight}{given}"

    def _results(self, base: Ptr, i: Size, lanes: int) -> str:
        """Sums of neighbouring results; each class of results has its own row."""
        f, element, room = self.f, self.element, self.room
        spread = self.problem.axes[-1].spread
        m, which = divide(i, spread)
        if spread == 1 or lanes == 1:
            return element.get(f, base + (m + which * room), lanes)
        parts = [element.get(f, base + (m + number * room), lanes) for number in range(2)]
        whole = vector_type(element.kind, lanes)
        order = ", ".join(f"i32 {i // 2 + i % 2 * lanes}" for i in range(lanes))
        return f(f"shufflevector {whole} {parts[0]}, {whole} {parts[1]}, <{lanes} x i32> <{order}>")
