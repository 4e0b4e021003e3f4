"""The graph of a placement: segments, transfers between them, and what the executor runs itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from weft.ir.graph import Graph, Node, Value, copied, copy_nodes
from weft.ir.sizes import bare_names, size_names, sizes_made, sizes_named
from weft.ir.types import TensorType
from weft.ops.control import IF, SWITCH
from weft.ops.placed import SEGMENT, TRANSFER
from weft.runtime.split.devices import CPU
from weft.runtime.split.segments import HOST, Part, cut, is_free, stays

__all__ = ["split_graph"]


def split_graph(
    graph: Graph, devices: Mapping[Node, str], homes: Mapping[int, str] = MappingProxyType({})
) -> Graph:
    """The graph with a `segment` for each part, and a `transfer` for each value and device.

    A transfer stands right behind what makes the value, and there is one for all who read it.
    `homes`: the devices that inputs are on, by number; others are on the CPU.
    """
    return _Split(graph, devices, homes).run()


def _homes(node: Node, devices: Mapping[Node, str]) -> dict[int, str]:
    """The operands of control flow that one device alone reads in its graphs, which take them as
    they are: by number, with that device. They come there before it, once."""
    first = 1 if node.op in (IF, SWITCH) else 0
    last = len(node.inputs) if first else node.attrs.get("consts", 0)
    found: dict[int, str] = {}
    for number in range(first, last):
        value = node.inputs[number]
        if stays(value) or not isinstance(value.type, TensorType):
            continue
        read = {d for g in node.graphs for d in _reading(g, g.inputs[number - first], devices)}
        if len(read) == 1 and CPU not in read:
            found[number] = read.pop()
    return found


def _reading(graph: Graph, value: Value, devices: Mapping[Node, str]) -> Iterator[str]:
    """The devices that read a value in a graph."""
    if value in graph.outputs:
        yield CPU
    for node in graph.nodes:
        if value in node.inputs:
            if devices.get(node, CPU) != HOST:
                yield devices.get(node, CPU)
                continue
            homes = _homes(node, devices)
            yield from (homes.get(i, CPU) for i, x in enumerate(node.inputs) if x is value)


class _Split:
    def __init__(self, graph: Graph, devices: Mapping[Node, str], homes: Mapping[int, str]) -> None:
        self.old = graph
        self.devices = devices
        self.parts = _useful(graph, cut(graph, devices))
        self.new = Graph(graph.name)
        self.new.history, self.new.interface = graph.history, graph.interface
        self.new.set_inputs([v.type for v in graph.inputs], [v.name for v in graph.inputs])
        self.known: dict[tuple[Value, str], Value] = {}
        self.home: dict[Value, str] = {}
        self.tellers: dict[str, Value] = {}
        self.readers = self._readers()
        for i, (old, new) in enumerate(zip(graph.inputs, self.new.inputs, strict=True)):
            self.define(old, new, homes.get(i, CPU))

    def _readers(self) -> dict[Value, list[str]]:
        """The devices that read each value, from other parts."""
        found: dict[Value, list[str]] = {}
        for part in self.parts:
            if part.device == HOST:
                homes = _homes(part.nodes[0], self.devices)
                for i, value in enumerate(part.nodes[0].inputs):
                    found.setdefault(value, []).append(homes.get(i, CPU))
                continue
            for value in part.takes():
                found.setdefault(value, []).append(part.device)
        for value in self.old.outputs:
            found.setdefault(value, []).append(CPU)
        return found

    def run(self) -> Graph:
        for part in self.parts:
            if part.device == HOST:
                self.host(part.nodes[0])
            else:
                self.segment(part)
        self.new.outputs = tuple([self.at(value, CPU) for value in self.old.outputs])
        return self.new

    def define(self, old: Value, new: Value, device: str) -> None:
        """A value is made on a device; it goes at once to the others that read it."""
        new.name = new.name or old.name
        self.known[old, device] = new
        self.home[old] = device
        for name in bare_names(old):
            self.tellers.setdefault(name, old)
        for other in self.readers.get(old, ()):
            self.at(old, other)

    def at(self, value: Value, device: str) -> Value:
        """A value where a device takes it."""
        if value.node is not None and is_free(value.node) and (value, CPU) not in self.known:
            self._free(value.node)
        if stays(value):
            device = self.home.get(value, device)
        found = self.known.get((value, device))
        if found is None:
            home = self.home[value]
            if home != CPU and device != CPU:
                source = self.at(value, CPU)  # through the host
                home = CPU
            else:
                source = self.known[value, home]
            made = self.new.add(TRANSFER, source, source=home, target=device)
            made.location = value.node.location if value.node else None
            found = self.known[value, device] = made.out
        return found

    def _free(self, node: Node) -> None:
        made = copied(node, (), ())
        self.new.nodes.append(made)
        for old, new in zip(node.outputs, made.outputs, strict=True):
            self.define(old, new, CPU)

    def host(self, node: Node) -> None:
        """A node that the executor runs; the bodies of control flow are split as well."""
        homes = _homes(node, self.devices)
        inputs = [self.at(value, homes.get(i, CPU)) for i, value in enumerate(node.inputs)]
        first = 1 if node.op in (IF, SWITCH) else 0
        inner = {number - first: device for number, device in homes.items()}
        graphs = [split_graph(graph, self.devices, inner) for graph in node.graphs]
        made = copied(node, inputs, graphs)
        self.new.nodes.append(made)
        for old, new in zip(node.outputs, made.outputs, strict=True):
            self.define(old, new, CPU)

    def segment(self, part: Part) -> None:
        takes = part.takes()
        takes += self._telling(part, takes)
        own = {value for node in part.nodes for value in node.outputs}
        gives = self._gives(part, own)
        inner = Graph(f"{self.old.name}_{part.device}")
        inner.set_inputs([v.type for v in takes])
        known = dict(zip(takes, inner.inputs, strict=True))
        free = {v.node: None for n in part.nodes for v in n.inputs if v.node and is_free(v.node)}
        copy_nodes(inner, [*free, *part.nodes], known)
        inner.outputs = tuple([known[value] for value in gives])
        inputs = [self.at(value, part.device) for value in takes]
        types = [value.type for value in gives]
        where = next((node.location for node in part.nodes if node.location), None)
        made = Node(SEGMENT, inputs, {"device": part.device}, types, (inner,), where)
        self.new.nodes.append(made)
        for old, new in zip(gives, made.outputs, strict=True):
            self.define(old, new, part.device)

    def _gives(self, part: Part, own: set[Value]) -> list[Value]:
        """What others read of a part, and the outputs of the graph that it makes."""
        return [v for node in part.nodes for v in node.outputs if v in self.readers and v in own]

    def _telling(self, part: Part, takes: Sequence[Value]) -> list[Value]:
        """Further values that tell sizes which the part names and its inputs do not tell."""
        free = {v.node: None for n in part.nodes for v in n.inputs if v.node and is_free(v.node)}
        wanted = sizes_named([*free, *part.nodes])
        wanted |= size_names([v for n in part.nodes for v in n.outputs if hasattr(v.type, "shape")])
        made = {name for node in part.nodes for name in sizes_made(node)}
        told = {name for value in takes for name in bare_names(value)}
        found: dict[Value, None] = {}
        for name in sorted(wanted - told):
            teller = self.tellers.get(name)
            if teller is not None and teller not in takes and name not in made:
                found[teller] = None
        return list(found)


def _useful(graph: Graph, parts: Sequence[Part]) -> list[Part]:
    """The parts without segments that nobody takes anything of."""
    needed = set(graph.outputs)
    found: list[Part] = []
    for part in reversed(parts):
        if part.device == HOST or any(v in needed for node in part.nodes for v in node.outputs):
            needed.update(part.takes())
            found.append(part)
    return found[::-1]
