"""Values of a product's epilogue, or of loops, that are computed again where they are used, and not
written.

A backward uses much of what its forward had in registers: of gelu(x @ w + b) it uses x @ w + b, the
erf and the exp. All of them can be computed from x @ w. Where that moves fewer bytes, only x @ w is
written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from weft.base.dims import typical
from weft.ir.graph import Graph, Node, Value
from weft.schedule.groups import Group, Leaf, Operand
from weft.schedule.inline_cheap import Recipe
from weft.schedule.nodes import is_view, tensor_type
from weft.schedule.views import dense

__all__ = ["bytes_written", "kept", "recipes", "roots_of"]

MOST = 16  # maximum nodes that are recomputed for one value
DEAR = 2  # maximum expensive ones among them: exp, erf…


def kept(graph: Graph, in_loops: Callable[[Node], bool]) -> set[Value]:
    """Values that are written to memory anyway, because other kernels than loops read them."""
    found: set[Value] = set(graph.outputs)
    for node in reversed(graph.nodes):
        if is_view(node):
            if node.outputs[0] in found:
                found.update(node.inputs)
        elif not in_loops(node):
            found.update(node.inputs)
    return found


def recipes(
    value: Value, home: Group, in_memory: Callable[[Value], bool]
) -> dict[Value, Recipe] | None:
    """How to compute a value of a group from values in memory, with the result of a product among
    these. None if that takes too many nodes, or needs views.
    """
    first = home.nodes[0].outputs[0] if home.kind != "loop" else None

    def lies(operand: Operand) -> bool:
        return isinstance(operand, Value) and (operand is first or in_memory(operand))

    found: dict[Value, Recipe] = {}
    stack = [value]
    while stack:
        top = stack[-1]
        node = top.node
        if top in found:
            stack.pop()
            continue
        if node is None or not node.op.elementwise or top not in home.maps or top in home.after:
            return None
        given = home.operands[node]
        pairs = zip(node.inputs, given, strict=True)
        if len(stack) + len(found) > MOST or any(
            isinstance(op, Value) and op is not x for x, op in pairs
        ):
            return None
        inner = [op for op in given if isinstance(op, Value) and not lies(op)]
        open_ = [op for op in inner if op not in found]
        if open_:
            stack += open_
            continue
        operands: tuple[Operand, ...] = tuple(
            Leaf(op, dense(tensor_type(op).shape)) if isinstance(op, Value) and lies(op) else op
            for op in given
        )
        found[top] = Recipe(node, operands, 1 + sum(found[op].count for op in inner))
        stack.pop()
    dear = sum(not made.node.op.cheap for made in found.values())
    return found if dear <= DEAR else None


def roots_of(found: Mapping[Value, Recipe]) -> dict[Value, None]:
    """The buffers that recipes read."""
    operands = [op for made in found.values() for op in made.operands]
    return {op.root: None for op in operands if isinstance(op, Leaf)}


def bytes_written(
    home: Group, users: Mapping[Value, Sequence[Node]], in_memory: Callable[[Value], bool]
) -> int:
    """The bytes that a group would write only for other groups."""
    inside = set(home.nodes)
    return sum(
        typical(tensor_type(value).nbytes)
        for node in home.nodes[home.kind != "loop" :]
        for value in node.outputs
        if not in_memory(value) and any(user not in inside for user in users.get(value, ()))
    )
