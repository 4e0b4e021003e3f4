"""`weft.place`: which node of a graph runs where, and what that costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from weft.base.errors import MemoryError, RangeError
from weft.ir.graph import Graph, Node
from weft.passes.sent import FollowSent
from weft.runtime.split.auto import best
from weft.runtime.split.build import split_graph
from weft.runtime.split.choose import (
    Choice,
    Fallback,
    asked,
    check_rules,
    refusal,
    settled,
    warn_of_unknown,
)
from weft.runtime.split.cost import Forecast, forecast, inside
from weft.runtime.split.devices import CPU, engine, engines_here
from weft.runtime.split.measure import rates_of
from weft.runtime.split.segments import HOST, Part, cut

__all__ = ["Placement", "place"]

#: Rules, or "auto".
Wanted = str | Mapping[Any, str]


class Placement:
    """Which node of a graph runs where.

    devices     the device of each node; "" for those that the executor runs itself
    fallbacks   nodes that run elsewhere than they were asked to, and why
    tried       how many placements "auto" has compared; 0 where it was said by hand
    unused      rules that fit no node
    """

    def __init__(
        self,
        graph: Graph,
        choice: Choice,
        tried: int,
        names: Iterable[str],
        unused: Sequence[Any] = (),
    ) -> None:
        self.graph = graph
        self.devices: Mapping[Node, str] = choice.devices
        self.fallbacks: list[Fallback] = choice.fallbacks
        self.tried = tried
        self.unused = list(unused)
        self._names = sorted({CPU, *names, *[d for d in choice.devices.values() if d]})
        self._parts = cut(graph, choice.devices)

    @property
    def forecast(self) -> Forecast:
        """What the cost model expects of it."""
        rates = {name: rates_of(engine(name)) for name in self._names}
        inner = inside(self.graph, self.devices, rates)
        return forecast(self.graph, self._parts, rates, inner=inner)

    def split(self) -> Graph:
        """The graph with segments and transfers, as the executor runs it."""
        return split_graph(self.graph, self.devices)

    #: What `weft.view` draws.
    shown_graph = split

    def explain(self) -> str:
        """The choice, and what it costs, as text."""
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        found = self.forecast
        head = f"graph @{self.graph.name} on {', '.join(self._names)}: "
        head += f"{found.seconds * 1e6:.0f} µs expected"
        if self.tried:
            head += f", the best of {self.tried} placements"
        lines = [head]
        lines += self._of_parts(self._parts, "  ")
        lines.append(f"  transfers: {found.transfers}, {found.moved} bytes")
        for name, seconds in sorted(found.busy.items()):
            used = found.memory.get(name, 0)
            lines.append(f"  {name} works {seconds * 1e6:.0f} µs and holds {used} bytes")
        lines += [f"  {line}" for line in self._backward()]
        lines += [f"  {fallback}" for fallback in self.fallbacks]
        lines += [f"  the rule {rule!r} fits no node" for rule in self.unused]
        return lines

    def _of_parts(self, parts: Iterable[Part], indent: str) -> Iterator[str]:
        """Segments, then what the executor runs, with what is inside of its control flow."""
        hosts = [part.nodes[0] for part in parts if part.device == HOST]
        for part in parts:
            if part.device != HOST:
                ops = Counter(node.op.name for node in part.nodes)
                shown = ", ".join(f"{n} × {op}" if n > 1 else op for op, n in ops.most_common(5))
                more = f" and {len(ops) - 5} more" if len(ops) > 5 else ""
                yield f"{indent}{part.device}: {len(part.nodes)} nodes: {shown}{more}"
        names = [node.op.name for node in hosts if not node.graphs]
        if names:
            yield f"{indent}the executor: {', '.join(names[:6])}" + ("…" if names[6:] else "")
        for node in hosts:
            if node.graphs:
                yield f"{indent}the executor: {node.op.name}, and inside of it, each time,"
                for graph in node.graphs:
                    yield from self._of_parts(cut(graph, self.devices), indent + "  ")

    def _backward(self) -> Iterator[str]:
        """Steps of the backward of what runs on an engine: they run on other devices."""
        forward: dict[Any, str] = {}
        for node, device in self.devices.items():
            if device not in (CPU, HOST) and node.location is not None and not node.location.role:
                forward[node.location] = device
        counts: Counter[tuple[str, str]] = Counter()
        for node, device in self.devices.items():
            at = node.location
            if at is not None and at.role == "backward" and at.forward in forward:
                counts[forward[at.forward], device or "the executor"] += 1
        for (engine_name, device), count in sorted(counts.items()):
            if engine_name != device:
                yield f"{count} steps of the backward of what {engine_name} runs are on {device}"

    def _all_parts(self, graph: Graph) -> Iterator[Part]:
        """The parts of a graph, and of the control flow in it that the executor runs."""
        for part in cut(graph, self.devices):
            yield part
            if part.device == HOST:
                for inner in part.nodes[0].graphs:
                    yield from self._all_parts(inner)

    def __repr__(self) -> str:
        counts = Counter(part.device or "the executor" for part in self._all_parts(self.graph))
        said = ", ".join(f"{n} on {name}" for name, n in counts.items())
        return f"<placement of @{self.graph.name}: parts {said}>"


def place(graph: Graph, placement: Wanted, *, devices: Iterable[str] = ()) -> Placement:
    """Decide which node of a graph runs on which device.

    >>> graph = weft.make_graph(lambda x, w: weft.exp(x @ w), weft.spec((2, 3)), weft.spec((3, 4)))
    >>> weft.place(graph, {"products": "cpu"})
    <placement of @lambda: parts 1 on cpu>

    placement   rules, of which the first that fits a node counts: names of ops ("conv"), families
                ("products", "elementwise", "reductions", "views", "control flow"), modules
                ("backbone", "Model.blocks.0"), nodes of the graph, functions of nodes; each with
                the name of a device. `with weft.device(...)` in the code comes before rules that
                are no nodes. Or "auto": the placement that ends first by the cost model
    devices     those that may be used; by default all, and for "auto" those that are here

    What a device cannot run goes to the CPU, and `placement.fallbacks` says so.
    """
    if not isinstance(graph, Graph):
        raise RangeError(
            f"{graph!r:.60} is no graph",
            op="place",
            hint='weft.make_graph(f, specs), or f.graph("optimized") of a compiled function',
        )
    names = [devices] if isinstance(devices, str) else list(devices)
    for name in names:
        engine(name)
    graph = FollowSent().run(graph)
    if isinstance(placement, str):
        if placement != "auto":
            raise RangeError(f"placement is {placement!r}", op="place", hint='"auto", or rules')
        return _auto(graph, names or engines_here())
    rules = check_rules(placement)
    wanted, unused = asked(graph, rules)
    warn_of_unknown(graph, unused)
    made = Placement(graph, settled(graph, wanted, names), 0, names, unused)
    _check_memory(made)
    return made


def _auto(graph: Graph, names: list[str]) -> Placement:
    wanted, _ = asked(graph, {})
    base = settled(graph, wanted, names)
    engines = [engine(name) for name in names]

    def can(node: Node, name: str) -> bool:
        if node in wanted:
            return base.devices[node] == name
        return not refusal(node, name)

    found, tried = best(graph, base, engines, can)
    return Placement(graph, Choice({**base.devices, **found}, base.fallbacks), tried, names)


def _check_memory(made: Placement) -> None:
    limits = {name: engine(name).memory for name in made._names}
    if all(limit is None for limit in limits.values()):
        return
    for name, used in made.forecast.memory.items():
        limit = limits.get(name)
        if limit is not None and used > limit:
            raise MemoryError(
                f"the nodes on {name} need {used} bytes, and it has {limit}",
                op="place",
                hint='put some of them elsewhere, or let placement="auto" choose',
            )
