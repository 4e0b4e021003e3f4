"""How a convolution is cut: into tiles, items of work, and blocks that fit in registers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft.base.dims import ceil_div, has_dims
from weft.base.shapes import Shape
from weft.codegen.conv.element import Element
from weft.codegen.conv.geometry import Axis, Panel
from weft.codegen.conv.sized import run_tile
from weft.codegen.machine import Caches, Machine
from weft.codegen.sizes import RunSizes

__all__ = ["CorePlan", "Problem", "blocking", "plan_core", "tiled"]

#: Enough items for any useful number of threads; fewer if an item would take less than this many
#: nanoseconds.
ITEMS, WORTH = 16, 20_000
#: Where each instruction counts: as many channels make a loop over them cheaper than one over taps,
#: whose places come from a table.
CHANNELS = 8


@dataclass(frozen=True, slots=True)
class Problem:
    """result[n, g, b, …] = the sum over r and taps of weight[…] · source[n, g, r, …].

    The weight of (g, b, r, tap) lies at g * weights[0] + b * weights[1] + r * weights[2] + tap.
    """

    batch: int
    groups: int
    sources: int  # channels of the source, in each group
    results: int  # channels of the result, in each group
    axes: tuple[Axis, ...]
    weights: tuple[int, int, int]
    transposed: bool = False  # no padding: without a source element there is no term

    @property
    def volume(self) -> int:
        """Elements of one channel of the result."""
        return math.prod(axis.result for axis in self.axes)


@dataclass(frozen=True, slots=True)
class CorePlan:
    """
    panel    one channel of a tile
    sources  channels of the source that a panel holds at once
    results  channels of the result that an item computes, and the most in any run
    rows     channels of the result whose sums are in registers together
    vectors  of positions, for each of them
    """

    panel: Panel
    sources: int
    results: int
    most: int
    rows: int
    vectors: int
    room: int  # positions of a tile, rounded up to whole blocks
    longest: int  # the most positions of any run, rounded up
    panel_room: int  # elements of a panel, including what whole vectors access beyond it
    spare: int  # elements of a vector
    apart: int  # elements from a channel of a panel to the next
    by_rows: bool  # whether blocks lie in rows; else in all positions, gaps included
    taps_outside: bool  # of the loop over channels, which then is the innermost one

    def chunks(self, problem: Problem) -> int:
        """How many items share the results of a group."""
        return -(-problem.results // self.results)

    def sums_room(self, problem: Problem) -> int:
        """Elements of the sums that an item keeps: of a block, or of all its results."""
        kept = self.rows
        if self.sources < problem.sources:
            kept = -(-self.most // self.rows) * self.rows
        classes = math.prod(axis.spread for axis in self.panel.axes)
        return kept * self.longest * classes + 2 * self.spare

    def items(self, problem: Problem) -> int:
        tiles = math.prod(self.panel.tiles)
        return problem.batch * problem.groups * tiles * self.chunks(problem)


def panel_bytes(caches: Caches) -> int:
    """Bytes of a panel; it stays in the second-level cache with the sums of its item."""
    return caches.second * 5 // 32


def sums_bytes(caches: Caches) -> int:
    """Bytes of the sums of an item."""
    return caches.second * 3 // 32


@dataclass(frozen=True, slots=True)
class Lines:
    """What the blocks of a tile cover: rows of positions with gaps between them.

    count, row   rows, and the positions of each
    all          positions from the first to the last
    whole        whether each position must be in one block only
    """

    count: int
    row: int
    all: int
    whole: bool = False

    def blocks(self, lanes: int, columns: int, *, by_rows: bool) -> int | None:
        """How many blocks of some vectors there are; None if they do not fit."""
        if not by_rows:
            return -(-self.all // (columns * lanes))
        if self.whole and self.row % (columns * lanes):
            return None
        return self.count * -(-self.row // (columns * lanes))


def blocking(results: int, lines: Lines, lanes: int, machine: Machine) -> tuple[int, int, bool]:
    """Channels and vectors of a block that minimize the total time, and whether blocks begin with
    rows.

    A step of a block is rows × columns multiplications, plus loads of both sides. If blocks do not
    divide the whole, some work is repeated or wasted.
    """
    best = (math.inf, 1, 1, False)
    fuses = machine.fuses()
    vectors = -(-lines.all // lanes)
    for rows in range(1, min(results, 14) + 1):
        for columns in range(1, min(vectors, 8) + 1):
            if not machine.holds(rows, columns):
                continue
            step = max(rows * columns, columns + rows / 2, 4) + 1.0
            if not fuses:  # loads and the loop are instructions of their own, too
                step = 2 * rows * columns + rows + columns + 4
            for by_rows in (False,) if fuses else (False, True):
                blocks = lines.blocks(lanes, columns, by_rows=by_rows)
                if blocks is not None:
                    blocks *= -(-results // rows)
                    best = min(best, (blocks * step, -rows, columns, by_rows))
    return -int(best[1]), best[2], best[3]


def tiled(axes: tuple[Axis, ...], fits: object, least: int) -> Shape:
    """The largest tile that fits: leading axes are cut first, and none below a useful size."""
    assert callable(fits)
    tile = [max(axis.count, 1) for axis in axes]
    limits = [1] * (len(axes) - 1) + [min(least, tile[-1])]
    for number, axis in enumerate(axes):
        parts = 1
        while not fits(tuple(tile)) and tile[number] > limits[number]:
            parts += 1
            tile[number] = max(-(-axis.count // parts), limits[number])
    return tuple(tile)


def plan_core(
    problem: Problem, element: Element, machine: Machine, sizes: RunSizes | None = None
) -> CorePlan:
    """`sizes` of the run, where the batch is one."""
    axes = problem.axes
    if any(axis.varies for axis in axes) and sizes is not None:
        return _plan_sized(problem, element, machine, sizes)
    panel_most, sums_most = panel_bytes(machine.caches), sums_bytes(machine.caches)

    def fits(tile: Shape) -> bool:
        panel = Panel(axes, tile)
        sums = panel.positions * math.prod(axis.spread for axis in axes)
        return (
            panel.channel * problem.sources * element.width <= panel_most
            and sums * 8 * element.width <= sums_most
        )

    tile = tiled(axes, fits, 4 * element.lanes)
    taps = math.prod(axis.kernel for axis in axes)
    each = problem.sources * taps / element.lanes / machine.ghz  # ns of a position of one result
    varies = has_dims((problem.batch,))
    most_items = machine.parts(ITEMS)
    spare = problem.batch * problem.groups

    def few(panel: Panel, results: int) -> bool:
        if varies:  # the run decides
            return False
        items = spare * math.prod(panel.tiles) * -(-problem.results // results)
        return items < most_items and panel.positions * each * results > 2 * WORTH

    # For more items, first reduce the results of each, which then copy the same tile; then the
    # tiles.
    results = problem.results
    while few(Panel(axes, tile), results) and results >= 4 * element.lanes:
        results = -(-results // 2)
    for number in range(len(axes)):
        limit = 4 * element.lanes if number == len(axes) - 1 else 4
        while few(Panel(axes, tile), results) and tile[number] > limit:
            tile = (*tile[:number], -(-tile[number] // 2), *tile[number + 1 :])
    panel = Panel(axes, tile)
    outside = not machine.fuses() and problem.sources >= CHANNELS
    channel = panel.channel
    if outside and channel * element.width % (machine.caches.way // 4) == 0:
        channel += 64 // element.width  # not all channels compete for the same lines
    sources = max(min(panel_most // max(channel * element.width, 1), problem.sources), 1)
    # Where channels are summed in parts, no position may be summed twice.
    parted = sources < problem.sources
    lines = Lines(math.prod(tile[:-1]), tile[-1], panel.positions, parted)
    rows, columns, by_rows = blocking(results, lines, element.lanes, machine)
    block = columns * element.lanes
    room = -(-panel.positions // block) * block
    if by_rows:
        room = panel.positions - tile[-1] + -(-tile[-1] // block) * block

    results = _whole(problem, rows, results)
    if parted:  # the sums of all of an item's results are kept between panels
        classes = math.prod(axis.spread for axis in axes)
        most = max(sums_most // (room * classes * element.width), 1)
        results = min(results, max(most // rows * rows, rows))
    most = results
    if varies and sizes is not None:
        results = _few_items(problem, panel, element, (rows, results), each, sizes)
    taps_at = [place for taps in panel.taps() for place, _ in taps]
    reads = (sources - 1) * channel + max(taps_at, default=0) + room
    panel_room = max(reads, sources * channel) + element.lanes
    return CorePlan(
        *(panel, sources, results, most, rows, columns, room, room, panel_room, element.lanes),
        *(channel, by_rows, outside),
    )


def _whole(problem: Problem, rows: int, count: int) -> int:
    """Whole blocks: the last one of an item must not reach into the next item."""
    return count if count >= problem.results else -(-count // rows) * rows


def _few_items(
    problem: Problem,
    panel: Panel,
    element: Element,
    results: tuple[int, int],
    each: float,
    sizes: RunSizes,
) -> int:
    """The results of an item, which the run decides: fewer if there are few items. `results` has
    those of a block and of an item."""
    rows, most = results
    positions = panel.positions
    longest = math.inf if has_dims((positions,)) else positions
    chosen = [most]
    while chosen[-1] >= 4 * element.lanes and longest * each * chosen[-1] > 2 * WORTH:
        chosen.append(_whole(problem, rows, -(-chosen[-1] // 2)))
        if chosen[-1] == chosen[-2]:
            chosen.pop()
            break
    text = str(chosen.pop())
    shares = problem.batch * problem.groups * math.prod(panel.tiles)
    for count in reversed(chosen):
        if has_dims((positions,)):
            few = round(2 * WORTH / (each * count))
            text = f"({text} if {positions} > {few} else {count})"
        text = f"({count} if {shares * -(-problem.results // count)} >= {ITEMS} else {text})"
    return sizes.let(text, high=most) if chosen else most


def _plan_sized(problem: Problem, element: Element, machine: Machine, sizes: RunSizes) -> CorePlan:
    """The same where the run tells the sizes of axes: each cuts tiles of its own."""
    axes, lanes = problem.axes, element.lanes
    classes = math.prod(axis.spread for axis in axes)
    planes = math.prod(len(axis.planes) for axis in axes)
    panel_most = panel_bytes(machine.caches) // element.width
    sums_most = sums_bytes(machine.caches) // element.width
    most = min(panel_most // (problem.sources * planes), sums_most // (8 * classes))
    tile, plane = run_tile(axes, most, 2 * lanes, sizes)
    panel = Panel(axes, tile)
    longest = ceil_div(plane, lanes) * lanes
    lines = Lines(1, longest, longest)
    rows, columns, _ = blocking(problem.results, lines, lanes, machine)
    room = ceil_div(panel.positions, lanes) * lanes
    sources = max(min(panel_most // (plane * planes), problem.sources), 1)
    results = problem.results
    if sources < problem.sources:  # the sums of all of an item's results are kept between panels
        kept = max(sums_most // (longest * classes), 1)
        results = min(results, max(kept // rows * rows, rows))
    each = problem.sources * math.prod(axis.kernel for axis in axes) / lanes / machine.ghz
    chosen = _few_items(problem, panel, element, (rows, results), each, sizes)
    panel_room = sources * plane * planes + longest + lanes
    outside = not machine.fuses() and problem.sources >= CHANNELS
    return CorePlan(
        *(panel, sources, chosen, results, rows, columns, room, longest, panel_room, lanes),
        *(panel.channel, False, outside),
    )
