"""How the gradient of a weight is cut into items, tiles and blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft.base.dim_algebra import dim_max
from weft.base.dims import ceil_div, has_dims
from weft.base.shapes import Shape
from weft.codegen.conv.element import Element
from weft.codegen.conv.geometry import Axis, Panel
from weft.codegen.conv.plan import ITEMS, WORTH, tiled
from weft.codegen.conv.sized import run_tile
from weft.codegen.machine import Machine
from weft.codegen.sizes import RunSizes

__all__ = ["Pieces", "WeightPlan", "WeightProblem", "plan_weight"]

#: The minimum share of used lanes for lanes to run across the outputs.
USED = 0.7


@dataclass(frozen=True, slots=True)
class WeightProblem:
    """result[g, o, c, tap] = the sum over images and positions of given[…] · source[…]."""

    batch: int
    groups: int
    outputs: int  # in each group
    channels: int  # in each group
    axes: tuple[Axis, ...]

    @property
    def image(self) -> int:
        """Elements of one channel of the source."""
        return math.prod(axis.size for axis in self.axes)

    @property
    def volume(self) -> int:
        """Elements of one channel of the output's gradient."""
        return math.prod(axis.result for axis in self.axes)

    @property
    def taps(self) -> int:
        return math.prod(axis.kernel for axis in self.axes)


@dataclass(frozen=True, slots=True)
class Pieces:
    """Taps that are summed together, for all repetitions of the same pattern.

    pattern  their offsets in the panel, relative to the first
    starts   for each repetition: the offset of the first one in the panel, and in the kernel
    """

    pattern: Shape
    starts: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class WeightPlan:
    """across    whether lanes run across outputs; else along positions
    outputs   of a block: vectors of them, or single ones
    channels  of a block
    pieces    into which the taps are cut
    part      channels of an item
    longest   the most elements that a plane of the panel has in any run
    chunks    into which the units (tiles of images) are cut: each sums on its own
    """

    panel: Panel
    across: bool
    outputs: int
    channels: int
    pieces: tuple[Pieces, ...]
    part: int
    longest: int
    chunks: int

    def width(self, element: Element) -> int:
        """Elements of a partial sum: one for each output of a block, or one vector for each."""
        return self.outputs * element.lanes

    def blocks(self, problem: WeightProblem, element: Element) -> int:
        """Of outputs, in each group."""
        each = self.outputs * (element.lanes if self.across else 1)
        return -(-problem.outputs // each)

    def parts(self, problem: WeightProblem) -> int:
        """Of channels, in each group."""
        return -(-problem.channels // self.part)

    def room(self, problem: WeightProblem, element: Element) -> int:
        """Elements of the partial sums of one item."""
        return self.part * problem.taps * self.width(element)

    def given_panel(self) -> Panel:
        """A panel of the output's gradient: with the source's rows, and zeros where there is no
        position."""
        axes = tuple(
            Axis(axis.result, axis.result, 1, (((0, 0), (0, axis.reach if number else 0)),), 1)
            for number, axis in enumerate(self.panel.axes)
        )
        return Panel(axes, self.panel.tile)

    def apart(self, element: Element) -> int:
        """Distance from one output in that panel to the next, in whole vectors."""
        size = dim_max(self.given_panel().channel, self.panel.positions)
        return ceil_div(size, element.lanes) * element.lanes

    @property
    def varies(self) -> bool:
        """Whether the run tells how large tiles are."""
        return has_dims(self.panel.tile)

    def panel_room(self, element: Element) -> int:
        """Elements of the source's panel, including what whole vectors access beyond it."""
        if self.varies:
            planes = math.prod(len(axis.planes) for axis in self.panel.axes)
            return (self.part + 1) * self.longest * planes + 3 * element.lanes
        (taps,) = self.panel.taps()
        spare = max(place for place, _ in taps) + 3 * element.lanes
        return self.part * self.panel.channel + spare

    def given_room(self, element: Element) -> int:
        """Elements of the output's gradient, in the form that is multiplied."""
        if self.across:
            size = self.longest if self.varies else math.prod(self.panel.tile)
            return (size + element.lanes) * self.width(element)
        apart = self.apart(element)
        if self.varies:
            apart = ceil_div(self.longest, element.lanes) * element.lanes
        return self.outputs * apart + element.lanes

    def units(self, problem: WeightProblem) -> int:
        return problem.batch * math.prod(self.panel.tiles)


def _pieces(taps: list[tuple[int, int]], length: int) -> tuple[Pieces, ...]:
    found: dict[Shape, list[tuple[int, int]]] = {}
    for i in range(0, len(taps), length):
        piece = taps[i : i + length]
        first = piece[0][0]
        found.setdefault(tuple(place - first for place, _ in piece), []).append(piece[0])
    return tuple(Pieces(pattern, tuple(starts)) for pattern, starts in found.items())


def _block(
    panel: Panel, outputs: int, channels: int, most: int
) -> tuple[float, int, tuple[Pieces, ...]]:
    """The time of a position, channels of a block and pieces of taps, for blocks of `outputs`."""
    (taps,) = panel.taps()
    best: tuple[float, int, tuple[Pieces, ...]] | None = None
    for length in range(1, min(most, len(taps)) + 1):
        pieces = _pieces(taps, length)
        if len(pieces) > 2:
            continue
        together = min(most // length, channels)
        blocks = -(-channels // together)
        time = 0.03 * len(pieces)
        for piece in pieces:
            sums = len(piece.pattern) * together
            step = max(sums * outputs, sums + outputs, 4) + 1.5
            time += blocks * len(piece.starts) * step
        if best is None or time < best[0]:
            best = (time, together, pieces)
    assert best is not None
    return best


def plan_weight(
    problem: WeightProblem, element: Element, machine: Machine, sizes: RunSizes
) -> WeightPlan:
    lanes = element.lanes
    most = machine.caches.second // 8  # bytes of the panels of each side
    across = problem.outputs / (-(-problem.outputs // lanes) * lanes) >= USED
    rows = -(-problem.outputs // lanes) if across else problem.outputs

    def fits(tile: Shape) -> bool:
        panel = Panel(problem.axes, tile)
        given = 2 * lanes * math.prod(tile) if across else 4 * panel.positions
        return (
            panel.channel * element.width * min(problem.channels, 8) <= most
            and given * element.width <= most
        )

    if any(axis.varies for axis in problem.axes):
        planes = math.prod(len(axis.planes) for axis in problem.axes)
        of_source, of_given = planes * min(problem.channels, 8), 2 * lanes if across else 4
        limit = most // element.width // max(of_source, of_given)
        tile, longest = run_tile(problem.axes, limit, 2 * lanes, sizes)
        panel = Panel(problem.axes, tile)
        channel = longest * planes
    else:
        panel = Panel(problem.axes, tiled(problem.axes, fits, 2 * lanes))
        longest, channel = panel.plane, panel.channel
    room = machine.registers - 2
    best = None
    for outputs in range(1, min(rows, 3 if across else 6) + 1):
        sums = max((room - outputs) // outputs, 1)
        if machine.is_wasm:
            sums = machine.rows_beside(outputs)
        time, channels, pieces = _block(panel, outputs, problem.channels, sums)
        whole = time * -(-rows // outputs)
        if best is None or whole < best[0]:
            best = (whole, outputs, channels, pieces)
    assert best is not None
    time, outputs, channels, pieces = best
    part = max(most // (channel * element.width), 1)
    blocks = -(-problem.channels // channels)
    fit = max(min(part // channels, blocks), 1)
    part = -(-blocks // -(-blocks // fit)) * channels  # in equal parts of whole blocks
    plan = WeightPlan(panel, across, outputs, channels, pieces, part, longest, 1)
    items = machine.parts(ITEMS) if machine.has_many_cores else ITEMS
    apart = problem.groups * plan.blocks(problem, element) * plan.parts(problem)
    units = plan.units(problem)
    least = WORTH if machine.has_many_cores else 3 * WORTH
    worth = time * problem.groups / (least * (1 if across else lanes))
    positions = problem.batch * math.prod(axis.count for axis in problem.axes)
    partial = apart * plan.room(problem, element) * element.width
    fit = max(machine.caches.last // 4 // partial, 1)  # all partial sums stay in the last cache
    chunks: int
    if has_dims((units,)):
        most = min(-(-items // apart), fit)
        each = max(1, round(worth * 2**20))
        text = f"min({most}, {units}, {each * positions} // {2**20} + 1)"
        chunks = sizes.let(text, high=most)
    else:
        chunks = min(-(-items // apart), units, int(worth * positions) + 1, fit)
    return WeightPlan(panel, across, outputs, channels, pieces, part, longest, chunks)
