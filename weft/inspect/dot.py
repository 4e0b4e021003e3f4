"""Graphs in the DOT language of Graphviz."""

from __future__ import annotations

from collections import deque

from weft.autodiff.node import AccumulateGrad, Node, OpNode, PartNode
from weft.core.tensor import Tensor

__all__ = ["to_dot"]

BREAK = "\\n"  # a line break in a label


def to_dot(tensor: Tensor) -> str:
    """The dynamic graph that computed a tensor, in the DOT language: `dot -Tsvg`.

    >>> x = weft.tensor([1.0, 2.0], requires_grad=True)
    >>> print(weft.inspect.to_dot((x * x).sum()))
    digraph {
      rankdir=TB; node [shape=box, fontname="monospace"];
      result [label="f32[]", style=rounded];
      n0 [label="sum\\n()"];
      n1 [label="multiply\\n(2,)\\nkeeps 8 bytes"];
      n2 [label="leaf\\nf32[2]", style=filled, fillcolor="#cfe8cf"];
      n0 -> result;
      n1 -> n0;
      n2 -> n1;
      n2 -> n1;
    }
    """
    lines = ["digraph {", '  rankdir=TB; node [shape=box, fontname="monospace"];']
    lines.append(f'  result [label="{tensor.type}", style=rounded];')
    names: dict[Node, str] = {}
    arrows: list[str] = []
    root = _whole(tensor._node)
    queue = deque([root] if root is not None else [])
    order: list[Node] = []
    while queue:
        node = queue.popleft()
        if node in names:
            continue
        names[node] = f"n{len(names)}"
        order.append(node)
        queue.extend(edge for edge in map(_whole, node.edges) if edge is not None)
    for node in order:
        lines.append(f"  {names[node]} {_label(node)};")
        inputs = [edge for edge in map(_whole, node.edges) if edge is not None]
        arrows += [f"  {names[edge]} -> {names[node]};" for edge in inputs]
    if root is not None:
        arrows.insert(0, f"  {names[root]} -> result;")
    return "\n".join([*lines, *arrows, "}"])


def _whole(node: Node | None) -> Node | None:
    """The whole node, if `node` stands for one of its results."""
    return node.parent if isinstance(node, PartNode) else node


def _label(node: Node) -> str:
    if isinstance(node, AccumulateGrad):
        leaf = node.variable
        kind = node.shape if leaf is None else leaf.type
        return f'[label="leaf\\n{kind}", style=filled, fillcolor="#cfe8cf"]'
    lines = [node.op.name if isinstance(node, OpNode) else node.name(), str(node.shape)]
    if isinstance(node, OpNode):
        kept = sum({id(k): k.nbytes for k in node.kept if hasattr(k, "nbytes")}.values())
        lines += [f"keeps {kept} bytes"] if kept else []
    return f'[label="{BREAK.join(lines)}"]'
