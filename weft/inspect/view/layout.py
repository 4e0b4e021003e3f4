"""A layered layout for pictures made without a browser (the page itself lays out with dagre).

Boxes go into layers, each below all that lead to it; long edges get a place to bend in each layer
they cross; a few sweeps put each box near its neighbours; then each layer is spread out so that
nothing overlaps.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence

from weft.inspect.view.pieces import Key

__all__ = ["Layout", "layered"]

GAP_X, GAP_Y, BEND = 26.0, 38.0, 10.0
SWEEPS = 6

Size = tuple[float, float]
Point = tuple[float, float]


class Layout:
    """
    sizes     of the boxes
    centers   of the boxes
    bends     of each edge: the points between its ends
    size      of the whole
    """

    def __init__(self, sizes: Mapping[Key, Size]) -> None:
        self.sizes = sizes
        self.centers: dict[Key, Point] = {}
        self.bends: dict[tuple[Key, Key], list[Point]] = {}
        self.size: Size = 0.0, 0.0


def layered(sizes: Mapping[Key, Size], edges: Sequence[tuple[Key, Key]]) -> Layout:
    """Where boxes of these sizes stand, so that edges lead downwards.

    Ports, which come in at the top and go out at the bottom, are above and below all boxes.
    """
    made = Layout(sizes)
    if not sizes:
        return made
    keys = list(sizes)
    number = {key: i for i, key in enumerate(keys)}
    # Boxes come in an order in which they can run: an edge against it closes a cycle.
    forward = [_downwards(number[a], number[b], a, b) for a, b in edges]
    rank = _ranks(keys, forward)
    boxes = [sizes[key] for key in keys]
    chains: list[list[int]] = []
    links: list[tuple[int, int]] = []
    for start, end in forward:
        chain = [start]
        for level in range(rank[start] + 1, rank[end]):
            boxes.append((BEND, 0.0))
            rank.append(level)
            chain.append(len(boxes) - 1)
        chain.append(end)
        chains.append(chain)
        links += itertools.pairwise(chain)
    layers: list[list[int]] = [[] for _ in range(max(rank) + 1)]
    for box, level in enumerate(rank):
        layers[level].append(box)
    above: list[list[int]] = [[] for _ in boxes]
    below: list[list[int]] = [[] for _ in boxes]
    for start, end in links:
        below[start].append(end)
        above[end].append(start)
    x = _columns(layers, above, below, boxes)
    left = min(x[box] - boxes[box][0] / 2 for box in range(len(boxes)))
    y: dict[int, float] = {}
    band: dict[int, tuple[float, float]] = {}  # where the layer of a box begins and ends
    top = 0.0
    for layer in layers:
        height = max((boxes[box][1] for box in layer), default=0.0)
        for box in layer:
            y[box] = top + height / 2
            band[box] = top, top + height
        top += height + (GAP_Y if height else GAP_Y / 2)  # a layer of ports is no layer of boxes
    points = [(x[box] - left, y[box]) for box in range(len(boxes))]
    width = max(points[box][0] + boxes[box][0] / 2 for box in range(len(boxes)))
    for edge, chain, (start, _) in zip(edges, chains, forward, strict=True):
        # Straight through a layer, and bent between layers: so no edge crosses a tall box.
        inner = [(points[chain[0]][0], band[chain[0]][1])]
        inner += [(points[box][0], side) for box in chain[1:-1] for side in band[box]]
        inner.append((points[chain[-1]][0], band[chain[-1]][0]))
        made.bends[edge] = inner if start == number[edge[0]] else inner[::-1]
    made.centers = dict(zip(keys, points, strict=False))
    made.size = width, top - GAP_Y
    return made


def _downwards(start: int, end: int, a: Key, b: Key) -> tuple[int, int]:
    against = start > end and a[0] != "in" and b[0] != "out"
    return (end, start) if against else (start, end)


def _ranks(keys: Sequence[Key], edges: Sequence[tuple[int, int]]) -> list[int]:
    """The layer of each box: one below the last that leads to it."""
    ports = any(key[0] == "in" for key in keys)
    rank = [1 if ports and key[0] != "in" else 0 for key in keys]
    after: dict[int, list[int]] = defaultdict(list)
    for start, end in edges:
        after[start].append(end)
    order = sorted(range(len(keys)), key=lambda i: (keys[i][0] != "in", i))
    for start in order:
        for end in after[start]:
            rank[end] = max(rank[end], rank[start] + 1)
    # What begins a chain stands right above its first user, not at the very top.
    ends = {end for _, end in edges}
    for start in range(len(keys)):
        if start not in ends and after[start] and keys[start][0] != "in":
            rank[start] = max(rank[start], min(rank[end] for end in after[start]) - 1)
    last = max(rank[i] for i, key in enumerate(keys) if key[0] != "out") + 1
    return [last if key[0] == "out" else r for key, r in zip(keys, rank, strict=True)]


def _columns(
    layers: list[list[int]], above: list[list[int]], below: list[list[int]], sizes: Sequence[Size]
) -> list[float]:
    """The x of each box: sweeps down and up by the mean of the neighbours."""
    x = [0.0] * len(sizes)
    for layer in layers:
        _spread(layer, [float(i) for i in range(len(layer))], x, sizes)
    for sweep in range(2 * SWEEPS):
        down = sweep % 2 == 0
        near = above if down else below
        for layer in layers if down else layers[::-1]:
            wished = [
                sum(x[other] for other in near[box]) / len(near[box]) if near[box] else x[box]
                for box in layer
            ]
            order = sorted(range(len(layer)), key=lambda i: wished[i])
            layer[:] = [layer[i] for i in order]
            _spread(layer, [wished[i] for i in order], x, sizes)
    return x


def _spread(layer: list[int], wished: list[float], x: list[float], sizes: Sequence[Size]) -> None:
    """As near to the wished places as can be, in this order, without overlapping.

    Boxes that would overlap form a block, which stands where its members wish on average.
    """
    blocks: list[tuple[float, int, float, list[tuple[int, float]]]] = []  # place, count, width, …
    for box, wish in zip(layer, wished, strict=True):
        width = sizes[box][0] + GAP_X
        block = (wish - width / 2, 1, width, [(box, 0.0)])
        while blocks and blocks[-1][0] + blocks[-1][2] > block[0]:
            place, count, wide, members = blocks.pop()
            total = count + block[1]
            start = (place * count + (block[0] - wide) * block[1]) / total
            moved = [(inner, offset + wide) for inner, offset in block[3]]
            block = (start, total, wide + block[2], members + moved)
        blocks.append(block)
    for place, _, _, members in blocks:
        for box, offset in members:
            x[box] = place + offset + (sizes[box][0] + GAP_X) / 2
