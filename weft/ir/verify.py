"""The rules of graphs, checked. A graph that passes can be run, printed and read back.

A pass takes valid graphs and gives valid graphs; tests verify between passes.
"""

from __future__ import annotations

import inspect
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from weft.base.dim_algebra import Dim
from weft.base.errors import GraphError, WeftError
from weft.ir.attribute_text import AttributeText
from weft.ir.contexts import Contexts, is_lowered
from weft.ir.infer import infer_types
from weft.ir.op import Op
from weft.ir.order import topological_order
from weft.ir.text import Printer, value_names
from weft.ir.types import TOKEN, TensorType, Type, fits

if TYPE_CHECKING:
    from weft.ir.graph import Graph, Node, Value


def verify_graph(graph: Graph) -> None:
    """Check all rules, in nested graphs too; a GraphError names the first that is broken."""
    seen: set[Graph] = set()
    waiting = [graph]
    while waiting:
        part = waiting.pop()
        if part in seen:
            raise GraphError(
                f"the graph @{part.name} stands in two places, or in itself",
                hint="nested graphs are not shared: use graph.clone()",
            )
        seen.add(part)
        _Check(part).run()
        for node in part.nodes:
            waiting.extend(node.graphs)


class _Check:
    """The check of one graph, without its nested graphs."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.defined: set[Value] = set()
        self.used_tokens: set[Value] = set()
        self.names: dict[str, Value] = {}

    def run(self) -> None:
        graph = self.graph
        for i, value in enumerate(graph.inputs):
            if value.node is not None or value.index != i:
                self.fail(f"input {i} is a result, or another input: {value!r}")
            self.define(value)
        for node in graph.nodes:
            self.use(node)
            self.check_call(node)
            self.check_results(node)
        for value in graph.outputs:
            if value not in self.defined:
                self.fail(f"the output {value!r} is not a value of the graph")
            self.use_token(value, None)
        if is_lowered(graph):
            Contexts(graph)

    def define(self, value: Value, node: Node | None = None) -> None:
        if value in self.defined:
            self.fail(f"{value!r} is defined twice", node)
        self.defined.add(value)
        if value.name and self.names.setdefault(value.name, value) is not value:
            self.fail(f"two values are named %{value.name}", node)

    def use(self, node: Node) -> None:
        for i, value in enumerate(node.inputs):
            if value not in self.defined:
                self.undefined(value, node)
            if node.op.flow != "next" or i:  # the first names a merge: no use of its value
                self.use_token(value, node)

    def use_token(self, value: Value, node: Node | None) -> None:
        if value.type == TOKEN:
            if value in self.used_tokens:
                self.fail(
                    f"the token {self.name_of(value)} is used twice, "
                    "so that the order of two effects is not known",
                    node,
                )
            self.used_tokens.add(value)

    def undefined(self, value: Value, node: Node) -> NoReturn:
        """Why an input is not defined here: a cycle, a wrong order, or another graph."""
        if value.node in self.graph.nodes and value in value.node.outputs:
            topological_order(self.graph)  # raises if there is a cycle, and names it
            self.fail(f"{self.name_of(value)} is used before it is defined", node)
        self.fail(f"the input {value!r} is not a value of the graph", node)

    def check_call(self, node: Node) -> None:
        """The number of inputs, the attributes and the nested graphs."""
        least, most, required, known = _signature(node.op)
        count = len(node.inputs)
        if count < least or (most is not None and count > most):
            wanted = str(least) if least == most else f"{least} or more"
            self.fail(f"{count} inputs for an op that takes {wanted}", node)
        names = node.attrs.keys()
        if not required <= names:
            self.fail(f"the attribute {min(required - names)} is missing", node)
        if known is not None and not names <= known:
            self.fail(f"the op has no attribute {min(names - known)}", node)
        if bool(node.graphs) != node.op.nested:
            self.fail("nested graphs are missing" if node.op.nested else "no nested graphs", node)
        if node.op.effect:
            given = node.inputs[0].type if node.inputs else None
            made = node.outputs[0].type if node.outputs else None
            if given != TOKEN or made != TOKEN:
                self.fail("an effect takes a token first and gives one first", node)

    def check_results(self, node: Node) -> None:
        for i, value in enumerate(node.outputs):
            if value.node is not node or value.index != i:
                self.fail(f"result {i} belongs to another node: {value!r}", node)
            self.define(value, node)
        try:
            types = infer_types(node.op, node.inputs, node.attrs, node.graphs)
        except (WeftError, TypeError, ValueError, AttributeError) as error:
            reason = error.message if isinstance(error, WeftError) else str(error)
            self.fail(f"the type rule refuses: {reason}", node)
        if len(types) != len(node.outputs):
            self.fail(f"{len(node.outputs)} results, and the type rule gives {len(types)}", node)
        free, flow = node.op.data_shape, node.op.flow
        for value, wanted in zip(node.outputs, types, strict=True):
            given = value.type
            if given.__class__ is TensorType and given.cuts is not None:
                given = given.cut(None)
            told = (free and _fits(given, wanted)) or (flow and fits(given, wanted))
            if given != wanted and not told:
                self.fail(f"{self.name_of(value)} is {wanted} by the type rule", node)

    # --- words --------------------------------------------------------------------------------

    def name_of(self, value: Value) -> str:
        return value_names(self.graph.values()).get(value, repr(value))

    def fail(self, message: str, node: Node | None = None) -> NoReturn:
        where = f"graph @{self.graph.name} is not valid: {message}"
        if node is None:
            raise GraphError(where)
        names = value_names(self.graph.values())
        line = Printer(AttributeText({}), False, False).call_text(node, names)
        error = GraphError(f"{where}\n  {line}")
        if node.location is not None:
            error.location = node.location
        raise error


def _fits(type: Type, wanted: Type) -> bool:
    """Whether a type matches that of a rule which does not know all sizes (names with _)."""
    if not isinstance(type, TensorType) or not isinstance(wanted, TensorType):
        return False
    if type.like(shape=()) != wanted.like(shape=()) or type.ndim != wanted.ndim:
        return False
    return all(
        a == b or (isinstance(b, Dim) and any(name.startswith("_") for name in b.names))
        for a, b in zip(type.shape, wanted.shape, strict=True)
    )


Signature = tuple[int, int | None, frozenset[str], frozenset[str] | None]


@cache
def _signature(op: Op) -> Signature:
    """The least and most inputs, the required attributes, and the allowed ones (None: any)."""
    parameters: list[Any] = list(inspect.signature(op.infer).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    least = sum(p.default is p.empty for p in positional)
    most = None if op.variadic else len(positional)
    attrs = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "graphs"]
    required = frozenset(p.name for p in attrs if p.default is p.empty)
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters)
    return least, most, required, None if anything else frozenset(p.name for p in attrs)
