"""The table of rows, one for each op that ONNX has operators for, and how a node is written.

A row is a function `(w, node, *inputs, **attrs)` that writes the nodes of ONNX with a `Writer` and
returns the name of the result, or a tuple of names. Composite ops without a row are taken apart
before, into ops that have one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from weft.base.dtypes import DType
from weft.base.errors import GraphError, WeftError
from weft.interop.onnx.library import COMPUTED_IN
from weft.interop.onnx.writer import Writer
from weft.ir.graph import Graph, Node
from weft.ir.op import Trait
from weft.ir.types import TensorType

__all__ = ["ROWS", "computed", "kind_of", "row", "unsupported", "write_graph"]

Write = Callable[..., str | Sequence[str]]


@dataclass(frozen=True, slots=True)
class Row:
    """How an op is written.

    computes    whether it computes: then narrow floats and small integers are widened before it
    """

    write: Write
    computes: bool = False


#: By the name of the op.
ROWS: dict[str, Row] = {}


def row(*names: str, computes: bool = False) -> Callable[[Write], Write]:
    """Enter a function as the row of some ops."""

    def enter(write: Write) -> Write:
        for name in names:
            ROWS[name] = Row(write, computes)
        return write

    return enter


def computed(dtype: DType) -> DType:
    """The dtype in which a row that computes sees operands of a dtype."""
    return COMPUTED_IN.get(dtype, dtype)


def kind_of(node: Node, operand: int = 0) -> DType:
    """The dtype in which a row that computes sees an operand."""
    return computed(node.inputs[operand].tensor_type.dtype)


def write_graph(w: Writer, graph: Graph) -> list[str]:
    """Write all nodes of a graph; its inputs have names. Returns the names of its outputs."""
    for node in graph.nodes:
        before, w.node = w.node, node
        try:
            _write_node(w, node)
        except WeftError as error:
            error.op = error.op or "onnx.export"
            error.location = node.location or error.location
            raise
        finally:
            w.node = before
    return [w[value] for value in graph.outputs]


def _write_node(w: Writer, node: Node) -> None:
    found = ROWS.get(node.op.name)
    if found is None:
        raise unsupported(node)
    given = [w[value] for value in node.inputs]
    if found.computes:
        given = [
            _widened(w, name, value.type) for name, value in zip(given, node.inputs, strict=True)
        ]
    made = found.write(w, node, *given, **node.attrs)
    names = [made] if isinstance(made, str) else list(made)
    for value, name in zip(node.outputs, names, strict=True):
        if found.computes and isinstance(value.type, TensorType):
            dtype = value.type.dtype
            name = w.cast(name, dtype) if dtype in COMPUTED_IN else name
        w.names[value] = name
        w.told_by(name, value.type)


def _widened(w: Writer, name: str, kind: Any) -> str:
    wide = COMPUTED_IN.get(kind.dtype)
    return name if wide is None else w.cast(name, wide)


_REASONS = (
    (Trait.RANDOM, "draws random numbers, and generators of ONNX give other ones",
     "call model.eval(), or take the numbers as an argument"),
    (Trait.PYTHON, "calls Python", "leave it out of what is exported"),
    (Trait.STACK, "works on a list that grows, which ONNX has not",
     "in the place of `parts.append(…)` in a loop and weft.stack, use weft.scan, which stacks what "
     "each iteration gives"),
)  # fmt: skip


def unsupported(node: Node, why: str = "", hint: str = "") -> GraphError:
    """The error for a node that no operator of ONNX stands for."""
    for trait, reason, fix in _REASONS:
        if not why and trait in node.op.traits:
            why, hint = reason, fix
    error = GraphError(
        f"{node.op.name} {why or 'has no operator in ONNX'}",
        op="onnx.export",
        operands=[value.type for value in node.inputs],
        hint=hint
        or f'leave it out of what is exported, or give it a row: @weft.onnx.row("{node.op.name}")',
    )
    error.location = node.location or error.location
    return error
