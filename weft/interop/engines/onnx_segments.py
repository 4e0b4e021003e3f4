"""What engines that take ONNX models share: what they refuse, and weights as constants."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.dim_algebra import Dim, known_less
from weft.base.dims import dims_in, is_zero
from weft.base.errors import WeftError
from weft.core.tensor import wrap
from weft.interop.onnx.model import model_of, prepared, unsupported_nodes
from weft.ir.attributes import attrs_key
from weft.ir.graph import Graph, Node, Value
from weft.ir.interpret import PreparedGraph, sizes_of
from weft.ir.literal import CONSTANT
from weft.ir.sizes import local_sizes
from weft.ir.types import TensorType
from weft.runtime.interpreted import interpreted
from weft.runtime.split.cost import node_seconds
from weft.runtime.split.devices import Rates

__all__ = ["Frozen", "alone", "refusal"]

#: Dtypes that arrays of NumPy hand to the engines.
_TAKEN = {
    dtypes.bool, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.uint8,
    dtypes.uint16, dtypes.uint32, dtypes.uint64, dtypes.float16, dtypes.float32, dtypes.float64,
}  # fmt: skip
#: After so many changes of what was taken for constant, nothing is any more.
MOST_CHANGES = 3
#: So many shapes of inputs are known to be empty or not.
MOST_SHAPES = 1000
#: Segments of fewer operations run in the thread that calls them.
SMALL = 2e7
_FLOPS = Rates(flops=1.0, bytes=float("inf"), call=0.0)


def refusal(node: Node, compiles: Callable[[bytes], Any], exact: Callable[[Node], str]) -> str:
    """Why an engine cannot run a node; "". Each kind of node is tried once."""
    for value in (*node.inputs, *node.outputs):
        kind = value.type
        if not isinstance(kind, TensorType):
            return "it works on a list"
        if kind.dtype not in _TAKEN:
            return f"the engine takes no arrays of {kind.dtype.name}"
        if kind.device.kind != "cpu":
            return f"its values are on {kind.device}"
        if any(map(is_zero, kind.shape)):
            return "it has no elements"  # engines differ about these; some do not survive them
    why = exact(node) or next((exact(n) for g in node.graphs for n in _nodes(g) if exact(n)), "")
    if why:
        return why
    key = (node.op.name, tuple(str(v.type) for v in node.inputs), attrs_key(node.attrs))
    if node.op.nested:
        return _tried(node, compiles)
    known = _known.setdefault(compiles, {})
    if key not in known:
        if len(known) > 10_000:
            known.clear()
        known[key] = _tried(node, compiles)
    return known[key]


_known: dict[Any, dict[Any, str]] = {}


def _nodes(graph: Graph) -> list[Node]:
    return [node for part in graph.walk() for node in part.nodes]


def alone(node: Node) -> Graph:
    """A graph of one node."""
    graph = Graph("tried")
    graph.set_inputs([value.type for value in node.inputs])
    graphs = [inner.clone() for inner in node.graphs]
    types = [value.type for value in node.outputs]
    made = Node(node.op, graph.inputs, node.attrs, types, graphs, node.location)
    graph.nodes.append(made)
    graph.outputs = made.outputs
    return graph


def _tried(node: Node, compiles: Callable[[bytes], Any]) -> str:
    graph = prepared(alone(node))
    missing = unsupported_nodes(graph)
    if missing:
        return f"{missing[0].op.name} has no operator in ONNX"
    try:
        model = model_of(graph, input_names=[f"x{i}" for i in range(len(graph.inputs))])
    except WeftError as error:
        return error.message
    try:
        compiles(model.SerializeToString())
    except Exception as error:
        return f"the engine refuses it: {_first_line(error)}"
    return ""


def _first_line(error: Exception) -> str:
    lines = (str(error).strip() or type(error).__name__).splitlines()
    return lines[0][:160]


class Frozen:
    """A segment as a function of arrays.

    Weights come as inputs, and an engine is faster if they are constants. An input that is the same
    array as in the call before is taken for one: the array is kept here, so nobody writes to it,
    and it is compared by identity in each call. Where it is another one, the model with all of
    them as inputs runs. Where the sizes leave an array in the segment without elements, it is
    interpreted; so it is for NaN and inf where the engine takes these for numbers.

    session(model)   -> function of a list of arrays
    finite           the engine is given finite numbers only
    once             constants that several nodes read stay inputs: the engine mixes them up
    """

    def __init__(
        self,
        graph: Graph,
        session: Callable[[bytes], Callable[..., Any]],
        *,
        finite: Callable[[Graph], bool] = lambda _graph: False,
        once: bool = False,
    ) -> None:
        self.graph = prepared(graph)
        self.fixed: list[Any] = []  # arrays of further inputs
        if once:
            self.graph, self.fixed = _hoisted(self.graph)
        self.session = session
        self._finite = finite(self.graph)
        self._known_finite: dict[int, Any] = {}
        often = _read_often(self.graph) if once else set()
        self._open = {i for i, value in enumerate(self.graph.inputs) if value in often}
        self._lock = threading.Lock()
        self._plain: Callable[..., Any] | None = None
        self._frozen: tuple[dict[int, Any], Callable[..., Any]] | None = None
        self._last: list[Any] | None = None
        self._changes = 0
        self._model = self._made({})  # what is refused is refused now
        self._open_sizes = _open_sizes(self.graph)
        self._empty: dict[Any, bool] = {}  # by shapes of the inputs

    def _made(self, constant: Mapping[int, Any]) -> bytes:
        known: dict[Value, Any] = {self.graph.inputs[i]: array for i, array in constant.items()}
        count = len(self.graph.inputs) - len(constant)
        model = model_of(self.graph, constants=known, input_names=[f"x{i}" for i in range(count)])
        content: bytes = model.SerializeToString()
        return content

    def __call__(self, arrays: list[Any]) -> list[Any]:
        arrays = [*arrays, *self.fixed]
        empty = self._open_sizes and self._is_empty(arrays)
        if empty or (self._finite and not self._is_finite(arrays)):
            found = interpreted(PreparedGraph(self.graph), [wrap(x) for x in arrays])
            return [np.array(x._data) for x in found]
        constant, run = self._choice(arrays)
        return list(run([_contiguous(x) for i, x in enumerate(arrays) if i not in constant]))

    def _is_finite(self, arrays: list[Any]) -> bool:
        for i, array in enumerate(arrays):
            if array.dtype.kind == "f" and self._known_finite.get(i) is not array:
                if not np.isfinite(array).all():
                    return False
                self._known_finite[i] = array
        return True

    def _is_empty(self, arrays: list[Any]) -> bool:
        """Whether an array of the segment has no elements, as far as its inputs tell."""
        shapes = tuple([x.shape for x in arrays])
        found = self._empty.get(shapes)
        if found is None:
            sizes = sizes_of(self.graph, arrays)
            told = [size for size in self._open_sizes if sizes.keys() >= set(size.names)]
            found = any(size.evaluate(sizes) == 0 for size in told)
            if len(self._empty) >= MOST_SHAPES:
                self._empty.clear()
            self._empty[shapes] = found
        return found

    def _choice(self, arrays: list[Any]) -> tuple[Mapping[int, Any], Callable[..., Any]]:
        """The inputs that are constants of the model that runs now, and this model."""
        with self._lock:
            frozen = self._frozen
            if frozen is not None:
                if all(arrays[i] is array for i, array in frozen[0].items()):
                    return frozen
                self._frozen = None
                self._changes += 1
            elif self._last is not None:
                same = {
                    i: x for i, x in enumerate(arrays) if x is self._last[i] and i not in self._open
                }
                if same and len(same) < len(arrays):
                    self._last = None
                    try:
                        self._frozen = same, self.session(self._made(same))
                        return self._frozen
                    except Exception:  # the model with all inputs runs, or says what is wrong
                        self._changes = MOST_CHANGES
            self._last = list(arrays) if self._changes < MOST_CHANGES else None
            if self._plain is None:
                self._plain = self.session(self._model)
            return {}, self._plain


def _read_often(graph: Graph) -> set[Value]:
    """Inputs and constants that several nodes read, also through views; a loop reads often."""
    users = graph.users()

    def readers(value: Value) -> int:
        found = 0
        for node in users.get(value, ()):
            views = node.op.view and node.outputs
            found += sum(map(readers, node.outputs)) if views else 2 if node.op.nested else 1
        return found

    made = [node.out for node in graph.nodes if node.op is CONSTANT]
    return {value for value in (*graph.inputs, *made) if readers(value) > 1}


def _hoisted(graph: Graph) -> tuple[Graph, list[Any]]:
    """The graph with arrays among its constants that are read often as further inputs."""
    graph = graph.clone()
    found = [v for v in _read_often(graph) if v.node is not None and v.tensor_type.ndim > 1]
    nodes = {value.node for value in found}
    graph.nodes[:] = [node for node in graph.nodes if node not in nodes]
    arrays = [value.node.attrs["value"].array for value in found if value.node is not None]
    for number, value in enumerate(found, len(graph.inputs)):
        value.node, value.index = None, number
    graph.inputs = (*graph.inputs, *found)
    return graph, arrays


def _contiguous(array: Any) -> Any:
    return np.ascontiguousarray(array) if array.ndim else array


def _open_sizes(graph: Graph) -> list[Dim]:
    """The sizes of arrays in a graph that may be 0."""
    shapes = [
        value.type.shape
        for part in graph.walk()
        for value in part.values()
        if isinstance(value.type, TensorType)
    ]
    return [size for size in set(dims_in(shapes)) if not known_less(0, size)]


def computes_sizes(graph: Graph) -> bool:
    """Whether sizes in a graph depend on values: nobody knows before a run whether they are 0."""
    return any(map(local_sizes, graph.walk()))


def is_small(graph: Graph) -> bool:
    """Whether a segment needs no threads of its own."""
    return sum(node_seconds(node, _FLOPS) for node in graph.nodes) < SMALL


def has_doubles(graph: Graph) -> bool:
    """Whether a graph computes in float64."""
    return any(
        value.type.dtype is dtypes.float64
        for part in graph.walk()
        for value in part.values()
        if isinstance(value.type, TensorType)
    )
