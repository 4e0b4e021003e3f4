"""A layered graph layout.

Each box goes into a layer below all boxes with edges to it. Long edges get a bend in each layer
that they cross. A few sweeps move each box close to its neighbours, and each layer is spread out so
that nothing overlaps.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from weft.inspect.view.pieces import Key

__all__ = ["Layout", "Point", "Size", "layered"]

GAP_X, GAP_Y, BEND = 26.0, 38.0, 18.0
SWEEPS = 4

Size = tuple[float, float]
Point = tuple[float, float]


@dataclass(eq=False)
class Layout:
    """
    sizes    the sizes of the boxes
    x        the center of each box
    layer    the layer of each box, from the top
    bends    the x of each edge in the layers between its ends, from start to end
    bands    the top and bottom of each layer
    size     the size of the whole
    """

    sizes: Mapping[Key, Size]
    x: Mapping[Key, float] = field(default_factory=dict)
    layer: Mapping[Key, int] = field(default_factory=dict)
    bends: Mapping[tuple[Key, Key], list[float]] = field(default_factory=dict)
    bands: Sequence[tuple[float, float]] = ()
    size: Size = (0.0, 0.0)

    def center(self, key: Key) -> Point:
        """The center of a box."""
        return self.x[key], sum(self.bands[self.layer[key]]) / 2

    def points(self, start: Key, end: Key) -> list[Point]:
        """The points of an edge. It is vertical inside a layer, so that it crosses no tall box."""
        first, last = self.layer[start], self.layer[end]
        step, down = (1, 1) if first < last else (-1, 0)
        found = [(self.x[start], self.bands[first][down])]
        for layer, x in zip(range(first + step, last, step), self.bends[start, end], strict=True):
            found += [(x, self.bands[layer][1 - down]), (x, self.bands[layer][down])]
        return [*found, (self.x[end], self.bands[last][1 - down])]


def layered(sizes: Mapping[Key, Size], edges: Sequence[tuple[Key, Key]]) -> Layout:
    """The layout of boxes with these sizes; edges lead downwards.

    Ports are above ("in") and below ("out") all boxes. Boxes of size 0 take no room.
    """
    if not sizes:
        return Layout(sizes)
    keys = list(sizes)
    number = {key: i for i, key in enumerate(keys)}
    joined = tuple([(number[a], number[b]) for a, b in edges])
    placed = _placed(tuple([key[0] for key in keys]), tuple(sizes.values()), joined)
    return Layout(
        sizes,
        dict(zip(keys, placed.x, strict=False)),
        dict(zip(keys, placed.layers, strict=True)),
        {
            edge: [placed.x[i] for i in bends]
            for edge, bends in zip(edges, placed.bends, strict=True)
        },
        placed.bands,
        placed.size,
    )


class _Placed(NamedTuple):
    """`bends` are indices into `x`, after those of the boxes."""

    x: list[float]
    layers: list[int]
    bends: list[range]
    bands: list[tuple[float, float]]
    size: Size


@lru_cache(1024)  # the layers of a model have equal layouts
def _placed(
    kinds: tuple[str, ...], sizes: tuple[Size, ...], edges: tuple[tuple[int, int], ...]
) -> _Placed:
    place = _places(kinds, edges)
    forward = [(a, b) if place[a] < place[b] else (b, a) for a, b in edges]
    rank = _ranks(kinds, sizes, forward, place)
    widths = [size[0] + GAP_X if size[0] else BEND for size in sizes]
    layers: list[list[int]] = [[] for _ in range(max(rank) + 1)]
    for box, level in enumerate(rank):
        layers[level].append(box)
    above: list[list[int]] = [[] for _ in sizes]
    below: list[list[int]] = [[] for _ in sizes]
    chains: list[range] = []
    for start, end in forward:
        chain = range(len(widths), len(widths) + rank[end] - rank[start] - 1)
        for level, bend in enumerate(chain, rank[start] + 1):
            widths.append(BEND)
            layers[level].append(bend)
            above.append([])
            below.append([])
        for a, b in itertools.pairwise([start, *chain, end]):
            below[a].append(b)
            above[b].append(a)
        chains.append(chain)
    bands: list[tuple[float, float]] = []
    top = 0.0
    for layer in layers:
        height = max((sizes[box][1] for box in layer if box < len(sizes)), default=0.0)
        bands.append((top, top + height))
        top += height + (GAP_Y if height else GAP_Y / 2)  # less space around a layer of ports
    x = _columns(layers, above, below, widths)
    left = min([*x, *(x[box] - width / 2 for box, (width, _) in enumerate(sizes))])
    right = max([*x, *(x[box] + width / 2 for box, (width, _) in enumerate(sizes))])
    bends = [
        c if way == edge else c[::-1] for c, way, edge in zip(chains, forward, edges, strict=True)
    ]
    return _Placed([at - left for at in x], rank, bends, bands, (right - left, bands[-1][1]))


def _places(kinds: Sequence[str], edges: Sequence[tuple[int, int]]) -> list[int]:
    """The place of each box in a topological order, between the ports.

    Boxes are given in the order of their first ops, which a box of several ops may contradict. Only
    an edge that closes a cycle leads upwards.
    """
    after: dict[int, list[int]] = defaultdict(list)
    waits = [0] * len(kinds)
    for start, end in edges:
        if start != end:
            after[start].append(end)
            waits[end] += 1
    side = {"in": 0, "out": 2}
    # Where all that is left is in cycles, the first box goes first.
    left = {i: (side.get(kind, 1), i) for i, kind in enumerate(kinds)}
    ready = [left[i] for i in left if not waits[i]]
    heapq.heapify(ready)
    place = [0] * len(kinds)
    while left:
        _, box = heapq.heappop(ready) if ready else min(left.values())
        if left.pop(box, None) is None:
            continue
        place[box] = len(kinds) - len(left)
        for end in after[box]:
            waits[end] -= 1
            if not waits[end] and end in left:
                heapq.heappush(ready, left[end])
    return place


def _ranks(
    kinds: Sequence[str],
    sizes: Sequence[Size],
    edges: Sequence[tuple[int, int]],
    place: Sequence[int],
) -> list[int]:
    """The layer of each box: one below the lowest box with an edge to it.

    A box without incoming edges is right above its first user, not at the very top. So is a box of
    size 0, which does not move others.
    """
    rank = [1 if "in" in kinds and kind != "in" else 0 for kind in kinds]
    after: dict[int, list[int]] = defaultdict(list)
    for start, end in edges:
        after[start].append(end)
    unseen = {i for i, kind in enumerate(kinds) if kind == "item" and not sizes[i][0]}
    for start in sorted(range(len(kinds)), key=place.__getitem__):
        for end in after[start] if start not in unseen else ():
            rank[end] = max(rank[end], rank[start] + 1)
    ends = {end for start, end in edges if start not in unseen}
    for start in sorted(range(len(kinds)), key=lambda i: i in unseen):
        if start not in ends and after[start] and kinds[start] != "in":
            first = min(rank[end] for end in after[start]) - 1
            rank[start] = first if start in unseen else max(rank[start], first)
    last = max((r for r, kind in zip(rank, kinds, strict=True) if kind != "out"), default=0) + 1
    rank = [last if kind == "out" else r for r, kind in zip(rank, kinds, strict=True)]
    return [r - min(rank) for r in rank]


def _columns(
    layers: list[list[int]],
    above: list[list[int]],
    below: list[list[int]],
    widths: Sequence[float],
) -> list[float]:
    """The x of each box: sweeps down and up, each to the mean of the neighbours."""
    x = [0.0] * len(widths)
    for layer in layers:
        _spread(layer, [float(i) for i in range(len(layer))], x, widths)
    for sweep in range(2 * SWEEPS):
        down = sweep % 2 == 0
        near = above if down else below
        for layer in layers if down else layers[::-1]:
            wished = [
                sum([x[other] for other in near[box]]) / len(near[box]) if near[box] else x[box]
                for box in layer
            ]
            if len(layer) == 1:
                x[layer[0]] = wished[0]
                continue
            order = sorted(range(len(layer)), key=wished.__getitem__)
            layer[:] = [layer[i] for i in order]
            _spread(layer, [wished[i] for i in order], x, widths)
    return x


def _spread(layer: list[int], wished: list[float], x: list[float], widths: Sequence[float]) -> None:
    """Place boxes in this order as close as possible to their wished x, without overlaps.

    Boxes that would overlap form a block, which is placed at the mean wish of its members.
    """
    blocks: list[tuple[float, int, float, list[int]]] = []  # left edge, count, width, members
    for box, wish in zip(layer, wished, strict=True):
        width = widths[box]
        place, count, members = wish - width / 2, 1, [box]
        while blocks and blocks[-1][0] + blocks[-1][2] > place:
            left, before, wide, others = blocks.pop()
            place = (left * before + (place - wide) * count) / (before + count)
            count, width, members = before + count, wide + width, others + members
        blocks.append((place, count, width, members))
    for place, _, _, members in blocks:
        for box in members:
            x[box] = place + widths[box] / 2
            place += widths[box]
