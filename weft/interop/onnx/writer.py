"""One ONNX graph in the making.

Rows of the tables write nodes with it: `w.call("Add", a, b)` gives the name of the result. Branches
and bodies of loops are graphs of their own, which see the values of the graphs around them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.dim_algebra import Dim
from weft.base.dims import dims_in, has_dims
from weft.base.dtypes import DType, dtype_of_numpy
from weft.base.errors import UnknownSizeError
from weft.interop.onnx.library import element_type, onnx_library
from weft.ir.graph import Graph, Node, Value
from weft.ir.types import TensorType

__all__ = ["Writer"]


class _Model:
    """What all graphs of a model share: names, initializers, and the sizes of the inputs.

    first   nodes that compute sizes of inputs: they come before all others
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.initializers: list[Any] = []
        self.constants: dict[Any, str] = {}
        self.first: list[Any] = []
        self.counts = itertools.count()


class Writer:
    """Writes the nodes of one graph.

    names   of the values of the Weft graph
    node    the node that is being written: its line goes into the model
    """

    def __init__(self, around: Writer | None = None) -> None:
        self.around = around
        self.model: _Model = around.model if around else _Model()
        self.nodes: list[Any] = []
        self.names: dict[Value, str] = {}
        self.node: Node | None = around.node if around else None
        self._sizes: dict[str, str] = {}  # one element, int64, by name
        self._tells: dict[str, tuple[str, int, int, int]] = {}  # axis = factor * size + rest
        self._made: set[str] = set()  # what nodes of this graph give

    # --- names --------------------------------------------------------------------------------

    def name(self, wanted: str = "") -> str:
        """A name that nothing in the model has."""
        made = wanted
        while not made or made in self.model.names:
            made = f"{wanted or 'v'}_{next(self.model.counts)}"
        self.model.names.add(made)
        return made

    def __getitem__(self, value: Value) -> str:
        found = self.names.get(value)
        assert found is not None, value
        return found

    # --- nodes --------------------------------------------------------------------------------

    def call(self, op: str, *inputs: str, **attrs: Any) -> str:
        """The result of an ONNX operator."""
        return self.calls(op, 1, *inputs, **attrs)[0]

    def calls(self, op: str, outputs: int, *inputs: str, **attrs: Any) -> list[str]:
        """The results of an ONNX operator. An input that is left out is ""."""
        made = [self.name() for _ in range(outputs)]
        self._add(self.nodes, op, inputs, made, attrs)
        self._made.update(made)
        return made

    def add_named(self, op: str, x: str, output: str) -> None:
        """A node whose result has a name that was chosen."""
        self._add(self.nodes, op, [x], [output], {})

    def _add(
        self, nodes: list[Any], op: str, inputs: Sequence[str], outputs: Sequence[str], attrs: Any
    ) -> None:
        for key, value in attrs.items():
            sizes = value if isinstance(value, (list, tuple)) else (value,)
            if any(isinstance(size, Dim) for size in sizes):
                raise UnknownSizeError(
                    f"{op} of ONNX takes {key} as numbers, not {value}",
                    hint="give the sizes as numbers",
                )
        label = self.name(f"{self.node.op.name if self.node else op}_{next(self.model.counts)}")
        made = onnx_library().helper.make_node(op, list(inputs), list(outputs), name=label, **attrs)
        if self.node is not None and self.node.location is not None:
            made.doc_string = str(self.node.location)
        nodes.append(made)

    # --- constants ----------------------------------------------------------------------------

    def const(self, array: Any, name: str = "") -> str:
        """An initializer; equal small ones are one."""
        array = np.asarray(array)
        key = (array.dtype, array.shape, array.tobytes()) if array.size <= 64 and not name else None
        found = self.model.constants.get(key) if key else None
        if found is not None:
            return found
        made = self.name(name or "c")
        self.model.initializers.append(tensor_proto(array, made))
        if key:
            self.model.constants[key] = made
        return made

    def number(self, value: Any, dtype: DType) -> str:
        """A number without axes."""
        return self.const(np.asarray(value).astype(dtype.numpy))

    def ints(self, values: Sequence[int]) -> str:
        """Integers along one axis: a shape, axes, bounds; where sizes are symbolic, computed."""
        if not has_dims(values):
            return self.const(np.asarray(values, dtype=np.int64).reshape(-1))
        return self.call("Concat", *map(self.size, values), axis=0)

    def cast(self, x: str, dtype: DType) -> str:
        """x in another dtype, as the engine converts it: for values that fit."""
        return self.call("Cast", x, to=element_type(dtype))

    # --- sizes --------------------------------------------------------------------------------

    def size(self, size: int) -> str:
        """A size as int64 with one axis of one element."""
        if not isinstance(size, Dim):
            return self.const(np.array([size], dtype=np.int64))
        total = ""
        for monomial, factor in size._terms:
            term = self.const(np.array([factor], dtype=np.int64)) if factor != 1 else ""
            for atom in monomial:
                part = self._atom(atom)
                term = self.call("Mul", term, part) if term else part
            term = term or self.const(np.array([factor], dtype=np.int64))
            total = self.call("Add", total, term) if total else term
        return total

    def _atom(self, atom: Any) -> str:
        if atom.kind == "name":
            return self._named(atom.text)
        args = [self.size(arg) for arg in atom.args]
        if atom.kind == "max":
            return self.call("Max", args[0], self.const(np.zeros(1, np.int64)))
        rest = self.call("Mod", *args)  # with the sign of the divisor, as in Python
        if atom.kind == "%":
            return rest
        return self.call("Div", self.call("Sub", args[0], rest), args[1])

    def _named(self, name: str) -> str:
        at: Writer | None = self
        while at is not None:
            if name in at._sizes:
                return at._sizes[name]
            if name in at._tells:
                return at._measure(name)
            at = at.around
        raise UnknownSizeError(f"no input of the model tells the size {name}")

    def _measure(self, name: str) -> str:
        """A size, computed in the graph whose value tells it."""
        value, axis, factor, rest = self._tells[name]
        from_input = value not in self._made
        nodes = self.model.first if from_input and self.around is None else self.nodes
        found = self.name(name)
        before, self.nodes = self.nodes, nodes
        try:
            self._add(nodes, "Shape", [value], [found], {"start": axis, "end": axis + 1})
            if rest:
                found = self.call("Sub", found, self.size(rest))
            if factor != 1:
                found = self.call("Div", found, self.size(factor))
        finally:
            self.nodes = before
        self._sizes[name] = found
        return found

    def told_by(self, value: str, kind: Any) -> None:
        """Note the sizes that the shape of a value tells."""
        if not isinstance(kind, TensorType):
            return
        for axis, size in enumerate(kind.shape):
            for found in dims_in((size,)):
                self._note(value, axis, found)

    def _note(self, value: str, axis: int, size: Dim) -> None:
        terms = dict(size._terms)
        rest = terms.pop((), 0)
        if len(terms) != 1:
            return
        ((monomial, factor),) = terms.items()
        if len(monomial) != 1 or monomial[0].kind != "name":
            return
        name = monomial[0].text
        at: Writer | None = self
        while at is not None:
            known = at._tells.get(name)
            if name in at._sizes or (known is not None and known[2:] == (1, 0)):
                return
            at = at.around
        self._tells[name] = (value, axis, factor, rest)

    # --- graphs -------------------------------------------------------------------------------

    def value_info(self, name: str, kind: TensorType) -> Any:
        shape = [str(n) if isinstance(n, Dim) else n for n in kind.shape]
        helper = onnx_library().helper
        return helper.make_tensor_value_info(name, element_type(kind.dtype), shape)

    def given(self, value: str) -> str:
        """A value under a name of this graph: an output must be made in the graph itself."""
        return self.call("Identity", value)

    def graph(self, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """The graph as it is written; that of a model has the initializers."""
        helper = onnx_library().helper
        if self.around is not None:
            return helper.make_graph(self.nodes, name, list(inputs), list(outputs))
        nodes = [*self.model.first, *self.nodes]
        return helper.make_graph(nodes, name, list(inputs), list(outputs), self.model.initializers)

    def begin(self, graph: Graph, inputs: Sequence[str]) -> None:
        """Name the inputs of a Weft graph that is written here."""
        for value, name in zip(graph.inputs, inputs, strict=True):
            self.names[value] = name
            self.told_by(name, value.type)


def tensor_proto(array: Any, name: str) -> Any:
    """An array as the format has it."""
    made = onnx_library().TensorProto()
    made.name = name
    made.data_type = element_type(dtype_of_numpy(array.dtype))
    made.dims.extend(array.shape)
    made.raw_data = np.ascontiguousarray(array).tobytes()
    return made
