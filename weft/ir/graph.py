"""The static graph: typed SSA with nested graphs.

    graph @f(%x: f32[B,4], %w: f32[4,2]) {
      %0: f32[B,2] = matmul %x, %w
      %1: f32[2] = sum[axis=(0,)] %0
      return %1
    }

A `Value` is an input of its graph, or a result of one `Node`. A node applies an op to values of its
own graph. Nested graphs (branches and bodies of control flow) use only their own inputs; everything
from outside is passed to them. Readers do not change a graph: passes build a new one, and `replace`
and `weft.rewrite` check what they make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from weft.base.dataclass import dataclass
from weft.base.errors import GraphError
from weft.base.source import SourceLocation
from weft.ir.attribute_text import Table
from weft.ir.dot import graph_dot
from weft.ir.equal import same_graph
from weft.ir.infer import infer_types
from weft.ir.liveness import MemoryPlan, memory_plan
from weft.ir.op import Op
from weft.ir.order import graph_levels
from weft.ir.replace import replace_value
from weft.ir.text import graph_constants, graph_text
from weft.ir.types import TensorType, Type
from weft.ir.verify import verify_graph

__all__ = ["Graph", "Node", "Value"]


class Value:
    """One typed value. A value without a name is printed with a number."""

    __slots__ = ("index", "name", "node", "type")

    def __init__(self, type: Type, name: str = "", node: Node | None = None, index: int = 0):
        self.type = type
        self.name = name
        self.node = node  # the node that made it; None for an input of the graph
        self.index = index  # its position in the results of the node, or in the inputs

    @property
    def tensor_type(self) -> TensorType:
        """The type of a value that is a tensor, not a token or a stack."""
        if not isinstance(self.type, TensorType):
            raise GraphError(f"{self!r} is no tensor: it has no dtype and no shape")
        return self.type

    def __repr__(self) -> str:
        made = f" of {self.node.op.name}" if self.node is not None else ""
        return f"<value %{self.name or self.index}: {self.type}{made}>"


class Node:
    """One call of an op."""

    __slots__ = ("attrs", "graphs", "inputs", "location", "op", "outputs")

    def __init__(
        self,
        op: Op,
        inputs: Sequence[Value],
        attrs: Mapping[str, Any],
        types: Sequence[Type],
        graphs: Sequence[Graph] = (),
        location: SourceLocation | None = None,
    ) -> None:
        self.op = op
        self.inputs = tuple(inputs)
        self.attrs = dict(attrs)
        self.graphs = tuple(graphs)
        self.location = location
        self.outputs = tuple([Value(t, "", self, i) for i, t in enumerate(types)])

    @property
    def out(self) -> Value:
        """The result of an op that has only one."""
        if len(self.outputs) != 1:
            raise GraphError(f"{self.op.name} has {len(self.outputs)} results here, not one")
        return self.outputs[0]

    def __repr__(self) -> str:
        types = ", ".join(str(value.type) for value in self.inputs)
        return f"<node {self.op.name}({types})>"


@dataclass(frozen=True, slots=True)
class Stage:
    """One entry of a graph's history: what made it, what changed, and how long that took."""

    name: str
    seconds: float
    note: str = ""

    def __str__(self) -> str:
        return f"{self.name}, {self.seconds * 1e3:.3g} ms" + (f": {self.note}" if self.note else "")


class Graph:
    """Inputs, nodes in an order in which they can run, outputs, and a history.

    >>> g = weft.make_graph(lambda x, y: (x * y).sum(), weft.ones(3), weft.ones(3))
    >>> [node.op.name for node in g.nodes]
    ['multiply', 'sum']
    """

    if TYPE_CHECKING:  # given to the class by weft.wiring

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    #: `weft.parse_graph`: the inverse of `text`; given to the class by weft.wiring.
    parse: ClassVar[Callable[..., Graph]]

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self.inputs: tuple[Value, ...] = ()
        self.nodes: list[Node] = []
        self.outputs: tuple[Value, ...] = ()
        self.history: tuple[Stage, ...] = ()
        #: How the graph maps to the function it was made from; see weft.record.make_graph.
        self.interface: Any = None
        #: Values of tensors that were made with requires_grad=True while it was recorded.
        self.leaves: frozenset[Value] = frozenset()
        #: Lines that are printed before a node: the kernel it is part of.
        self.notes: Mapping[Node, str] = {}

    # --- building -----------------------------------------------------------------------------

    def add_input(self, type: Type, name: str = "") -> Value:
        """Add an input."""
        value = Value(type, name, None, len(self.inputs))
        self.inputs = (*self.inputs, value)
        return value

    def set_inputs(self, types: Sequence[Type], names: Sequence[str] | None = None) -> None:
        """Set all inputs at once: adding a thousand one by one would take a million steps."""
        given = names or [""] * len(types)
        pairs = enumerate(zip(types, given, strict=True))
        self.inputs = tuple([Value(type, name, None, i) for i, (type, name) in pairs])

    def add(
        self,
        op: Op,
        *inputs: Value,
        graphs: Sequence[Graph] = (),
        location: SourceLocation | None = None,
        **attrs: Any,
    ) -> Node:
        """Add a call at the end; the op's type rule gives the types of its results, or an error."""
        types = infer_types(op, inputs, attrs, graphs)
        node = Node(op, inputs, attrs, types, graphs, location)
        self.nodes.append(node)
        return node

    # --- reading ------------------------------------------------------------------------------

    def values(self) -> Iterator[Value]:
        """All values in order: inputs, then the results of the nodes."""
        yield from self.inputs
        for node in self.nodes:
            yield from node.outputs

    def users(self) -> dict[Value, list[Node]]:
        """The users of each value, in order; a node that uses it twice is listed twice."""
        found: dict[Value, list[Node]] = {value: [] for value in self.values()}
        for node in self.nodes:
            for value in node.inputs:
                found.setdefault(value, []).append(node)
        return found

    def walk(self) -> Iterator[Graph]:
        """This graph and all nested ones."""
        stack = [self]
        while stack:
            graph = stack.pop()
            yield graph
            for node in graph.nodes:
                stack.extend(node.graphs)

    def node_count(self) -> int:
        """The number of nodes, nested ones included."""
        return sum(len(graph.nodes) for graph in self.walk())

    def __repr__(self) -> str:
        return (
            f"<graph @{self.name}: {len(self.inputs)} inputs, {len(self.nodes)} nodes, "
            f"{len(self.outputs)} outputs>"
        )

    def levels(self) -> list[list[Node]]:
        """The nodes by depth: those of one level may run at the same time."""
        return graph_levels(self)

    def equals(self, other: Graph) -> bool:
        """Whether the other graph is the same program, call by call."""
        return same_graph(self, other)

    def verify(self) -> None:
        """Check the rules of graphs; a GraphError names the broken rule and the node."""
        verify_graph(self)

    def memory(self, **sizes: int) -> MemoryPlan:
        """The bytes that are alive at each node, and their peak; `sizes` are the symbolic sizes.

        >>> graph = weft.make_graph(lambda x: (x * 2 + 1).sum(), weft.spec("n"))
        >>> print(graph.memory(n=1000))
        peak 8000 bytes at node 3, add ...; the inputs have 4000
                  4000  %1: f32[n]  multiply at ...
                  4000  %3: f32[n]  add at ...
        """
        return memory_plan(self, sizes)

    # --- printing -----------------------------------------------------------------------------

    def __str__(self) -> str:
        return graph_text(self, locations=False)

    def text(
        self, *, constants: Table | None = None, locations: bool = True, history: bool = True
    ) -> str:
        """The graph as text, with source lines and history; `Graph.parse` reads it back.

        Large constants are printed by reference, and added to the table `constants`.
        """
        return graph_text(self, constants=constants, locations=locations, history=history)

    def constants(self) -> Table:
        """The arrays that the text refers to, by digest; `Graph.parse` needs them."""
        return graph_constants(self)

    def to_dot(self) -> str:
        """The graph in Graphviz's language: `dot -Tsvg`."""
        return graph_dot(self)

    # --- changing -----------------------------------------------------------------------------

    def replace(self, old: Value, new: Value) -> int:
        """Let all users of `old` use `new`, in place; returns the number of uses.

        Nodes are reordered if needed. A cycle is an error, and leaves the graph unchanged.
        """
        return replace_value(self, old, new)

    def clone(self, name: str | None = None) -> Graph:
        """A copy with its own nodes and values."""
        builder = Builder(self, name=name)
        for node in self.nodes:
            builder.copy(node)
        return builder.finish()

    def stamped(self, stage: Stage) -> Graph:
        """Add an entry to the history of this graph."""
        self.history = (*self.history, stage)
        return self


Mapped = dict[Value, Value]


def copied(
    node: Node, inputs: Sequence[Value], graphs: Sequence[Graph], *, named: bool = False
) -> Node:
    """The same call on other inputs, not yet in a graph; `named`: with names for its results."""
    new: Node = _new(Node)  # passes copy graphs many times: without calls, it takes half the time
    new.op = node.op
    new.inputs = tuple(inputs)
    new.attrs = node.attrs.copy()
    new.graphs = tuple(graphs) if graphs else ()
    new.location = node.location
    outputs = []
    for old in node.outputs:
        value: Value = _new(Value)
        value.type = old.type
        value.name = old.name if named else ""
        value.node = new
        value.index = old.index
        outputs.append(value)
    new.outputs = tuple(outputs)
    return new


_new: Any = object.__new__


def copy_nodes(graph: Graph, nodes: Iterable[Node], known: Mapped) -> None:
    """Copy nodes into another graph; `known` maps values to those there, and is extended."""
    for node in nodes:
        new = copied(node, [known[value] for value in node.inputs], node.graphs, named=True)
        for old, made in zip(node.outputs, new.outputs, strict=True):
            known[old] = made
        graph.nodes.append(new)


def keep_names(known: Mapped) -> None:
    """Give values the names of those that they replace."""
    for old, new in known.items():
        new.name = new.name or old.name


class Builder:
    """Makes a new graph from an old one, node by node. Passes are written with it.

        builder = Builder(graph)
        for node in graph.nodes:
            if …: builder.forward(node.outputs, [some new value])     # instead of the node
            else: builder.copy(node)
        return builder.finish()

    `builder[value]` is the new value for an old one.
    """

    def __init__(self, graph: Graph, name: str | None = None, nested: Nested | None = None) -> None:
        self.old = graph
        self.graph = Graph(graph.name if name is None else name)
        self.graph.history = graph.history
        self.graph.interface = graph.interface
        self.graph.set_inputs(
            [value.type for value in graph.inputs], [value.name for value in graph.inputs]
        )
        self.nested = nested or Graph.clone
        self.map: Mapped = dict(zip(graph.inputs, self.graph.inputs, strict=True))

    def __getitem__(self, value: Value) -> Value:
        return self.map[value]

    def inputs_of(self, node: Node) -> list[Value]:
        """The inputs of an old node in the new graph."""
        return [self.map[value] for value in node.inputs]

    def copy(self, node: Node, inputs: Sequence[Value] | None = None) -> Node:
        """The same call in the new graph, on its new inputs or on those given."""
        known = self.map
        given = [known[value] for value in node.inputs] if inputs is None else inputs
        graphs = [self.nested(graph) for graph in node.graphs] if node.graphs else ()
        new = copied(node, given, graphs, named=True)
        self.graph.nodes.append(new)
        for old, made in zip(node.outputs, new.outputs, strict=True):
            known[old] = made
        return new

    def add(self, op: Op, *inputs: Value, like: Node | None = None, **attrs: Any) -> Value:
        """A new call with one result; it gets the source line of the old node `like`."""
        location = None if like is None else like.location
        return self.graph.add(op, *inputs, location=location, **attrs).out

    def forward(self, old: Iterable[Value], new: Iterable[Value]) -> None:
        """Let the users of old values use these new ones."""
        self.map.update(zip(old, new, strict=True))

    def finish(self) -> Graph:
        """The new graph, with the outputs of the old one."""
        self.graph.outputs = tuple([self.map[value] for value in self.old.outputs])
        return self.graph


Nested = Callable[[Graph], Graph]


def extract(
    name: str, inputs: Sequence[Value], nodes: Sequence[Node], outputs: Sequence[Value]
) -> Graph:
    """A new graph from some nodes of another."""
    graph = Graph(name)
    graph.set_inputs([v.type for v in inputs], _unique([v.name for v in inputs]))
    known = dict(zip(inputs, graph.inputs, strict=True))
    copy_nodes(graph, nodes, known)
    graph.outputs = tuple([known[value] for value in outputs])
    return graph


def _unique(names: list[str]) -> list[str]:
    taken: dict[str, int] = {}
    unique = []
    for name in names:
        number = taken[name] = taken.get(name, 0) + 1
        unique.append(name if number == 1 or not name else f"{name}_{number}")
    return unique
