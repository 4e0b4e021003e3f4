"""What a placement costs: the time at which the last part ends, and the memory of each device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from weft.base.dims import substitute, typical
from weft.ir.graph import Graph, Node, Value
from weft.ir.liveness import nbytes
from weft.ir.types import TensorType
from weft.runtime.dataflow.tasks import UNKNOWN_SECONDS, seconds_of
from weft.runtime.split.devices import CPU, Rates
from weft.runtime.split.segments import HOST, Part, cut, is_free, stays

__all__ = ["Forecast", "forecast", "inside", "node_seconds"]


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the cost model expects.

    seconds     when the last part ends
    busy        how long each device works
    transfers   how often a value goes from a device to another, and how many bytes that is
    moved       the bytes of these transfers
    memory      the bytes on each device: inputs and results of its parts, and the most that lives
                in one of them
    """

    seconds: float
    busy: Mapping[str, float]
    transfers: int
    moved: int
    memory: Mapping[str, int]


class _Likely(dict[str, int]):
    """Likely sizes for all names."""

    def __missing__(self, name: str) -> int:
        return 256

    def __contains__(self, name: object) -> bool:
        return True


def node_seconds(node: Node, rates: Rates) -> float:
    """The time of a node on a device; that of a loop is that of its body, once."""
    if node.op.nested:
        return sum(node_seconds(inner, rates) for graph in node.graphs for inner in graph.nodes)
    kinds = [value.type for value in (*node.inputs, *node.outputs)]
    if not all(isinstance(kind, TensorType) for kind in kinds):
        return UNKNOWN_SECONDS
    likely = [
        kind.like(shape=tuple(map(typical, kind.shape)))
        for kind in kinds
        if isinstance(kind, TensorType)
    ]
    count = len(node.inputs)
    attrs = substitute(node.attrs, _Likely())
    cost = node.op.estimate(tuple(likely[:count]), tuple(likely[count:]), **attrs)
    work = typical(cost.flops) * (node.op.cycles if node.op.elementwise else 1.0)
    return max(work / rates.flops, typical(cost.bytes) / rates.bytes)


def inside(
    graph: Graph, devices: Mapping[Node, str], rates: Mapping[str, Rates]
) -> dict[Node, list[Forecast]]:
    """What is expected of the graphs of control flow that the executor runs: for one time."""
    return {
        node: [
            forecast(g, cut(g, devices), rates, inner=inside(g, devices, rates))
            for g in node.graphs
        ]
        for node in graph.nodes
        if node.op.nested and devices.get(node) == HOST
    }


def forecast(
    graph: Graph,
    parts: Sequence[Part],
    rates: Mapping[str, Rates],
    known: Mapping[Node, Mapping[str, float]] | None = None,
    inner: Mapping[Node, Sequence[Forecast]] = MappingProxyType({}),
) -> Forecast:
    """Run the parts in thought: each device does one at a time, transfers go on beside that."""
    free_at: dict[str, float] = {}
    busy: dict[str, float] = {}
    there: dict[tuple[Value, str], float] = {(value, CPU): 0.0 for value in graph.inputs}
    home: dict[Value, str] = dict.fromkeys(graph.inputs, CPU)
    count = moved = 0
    memory: dict[str, int] = {}
    peaks: dict[str, int] = {}

    def arrival(value: Value, device: str) -> float:
        nonlocal count, moved
        at = home[value] if stays(value) else device or CPU
        if (value, at) not in there:
            begin = there[value, home[value]]
            there[value, at] = begin + _transfer(value, home[value], at, rates)
            count, moved = count + 1, moved + nbytes(value)
        return there[value, at]

    for part in parts:
        start = max((arrival(value, part.device) for value in part.takes()), default=0.0)
        if part.device == HOST:
            (node,) = part.nodes
            within = inner.get(node, ())
            alone = UNKNOWN_SECONDS if node.op.nested else seconds_of(node)
            end = start + (sum(f.seconds for f in within) if within else alone)
            for found in within:
                count, moved = count + found.transfers, moved + found.moved
                for device, spent in found.busy.items():
                    busy[device] = busy.get(device, 0.0) + spent
                for device, size in found.memory.items():
                    peaks[device] = max(peaks.get(device, 0), size)
        else:
            start = max(start, free_at.get(part.device, 0.0))
            spent = rates[part.device].call + sum(
                known[node][part.device] if known else node_seconds(node, rates[part.device])
                for node in part.nodes
            )
            end = start + spent
            free_at[part.device] = end
            busy[part.device] = busy.get(part.device, 0.0) + spent
            borders = sum(map(nbytes, part.takes()))
            memory[part.device] = memory.get(part.device, 0) + borders
            peaks[part.device] = max(peaks.get(part.device, 0), _peak(part))
        for node in part.nodes:
            for value in node.outputs:
                home[value] = part.device or CPU
                there[value, home[value]] = end
    last = 0.0
    for value in graph.outputs:
        if value.node is None or not is_free(value.node):
            last = max(last, arrival(value, CPU))
    last = max([last, *free_at.values()])
    total = {d: memory.get(d, 0) + peaks.get(d, 0) for d in {*memory, *peaks}}
    return Forecast(last, busy, count, moved, total)


def _peak(part: Part) -> int:
    """The most bytes of values inside of a part that live at once."""
    last = {value: i for i, node in enumerate(part.nodes) for value in node.inputs}
    own = set(part.nodes)
    alive = most = 0
    for i, node in enumerate(part.nodes):
        alive += sum(nbytes(value) for value in node.outputs)
        most = max(most, alive)
        for value in {*node.inputs, *node.outputs}:
            if value.node in own and last.get(value, i) == i:
                alive -= nbytes(value)
    return most


def _transfer(value: Value, source: str, target: str, rates: Mapping[str, Rates]) -> float:
    """Values go from device to device through the host."""
    spent = 0.0
    for device in (source, target):
        if device != CPU:
            spent += rates[device].latency + nbytes(value) / rates[device].transfer
    return spent
