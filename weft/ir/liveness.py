"""How much memory a graph needs: the bytes that are alive before and after each node, and the peak.

A value is alive from the node that makes it to its last use; an output is alive to the end. Inputs
and constants are not counted: the caller and the program hold them. A view takes no memory, but
keeps alive the value that it views.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from weft.base.dataclass import dataclass
from weft.base.dim_algebra import Dim
from weft.base.source import SourceLocation
from weft.ir.literal import CONSTANT
from weft.ir.text import value_names
from weft.ir.types import StackType, TokenType

if TYPE_CHECKING:
    from weft.ir.graph import Graph, Node, Value

#: An unknown size, or the length of a stack, is counted as this.
USUAL_SIZE = 256

Sizes = Mapping[str, int]


def nbytes(value: Value, sizes: Sizes | None = None) -> int:
    """The bytes of a value; symbolic sizes that are not given are `USUAL_SIZE`."""
    kind = value.type
    if isinstance(kind, TokenType):
        return 0
    tensor = kind.innermost if isinstance(kind, StackType) else kind
    size = tensor.dtype.itemsize * (USUAL_SIZE**kind.depth if isinstance(kind, StackType) else 1)
    for axis in tensor.shape:
        size *= _known(axis, sizes or {})
    return size


def _known(size: int | Dim, sizes: Sizes) -> int:
    if not isinstance(size, Dim):
        return size
    return size.evaluate({name: sizes.get(name, USUAL_SIZE) for name in size.names})


class Storages:
    """In whose memory values lie: in their own, or in that of the value they view."""

    def __init__(self) -> None:
        self._of: dict[
            Value, tuple[Value, bool]
        ] = {}  # the storage, and whether elements lie in order

    def of(self, value: Value) -> Value:
        """The value in whose memory this one lies."""
        return self._of.get(value, (value, True))[0]

    def add(self, node: Node) -> bool:
        """Note where the results of a node lie; returns whether they share its input's memory."""
        if not node.op.view or len(node.inputs) != 1:
            return False
        source, in_order = self._of.get(node.inputs[0], (node.inputs[0], True))
        scatters, is_alias = node.op.scatters, node.op.alias
        if scatters is None and not is_alias and not in_order:
            return False  # a reshape: it has to copy elements that do not follow each other
        in_order = in_order and (scatters is None or not scatters(**node.attrs))
        self._of[node.outputs[0]] = (source, in_order)
        return True


@dataclass(frozen=True, slots=True)
class Moment:
    """A node, and the bytes that are alive before it, while it runs, and after it."""

    node: Node
    before: int
    during: int
    after: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The memory that a graph needs. Made by `Graph.memory`.

    peak        the most bytes that are alive at once, inputs not counted
    held        the bytes of the inputs, which the caller holds
    timeline    for each node what is alive before, during and after it
    place       the number of the node at which the peak is reached; -1 in an empty graph
    at_peak     what is alive there, the largest first: (value, bytes)
    """

    peak: int
    held: int
    timeline: tuple[Moment, ...]
    place: int
    at_peak: tuple[tuple[Value, int], ...]
    names: Mapping[Value, str]

    def __str__(self) -> str:
        if self.place < 0:
            return f"peak 0 bytes; the inputs have {self.held}"
        moment = self.timeline[self.place]
        where = _where(moment.node.location)
        lines = [
            f"peak {self.peak} bytes at node {self.place}, {moment.node.op.name}{where}; "
            f"the inputs have {self.held}"
        ]
        for value, size in self.at_peak:
            made = value.node
            where = "" if made is None else f"  {made.op.name}{_where(made.location)}"
            lines.append(f"  {size:>12}  {self.names.get(value, '%?')}: {value.type}{where}")
        return "\n".join(lines)


def _where(location: SourceLocation | None) -> str:
    return f" at {location.file}:{location.line}" if location is not None else ""


def memory_plan(graph: Graph, sizes: Sizes | None = None) -> MemoryPlan:
    """The memory that a graph needs if its nodes run in their order."""
    storages = Storages()
    extra = [_inside(node, sizes) for node in graph.nodes]
    free = set(graph.inputs)
    for node in graph.nodes:
        storages.add(node)
        if node.op is CONSTANT:
            free.update(node.outputs)
    lasts = _last_uses(graph.nodes, graph.outputs, storages)
    sizes_of: dict[Value, int] = {}  # values that count, with their bytes
    now = peak = 0
    place = -1
    timeline: list[Moment] = []
    for i, node in enumerate(graph.nodes):
        before = now
        for value in node.outputs:
            if storages.of(value) is value and value not in free:
                sizes_of[value] = nbytes(value, sizes)
                now += sizes_of[value]
        during = now + extra[i]
        if during > peak or place < 0:
            peak, place = during, i
        for value in lasts[i]:
            now -= sizes_of.get(value, 0)
        timeline.append(Moment(node, before, during, now))
    there = {value: None for node in graph.nodes[: place + 1] for value in node.outputs}
    for gone in lasts[: max(place, 0)]:
        for value in gone:
            there.pop(value, None)
    at_peak = [(value, sizes_of[value]) for value in there if value in sizes_of]
    return MemoryPlan(
        peak,
        sum(nbytes(value, sizes) for value in graph.inputs),
        tuple(timeline),
        place,
        tuple(sorted(at_peak, key=lambda item: -item[1])),
        value_names(graph.values()),
    )


def _last_uses(
    nodes: Sequence[Node], outputs: Iterable[Value], storages: Storages
) -> list[list[Value]]:
    """For each node, the storages that are not used after it."""
    known = {storages.of(value) for value in outputs}
    lasts: list[list[Value]] = []
    for node in reversed(nodes):
        used = dict.fromkeys(storages.of(value) for value in (*node.outputs, *node.inputs))
        lasts.append([value for value in used if value not in known])
        known.update(used)
    return lasts[::-1]


def _inside(node: Node, sizes: Sizes | None) -> int:
    """What the nested graphs of a node need at most; only one runs at a time."""
    return max((memory_plan(graph, sizes).peak for graph in node.graphs), default=0)
