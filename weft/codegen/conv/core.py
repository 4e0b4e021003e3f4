"""Convolutions and their transposes: sums of shifted vectors of a panel times weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft.codegen.conv.element import Element
from weft.codegen.conv.exact import exact_result, summed_again
from weft.codegen.conv.loops import add, at, divide, inside, least, mul, nest, split_index, table
from weft.codegen.conv.panel import fill_panel
from weft.codegen.conv.plan import CorePlan, Problem, plan_core
from weft.codegen.kernel import PARAMS, Kernel, Store, argument
from weft.codegen.machine import Machine
from weft.codegen.scalar.forms import memory_type
from weft.codegen.scalar.vec import vector_type
from weft.codegen.text import Function, Module

__all__ = ["Places", "core_room", "emit_core"]


@dataclass(frozen=True, slots=True)
class Places:
    """Where the operands stand in `args`; `weight` holds sums' elements, `bias` the dtype's."""

    source: int
    weight: int
    bias: int | None = None


def emit_core(
    module: Module, name: str, problem: Problem, element: Element, places: Places, store: Store
) -> Kernel | None:
    """None where windows reach so far that a tile does not fit the stack."""
    plan = plan_core(problem, element, module.machine)
    if core_room(problem, element, module.machine) > module.machine.caches.room:
        return None
    f = module.function(name, "i32", PARAMS)
    _Core(f, problem, plan, element, places, store).write()
    items = plan.items(problem)
    taps = math.prod(axis.kernel for axis in problem.axes)
    done = plan.room * plan.results * problem.sources * taps / element.lanes
    return Kernel(name, items, done / module.machine.ghz + 200)


def core_room(problem: Problem, element: Element, machine: Machine) -> int:
    """How many bytes of the stack a kernel takes."""
    plan = plan_core(problem, element, machine)
    return (plan.panel_room + plan.sums_room(problem)) * element.width


class _Core:
    """The writing of one kernel."""

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
        self.parted = plan.sources < problem.sources
        self.memory = memory_type(element.dtype)
        # What is known once the code for it stands: operands, room, and the item at hand.
        self.weight = self.panel = self.sums = self.n = self.group = self.first = ""
        self.source = ""
        # Where a transposed convolution reads zeros for terms that it does not have.
        zeros = not all(plan.panel.covered(number) for number in range(len(problem.axes)))
        self.exact = ""
        if problem.transposed and zeros and element.real:
            self.exact = exact_result(f.module, f.name, problem, element)
        self.blocks = ""
        self.bias: str | None = None
        self.starts: list[str] = []
        self.step = 0

    def write(self) -> None:
        f, problem, plan = self.f, self.problem, self.plan
        self.store.begin(f)
        source = argument(f, self.places.source)
        self.weight = argument(f, self.places.weight)
        self.bias = None if self.places.bias is None else argument(f, self.places.bias)
        self._room()
        image = math.prod(axis.size for axis in problem.axes)
        sizes = [problem.batch, problem.groups, *plan.panel.tiles, plan.chunks(problem)]
        with f.loop("%begin", "%end") as item:
            self.n, self.group, *tiles, chunk = split_index(f, item, sizes)
            self.starts = [mul(f, t, size) for t, size in zip(tiles, plan.panel.tile, strict=True)]
            self.first = mul(f, chunk, plan.results)
            number = add(f, mul(f, self.n, problem.groups), self.group)
            base = at(f, self.memory, source, mul(f, number, problem.sources * image))
            self.source = base
            # Blocks of the item: the last ones of the last item may be beyond the results.
            left = f(f"sub i64 {problem.results + plan.rows - 1}, {self.first}")
            self.blocks = least(
                f, f(f"udiv i64 {left}, {plan.rows}"), str(-(-plan.results // plan.rows))
            )
            if not self.parted:
                self._fill(base, str(problem.sources))
                with f.loop("0", self.blocks) as block:
                    self._multiply(block, self.sums, "0", str(problem.sources))
                    self._copy_out(block, self.sums)
            else:
                with f.loop("0", str(problem.sources), str(plan.sources)) as r:
                    left = f(f"sub i64 {problem.sources}, {r}")
                    count = least(f, left, str(plan.sources))
                    self._fill(at(f, self.memory, base, mul(f, r, image)), count)
                    with f.loop("0", self.blocks) as block:
                        self._multiply(block, self._sums_of(block), r, count)
                with f.loop("0", self.blocks) as block:
                    self._copy_out(block, self._sums_of(block))
        f.do("ret i32 0")

    def _room(self) -> None:
        """Memory on the stack: a panel, and the sums of a block (or of all blocks of an item)."""
        plan, element = self.plan, self.element
        self.panel = self.f.var(element.kind, count=plan.panel_room, align=64)
        self.sums = self.f.var(element.kind, count=plan.sums_room(self.problem), align=64)
        self.step = plan.room * len(self.taps)  # from the sums of one channel to the next

    def _sums_of(self, block: str) -> str:
        place = mul(self.f, block, self.plan.rows * self.step)
        return at(self.f, self.element.kind, self.sums, place)

    def _fill(self, source: str, channels: str) -> None:
        panel, element = self.plan.panel, self.element
        fill_panel(self.f, panel, element, source, self.panel, channels, self.starts)

    def _channels(self, block: str) -> tuple[str, str]:
        """The first channel of a block: as it is counted, and moved back to have all rows."""
        f = self.f
        counted = add(f, self.first, mul(f, block, self.plan.rows))
        return counted, least(f, counted, str(self.problem.results - self.plan.rows))

    # --- sums -----------------------------------------------------------------------------------

    def _multiply(self, block: str, sums: str, source: str, count: str) -> None:
        """Sums of a block over `count` channels of the panel: the source's from `source` on."""
        f, plan, element = self.f, self.plan, self.element
        per_group, per_result, per_source = self.problem.weights
        _, channel = self._channels(block)
        place = add(
            f,
            mul(f, self.group, per_group),
            mul(f, channel, per_result),
            mul(f, source, per_source),
        )
        weight = at(f, element.kind, self.weight, place)
        ends = [0]
        for taps in self.taps:
            ends.append(ends[-1] + len(taps))
        with (
            nest(f, [str(len(self.taps))]) as (number,),
            f.loop("0", str(plan.room), str(plan.vectors * element.lanes)) as q,
        ):
            own = at(f, element.kind, sums, mul(f, number, plan.room), q)
            totals = self._totals(own, source)
            with f.loop("0", count) as r:
                x = at(f, element.kind, self.panel, mul(f, r, plan.panel.channel), q)
                w = at(f, element.kind, weight, mul(f, r, per_source))
                flat = [tap for taps in self.taps for tap in taps]
                if flat:
                    start, stop = (table(f, part, number) for part in (ends[:-1], ends[1:]))
                    with f.loop(start, stop) as t:
                        shift = table(f, [place for place, _ in flat], t)
                        tap = table(f, [k for _, k in flat], t)
                        self._step(totals, x, w, shift, tap)
            for i, row in enumerate(totals):
                for j, total in enumerate(row):
                    place = at(f, element.kind, own, i * self.step + j * element.lanes)
                    element.put(f, place, f.get(element.vector, total))

    def _totals(self, own: str, source: str) -> list[list[str]]:
        """Variables for the sums of a block; where they go on, with what is there so far."""
        f, plan, element = self.f, self.plan, self.element
        made = [
            [f.var(element.vector, "zeroinitializer") for _ in range(plan.vectors)]
            for _ in range(plan.rows)
        ]
        if self.parted:
            with f.when(f(f"icmp ne i64 {source}, 0")):
                for i, row in enumerate(made):
                    for j, total in enumerate(row):
                        place = at(f, element.kind, own, i * self.step + j * element.lanes)
                        f.set(element.vector, total, element.get(f, place))
        return made

    def _step(self, totals: list[list[str]], x: str, w: str, shift: str, tap: str) -> None:
        """One tap of one channel, for all rows and vectors of a block."""
        f, element = self.f, self.element
        start = at(f, element.kind, x, shift)
        vectors = [
            element.get(f, at(f, element.kind, start, j * element.lanes))
            for j in range(self.plan.vectors)
        ]
        first = at(f, element.kind, w, tap)
        for i, row in enumerate(totals):
            place = at(f, element.kind, first, i * self.problem.weights[1])
            factor = element.spread(f, element.get(f, place, 1))
            for vector, total in zip(vectors, row, strict=True):
                so_far = f.get(element.vector, total)
                f.set(element.vector, total, element.madd(f, vector, factor, so_far))

    # --- results --------------------------------------------------------------------------------

    def _copy_out(self, block: str, sums: str) -> None:
        """The sums that stand for results, row by row, with the bias, to the store."""
        f, problem, element = self.f, self.problem, self.element
        axes, panel = problem.axes, self.plan.panel
        counted, channel = self._channels(block)
        stops = []
        for axis, start, tile in zip(axes, self.starts, panel.tile, strict=True):
            left = f(f"sub i64 {axis.result}, {mul(f, start, axis.spread)}")
            stops.append(least(f, left, str(tile * axis.spread)) if axis.count > tile else left)
        with f.loop(f(f"sub i64 {counted}, {channel}"), str(self.plan.rows)) as row:
            own = add(f, channel, row)
            out = add(f, mul(f, self.group, problem.results), own)
            bias = None
            if self.bias is not None:
                bias = element.load(f, at(f, self.memory, self.bias, out), 1)
            with nest(f, stops[:-1]) as leading:
                which, place, flat = "0", mul(f, row, self.step), "0"
                for axis, start, stride, i in zip(
                    axes, self.starts, panel.strides, leading, strict=False
                ):
                    m, part = divide(f, i, axis.spread)
                    which = add(f, mul(f, which, axis.spread), part)
                    place = add(f, place, mul(f, m, stride))
                    y = add(f, mul(f, start, axis.spread), i)
                    flat = add(f, mul(f, flat, axis.result), y)
                last = axes[-1]
                place = add(f, place, mul(f, which, last.spread * self.plan.room))
                begin = mul(f, self.starts[-1], last.spread)
                flat = add(f, mul(f, flat, last.result), begin)
                base = at(f, element.kind, sums, place)
                lanes = element.row_lanes(last.result) if last.spread <= 2 else 1
                ys = [
                    add(f, mul(f, start, axis.spread), i)
                    for axis, start, i in zip(axes, self.starts, leading, strict=False)
                ]
                with f.loop("0", stops[-1], str(lanes)) as i:
                    value = self._results(base, i, lanes)
                    if self.exact:
                        left = f(f"sub i64 {stops[-1]}, {i}")
                        call = self._exact_call(own, [*ys, add(f, begin, i)])
                        count = least(f, left, str(lanes))
                        value = summed_again(f, element, value, lanes, count, call)
                    if bias is not None:
                        value = element.add(f, value, element.spread(f, bias, lanes), lanes)
                    value = element.rounded(f, value, lanes)
                    left = f(f"sub i64 {stops[-1]}, {i}")
                    mask = inside(f, "0", left, lanes) if lanes > 1 else None
                    self.store.put(f, value, lanes, (self.n, out, add(f, flat, i)), mask)

    def _exact_call(self, channel: str, places: list[str]) -> str:
        """The call that sums results of a channel once more, those from a place on."""
        f, (per_group, per_result, _) = self.f, self.problem.weights
        place = add(f, mul(f, self.group, per_group), mul(f, channel, per_result))
        weight = at(f, self.element.kind, self.weight, place)
        given = "".join(f", i64 {place}" for place in places)
        return f"@{self.exact}(ptr {self.source}, ptr {weight}{given}"

    def _results(self, base: str, i: str, lanes: int) -> str:
        """Sums that are neighbours in the result, of which each class has its own row."""
        f, element, room = self.f, self.element, self.plan.room
        spread = self.problem.axes[-1].spread
        m, which = divide(f, i, spread)
        if spread == 1 or lanes == 1:
            place = add(f, m, mul(f, which, room))
            return element.get(f, at(f, element.kind, base, place), lanes)
        parts = [
            element.get(f, at(f, element.kind, base, m, number * room), lanes)
            for number in range(2)
        ]
        whole = vector_type(element.kind, lanes)
        order = ", ".join(f"i32 {i // 2 + i % 2 * lanes}" for i in range(lanes))
        return f(f"shufflevector {whole} {parts[0]}, {whole} {parts[1]}, <{lanes} x i32> <{order}>")
