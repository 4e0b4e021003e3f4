"""The placement that ends first, as far as the cost model knows.

Small graphs: all placements are tried. Larger ones: nodes are gathered into groups around the dear
ones, and from several beginnings groups are moved as long as that helps. A placement that does not
fit into the memory of a device does not count.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

from weft.base.errors import MemoryError
from weft.ir.graph import Graph, Node
from weft.runtime.split.choose import Choice
from weft.runtime.split.cost import Forecast, forecast, inside, node_seconds
from weft.runtime.split.devices import Engine
from weft.runtime.split.measure import rates_of
from weft.runtime.split.segments import HOST, cut

__all__ = ["Search", "best"]

#: All placements are tried if there are no more than these.
MOST_TRIED = 1024
#: Groups of a larger graph.
MOST_GROUPS = 24

Groups = list[list[Node]]


class Search:
    """What is tried for one graph."""

    def __init__(self, graph: Graph, choice: Choice, engines: Sequence[Engine]) -> None:
        self.graph = graph
        self.base = choice.devices
        self.engines = {engine.name: engine for engine in engines}
        self.rates = {name: rates_of(engine) for name, engine in self.engines.items()}
        self.known = {
            node: {name: node_seconds(node, rates) for name, rates in self.rates.items()}
            for node in graph.nodes
        }
        self.inner = inside(graph, self.base, self.rates)
        self.tried = 0

    def forecast(self, devices: Mapping[Node, str]) -> Forecast:
        self.tried += 1
        parts = cut(self.graph, devices)
        return forecast(self.graph, parts, self.rates, self.known, self.inner)

    def score(self, devices: Mapping[Node, str]) -> float:
        found = self.forecast(devices)
        return found.seconds if self.fits(found) else float("inf")

    def fits(self, found: Forecast) -> bool:
        limits = {name: engine.memory for name, engine in self.engines.items()}
        return all(
            limits.get(name) is None or used <= (limits[name] or 0)
            for name, used in found.memory.items()
        )


def best(
    graph: Graph,
    choice: Choice,
    engines: Sequence[Engine],
    can: Callable[[Node, str], bool],
    *,
    tries: int = MOST_TRIED,
) -> tuple[dict[Node, str], int]:
    """The devices of all nodes, and how many placements were tried. `choice` has the host's nodes,
    which stay there; `can(node, device)` says what may move."""
    search = Search(graph, choice, engines)
    names = list(search.engines)
    nodes = [node for node in graph.nodes if choice.devices.get(node, HOST) != HOST]
    options = {node: [name for name in names if can(node, name)] for node in nodes}
    groups = [[node] for node in nodes if len(options[node]) > 1]
    fixed = {node: options[node][0] for node in nodes if len(options[node]) == 1}
    start = {**choice.devices, **fixed}
    count = 1
    for node in nodes:
        count = min(count * len(options[node]), tries + 1)
    if count <= tries:
        found = _all(search, start, groups, options)
    else:
        found = _moved(search, start, _gathered(search, groups, options), options, names)
    if search.score(found) == float("inf"):
        raise MemoryError(
            "no placement fits into the memory of the devices",
            op="place",
            hint="; ".join(f"{e.name} has {e.memory} bytes" for e in engines if e.memory),
        )
    return found, search.tried


def _all(
    search: Search, start: dict[Node, str], groups: Groups, options: Mapping[Node, list[str]]
) -> dict[Node, str]:
    most, found = float("inf"), start
    for names in itertools.product(*[options[group[0]] for group in groups]):
        made = dict(start)
        for group, name in zip(groups, names, strict=True):
            made.update(dict.fromkeys(group, name))
        seconds = search.score(made)
        if seconds < most:
            most, found = seconds, made
    return found


def _gathered(search: Search, groups: Groups, options: Mapping[Node, list[str]]) -> Groups:
    """Groups of nodes with the same options: cheap ones go with their neighbours in the graph."""
    found: Groups = []
    for (node,) in groups:
        if found and options[found[-1][0]] == options[node]:
            found[-1].append(node)
        else:
            found.append([node])
    cost = {node: max(search.known[node].values()) for (node,) in groups}
    total = sum(cost.values()) / MOST_GROUPS
    cuts: Groups = []
    for group in found:
        spent = 0.0
        made: list[Node] = []
        for node in group:
            made.append(node)
            spent += cost[node]
            if spent >= total:
                cuts.append(made)
                made, spent = [], 0.0
        if made:
            cuts.append(made)
    return cuts


def _moved(
    search: Search,
    start: dict[Node, str],
    groups: Groups,
    options: Mapping[Node, list[str]],
    names: Sequence[str],
) -> dict[Node, str]:
    """From each device as a beginning, move runs of groups as long as that helps."""
    most, found = float("inf"), start
    for first in names:
        now = dict(start)
        for group in groups:
            name = first if all(first in options[n] for n in group) else options[group[0]][0]
            now.update(dict.fromkeys(group, name))
        seconds = search.score(now)
        better = True
        while better:
            better = False
            for length in (len(groups), 8, 4, 2, 1):
                for i in range(max(len(groups) - length + 1, 0)):
                    for name in names:
                        moved = [n for g in groups[i : i + length] for n in g]
                        if all(now[n] == name for n in moved):
                            continue
                        if not all(name in options[n] for n in moved):
                            continue
                        tried = {**now, **dict.fromkeys(moved, name)}
                        score = search.score(tried)
                        if score < seconds:
                            now, seconds, better = tried, score, True
        if seconds < most:
            most, found = seconds, now
    return found
