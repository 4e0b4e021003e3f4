"""Rows of control flow: `if` and `switch` as If, `while` and `scan` as Loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.dim_algebra import known_less
from weft.base.dims import dims_in
from weft.interop.onnx.indexing import reshaped
from weft.interop.onnx.table import row, unsupported, write_graph
from weft.interop.onnx.writer import Writer
from weft.ir.graph import Graph, Node
from weft.ir.sizes import local_sizes
from weft.ir.types import TensorType


def _check(node: Node) -> None:
    for value in (*node.inputs, *node.outputs):
        if not isinstance(value.type, TensorType):
            raise unsupported(
                node,
                f"carries {'an order of effects' if str(value.type) == 'token' else 'a list'}, "
                "which ONNX has not",
                "leave print and assert out of what is exported; in the place of a list that "
                "grows, use weft.scan, which stacks what each iteration gives",
            )


def _branch(w: Writer, graph: Graph, given: Sequence[str]) -> Any:
    """A nested graph as a branch: it uses the values around it by their names."""
    inner = Writer(w)
    inner.begin(graph, given)
    results = [inner.given(name) for name in write_graph(inner, graph)]
    infos = [
        inner.value_info(name, value.tensor_type)
        for name, value in zip(results, graph.outputs, strict=True)
    ]
    return inner.graph(w.name(graph.name), [], infos)


@row("if")
def _if(w: Writer, node: Node, predicate: str, *operands: str) -> list[str]:
    _check(node)
    then, other = (_branch(w, graph, operands) for graph in node.graphs)
    return w.calls("If", len(node.outputs), predicate, then_branch=then, else_branch=other)


@row("switch")
def _switch(w: Writer, node: Node, index: str, *operands: str) -> list[str]:
    """A chain of If: an index beyond the branches is the nearest one."""
    _check(node)
    at = w.cast(index, dtypes.int64)
    return _chosen(w, node, at, operands, 0)


def _chosen(w: Writer, node: Node, at: str, operands: Sequence[str], first: int) -> list[str]:
    graphs = node.graphs[first:]
    if len(graphs) == 1:
        w.begin(graphs[0], operands)
        return [w.given(name) for name in write_graph(w, graphs[0])]
    is_first = w.call("LessOrEqual", at, w.number(first, dtypes.int64))
    inner = Writer(w)
    results = _chosen(inner, node, at, operands, first + 1)
    outputs = [
        inner.value_info(name, value.tensor_type)
        for name, value in zip(results, graphs[1].outputs, strict=True)
    ]
    other = inner.graph(w.name("other"), [], outputs)
    then = _branch(w, graphs[0], operands)
    return w.calls("If", len(node.outputs), is_first, then_branch=then, else_branch=other)


# --- loops ---------------------------------------------------------------------------------------


class _Body:
    """The body of a Loop in the making: its formal inputs, and the names of its carries."""

    def __init__(self, w: Writer, carries: Sequence[Any]) -> None:
        self.w = Writer(w)
        self.count, self.going = self.w.name("i"), self.w.name("going")
        self.carries = [self.w.name("carried") for _ in carries]
        number = TensorType(dtypes.int64, ())
        self.inputs = [
            self.w.value_info(self.count, number),
            self.w.value_info(self.going, TensorType(dtypes.bool, ())),
            *[
                self.w.value_info(name, value.tensor_type)
                for name, value in zip(self.carries, carries, strict=True)
            ],
        ]

    def finish(self, going: str, results: Sequence[str], kinds: Sequence[Any], name: str) -> Any:
        w = self.w
        made = [w.given(x) for x in (going, *results)]
        types = [TensorType(dtypes.bool, ()), *kinds]
        infos = [w.value_info(x, kind) for x, kind in zip(made, types, strict=True)]
        return w.graph(w.name(name), self.inputs, infos)


@row("while")
def _while(w: Writer, node: Node, *operands: str, consts: int, counted: bool) -> list[str]:
    condition, body = node.graphs
    fixed, carried = operands[:consts], operands[consts:]
    if counted:
        raise unsupported(
            node, "counts its iterations for a gradient", "export what needs no gradient"
        )
    _check(node)
    w.begin(condition, operands)
    (going,) = write_graph(w, condition)
    made = _Body(w, node.inputs[consts:])
    made.w.begin(body, [*fixed, *made.carries])
    results = write_graph(made.w, body)
    made.w.begin(condition, [*fixed, *results])
    (again,) = write_graph(made.w, condition)
    kinds = [value.tensor_type for value in node.outputs]
    graph = made.finish(again, results, kinds, body.name)
    return w.calls("Loop", len(node.outputs), "", going, *carried, body=graph)


@row("scan")
def _scan(
    w: Writer, node: Node, *operands: str,
    consts: int, carries: int, length: int, reverse: bool,
) -> list[str]:  # fmt: skip
    _check(node)
    (body,) = node.graphs
    if local_sizes(body) & {
        n for v in body.outputs for d in dims_in(v.tensor_type.shape) for n in d.names
    }:
        raise unsupported(node, "has results of a size that depends on values")
    fixed, carried = operands[:consts], operands[consts : consts + carries]
    made = _Body(w, node.inputs[consts : consts + carries])
    at = made.count
    if reverse:
        last = w.call("Squeeze", w.size(length - 1), w.const(np.zeros(1, np.int64)))
        at = made.w.call("Sub", last, at)
    rows = [made.w.call("Gather", x, at, axis=0) for x in operands[consts + carries :]]
    made.w.begin(body, [*fixed, *made.carries, *rows])
    results = write_graph(made.w, body)
    kinds = [value.tensor_type for value in body.outputs]
    graph = made.finish(made.going, results, kinds, body.name)
    trips = w.call("Squeeze", w.size(length), w.const(np.zeros(1, np.int64)))
    found = w.calls("Loop", len(node.outputs), trips, "", *carried, body=graph)
    if not known_less(0, length):  # of no rounds, engines do not know the shape of what they stack
        shapes = [value.tensor_type.shape for value in node.outputs[carries:]]
        stacked = [reshaped(w, y, s) for y, s in zip(found[carries:], shapes, strict=True)]
        found = [*found[:carries], *stacked]
    if not reverse:
        return found
    axis, step = w.const(np.zeros(1, np.int64)), w.const(np.array([-1]))
    start, end = w.const(np.array([-1])), w.const(np.array([-(2**62)]))
    ys = [w.call("Slice", y, start, end, axis, step) for y in found[carries:]]
    return [*found[:carries], *ys]
