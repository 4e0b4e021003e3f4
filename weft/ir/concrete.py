"""A graph with symbolic sizes, specialized to numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from weft.base.dim_algebra import Dim, names_of
from weft.base.dims import dim, dims_in, substitute
from weft.base.errors import WeftError
from weft.ir.graph import Graph, Node
from weft.ir.infer import infer_types
from weft.ir.interpret import located
from weft.ir.types import StackType, TensorType, Type

__all__ = ["bounds_of", "concrete", "late_names", "names_in", "names_of_inputs"]
__all__ += ["names_of_types", "sized_type", "without_empty"]


def names_in(graph: Graph) -> set[str]:
    """The names of all sizes in a graph and its nested graphs."""
    found: set[str] = set()
    for part in graph.walk():
        found |= names_of_types(value.type for value in part.values())
        for node in part.nodes:
            found.update(name for size in dims_in(node.attrs) for name in size.names)
    return found


def names_of_types(kinds: Iterable[Type]) -> set[str]:
    """The names of the sizes in types."""
    found: set[str] = set()
    for kind in kinds:
        inner = kind.innermost if isinstance(kind, StackType) else kind
        if isinstance(inner, TensorType):
            found.update(name for size in dims_in(inner.shape) for name in size.names)
    return found


def names_of_inputs(graph: Graph) -> set[str]:
    """The named sizes that the inputs of a graph tell."""
    return {
        name
        for value in graph.inputs
        if isinstance(value.type, TensorType)
        for size in dims_in(value.type.shape)
        for name in size.names
    }


def late_names(graph: Graph) -> set[str]:
    """The named sizes that depend on data: the inputs of a graph do not tell them."""
    return names_in(graph) - names_of_inputs(graph)


def bounds_of(graph: Graph) -> dict[str, tuple[int, int | None]]:
    """The smallest and largest size of each name that the inputs of a graph tell. Bounds stand
    where something was asked: in slices x[i : i + 4], those of i."""
    told = names_of_inputs(graph)
    lows, highs = dict.fromkeys(told, 0), dict[str, int]()
    shapes = [value.type.shape for value in graph.inputs if isinstance(value.type, TensorType)]
    attrs = [node.attrs for part in graph.walk() for node in part.nodes]
    for size in dims_in([shapes, attrs]):
        for atom in names_of(size):
            if atom.text in told:
                lows[atom.text] = max(lows[atom.text], atom.low or 0)
                if atom.high is not None:
                    highs[atom.text] = min(highs.get(atom.text, atom.high), atom.high)
    return {name: (low, highs.get(name)) for name, low in lows.items()}


def without_empty(graph: Graph) -> Graph:
    """The same graph for sizes of at least 1; itself, if its inputs tell no sizes."""
    names = bounds_of(graph)
    if not names:
        return graph
    sizes: dict[str, int] = {}
    for name, (low, high) in names.items():
        low = max(1, low)
        # With one number left for a name, what is empty then is known to be empty.
        one = high is not None and high <= low
        sizes[name] = low if one else dim(name, min=low, max=high)
    return _replaced(graph, sizes, infer=False)


def concrete(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """The graph for these sizes, which must be all that its inputs tell. Types are inferred anew.

    >>> graph = weft.make_graph(lambda x: weft.sum(x * x, axis=0), weft.spec(("B", 4)))
    >>> print(weft.ir.concrete.concrete(graph, {"B": 3}).inputs[0].type)
    f32[3,4]
    """
    return _replaced(graph, sizes, infer=True)


def _replaced(graph: Graph, sizes: Mapping[str, int], *, infer: bool) -> Graph:
    """The graph with these sizes in its types. Where they are names again, the types stay as they
    were recorded: with answers to questions, of which later calls know only by their guards."""
    made = Graph(graph.name)
    made.history, made.interface = graph.history, graph.interface
    made.set_inputs(
        [sized_type(value.type, sizes) for value in graph.inputs],
        [value.name for value in graph.inputs],
    )
    known = dict(zip(graph.inputs, made.inputs, strict=True))
    for node in graph.nodes:
        inputs = [known[value] for value in node.inputs]
        attrs = substitute(node.attrs, sizes, partly=True)
        graphs = [_replaced(nested, sizes, infer=infer) for nested in node.graphs]
        types = tuple([sized_type(value.type, sizes) for value in node.outputs])
        if infer and not node.op.data_shape:  # its rule has no names for sizes that data tell
            try:
                types = infer_types(node.op, inputs, attrs, graphs)
            except WeftError as error:
                raise located(error, node) from error.__cause__
        new = Node(node.op, inputs, attrs, types, graphs, node.location)
        for old, value in zip(node.outputs, new.outputs, strict=True):
            value.name = old.name
        made.nodes.append(new)
        known.update(zip(node.outputs, new.outputs, strict=True))
    made.outputs = tuple([known[value] for value in graph.outputs])
    return made


def sized_type(kind: Type, sizes: Mapping[str, int]) -> Type:
    """A type with numbers for its named sizes."""
    if not sizes:
        return kind
    if isinstance(kind, TensorType):
        if Dim not in map(type, kind.shape):
            return kind
        return kind.like(shape=substitute(kind.shape, sizes, partly=True))
    if isinstance(kind, StackType):
        element = sized_type(kind.element, sizes)
        assert isinstance(element, (TensorType, StackType))
        return StackType(element)
    return kind
