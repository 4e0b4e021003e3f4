"""Draws the dynamic graph of a tensor."""

from __future__ import annotations

from typing import Any

from weft.autodiff.node import AccumulateGrad, Node, OpNode, PartNode
from weft.core.tensor import Tensor
from weft.inspect.view.drawing import Drawing, Item
from weft.ir.attribute_text import AttributeText

__all__ = ["draw_tensor"]


def draw_tensor(tensor: Tensor) -> Drawing:
    """The drawing of the calls that computed a tensor, through which its backward will go."""
    drawing = Drawing("tensor", "dynamic graph")
    drawing.notes = ["recorded while the program ran; backward goes through it from the end"]
    drawing.scope("dynamic graph", -1)
    texts = AttributeText({})
    numbers: dict[Node, int] = {}
    for node in _in_order(tensor._node):
        at = numbers[node] = drawing.add(_item(node, texts))
        for edge in node.edges:
            if edge is not None:
                result = edge.index if isinstance(edge, PartNode) else 0
                drawing.edges.append((numbers[_whole(edge)], at, result))
    last = Item("result", "tensor", note=str(tensor.type), role="forward")
    last.outputs = [("", str(tensor.type), tensor.nbytes)]
    at = drawing.add(last)
    if tensor._node is not None:
        part = tensor._node
        result = part.index if isinstance(part, PartNode) else 0
        drawing.edges.append((numbers[_whole(part)], at, result))
    return drawing


def _whole(node: Node) -> Node:
    """The whole node, if `node` stands for one of its results."""
    return node.parent if isinstance(node, PartNode) else node


def _in_order(root: Node | None) -> list[Node]:
    """All nodes that a node depends on, and itself, in topological order."""
    seen: set[Node] = set()
    waiting = [] if root is None else [_whole(root)]
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting += [_whole(edge) for edge in node.edges if edge is not None]
    return sorted(seen, key=lambda node: node.number)


def _item(node: Node, texts: AttributeText) -> Item:
    if isinstance(node, AccumulateGrad):
        leaf = node.variable
        kind: Any = node.shape if leaf is None else leaf.type
        item = Item("leaf", "leaf", note=str(kind), role="forward")
        item.outputs = [("", str(kind), None if leaf is None else leaf.nbytes)]
        item.more["gradient"] = "added to .grad of this tensor"
        return item
    item = Item("op", node.forward_name(), role="forward", location=node.location)
    item.path = tuple(item.module.split(".")) if item.module else ()
    item.more["backward"] = node.name()
    if isinstance(node, OpNode):
        item.attrs = {name: texts.value(value) for name, value in node.attrs.items()}
        kept = {id(array): array.nbytes for array in node.kept or () if hasattr(array, "nbytes")}
        item.more["kept for backward"] = f"{sum(kept.values())} bytes"
    shape = ",".join(map(str, node.shape))
    item.outputs = [("", f"[{shape}]", None)]
    return item
