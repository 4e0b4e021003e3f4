"""Totals of matrices by way of their rows, where the rows and the columns are summed, too.

Loops over rows can sum up each row and each column, but not the columns and everything: with a
total they would leave what the columns are sums of in memory. Sums add in another order then.
"""

from __future__ import annotations

from weft.base.dims import has_dims
from weft.ir.graph import Builder, Graph, Node
from weft.ir.types import TensorType
from weft.ops.cards import SUM

__all__ = ["row_totals"]


def row_totals(graph: Graph) -> Graph:
    """The graph with such totals in two steps."""
    shapes: dict[tuple[int, ...], set[str]] = {}
    for node in graph.nodes:
        if node.op.reduction and _known(node):
            shapes.setdefault(node.inputs[0].tensor_type.shape, set()).add(_what(node))
    wanted = {shape for shape, found in shapes.items() if {"row", "columns", "total"} <= found}
    if not wanted:
        return graph
    builder = Builder(graph)
    for node in graph.nodes:
        is_total = node.op is SUM and _known(node) and _what(node) == "total"
        kept = not is_total or node.attrs["keepdims"]
        if kept or node.inputs[0].tensor_type.shape not in wanted:
            builder.copy(node)
            continue
        axes = tuple(sorted(node.attrs["axis"]))
        row, rest = ({**node.attrs, "axis": some} for some in (axes[-1:], axes[:-1]))
        rows = builder.add(SUM, builder[node.inputs[0]], like=node, **row)
        builder.forward(node.outputs, [builder.add(SUM, rows, like=node, **rest)])
    return builder.finish()


def _known(node: Node) -> bool:
    kind = node.inputs[0].type
    return isinstance(kind, TensorType) and len(kind.shape) > 1 and not has_dims(kind.shape)


def _what(node: Node) -> str:
    last = len(node.inputs[0].tensor_type.shape) - 1
    axes = {axis % (last + 1) for axis in node.attrs["axis"]}
    if axes == {last}:
        return "row"
    if len(axes) == last + 1:
        return "total"
    return "columns" if last not in axes else "other"
