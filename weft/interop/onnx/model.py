"""A graph as an ONNX model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft.interop.onnx import (  # noqa: F401  (rows)
    control,
    indexing,
    pooling,
    products,
    reductions,
    shifts,
)
from weft.interop.onnx.library import IR_VERSION, OPSET, onnx_library
from weft.interop.onnx.table import ROWS, unsupported, write_graph
from weft.interop.onnx.writer import Writer
from weft.ir.graph import Graph, Node, Value
from weft.passes.dead_code import DeadCode
from weft.passes.lowering.decompose import decompose
from weft.passes.stop_gradient import DropStopGradient

__all__ = ["model_of", "prepared", "unsupported_nodes"]


def _has_row(node: Node) -> bool:
    return node.op.name in ROWS


def prepared(graph: Graph) -> Graph:
    """The graph in ops that have rows, as far as it can be brought to them."""
    graph = DropStopGradient().run(graph)
    return DeadCode().run(decompose(graph, lambda _: False, _has_row))


def unsupported_nodes(graph: Graph) -> list[Node]:
    """The nodes of a prepared graph that have no row, those of nested graphs included."""
    return [node for part in graph.walk() for node in part.nodes if not _has_row(node)]


def model_of(
    graph: Graph,
    *,
    constants: Mapping[Value, Any] | None = None,
    constant_names: Mapping[Value, str] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> Any:
    """An `onnx.ModelProto` of a prepared graph.

    constants       inputs whose arrays are known: they become initializers
    input_names     of the other inputs, in order; by default the names of the values
    output_names    by default result_0, result_1, …
    """
    helper = onnx_library().helper
    for node in unsupported_nodes(graph):
        raise unsupported(node)
    known = constants or {}
    w = Writer()
    open_inputs = [value for value in graph.inputs if value not in known]
    wanted = input_names or [value.name for value in open_inputs]
    names = {value: w.name(name) for value, name in zip(open_inputs, wanted, strict=True)}
    ends = list(output_names or [f"result_{i}" for i in range(len(graph.outputs))])
    w.model.names.update(ends)
    for value, array in known.items():
        names[value] = w.const(array, (constant_names or {}).get(value, value.name) or "c")
    w.begin(graph, [names[value] for value in graph.inputs])
    made = write_graph(w, graph)
    for name, end in zip(made, ends, strict=True):
        w.add_named("Identity", name, end)
    inputs = [w.value_info(names[value], value.tensor_type) for value in open_inputs]
    outputs = [
        w.value_info(end, value.tensor_type) for end, value in zip(ends, graph.outputs, strict=True)
    ]
    model = helper.make_model(
        w.graph(graph.name, inputs, outputs),
        producer_name="weft",
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    return model
