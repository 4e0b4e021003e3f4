"""What follows a product in registers, computed again where it is used later, instead of written.

A backward asks for much of what its forward had in registers: of gelu(x @ w + b) for x @ w + b, the
erf and the exp in it. Each would be written and read again, though all of them follow from x @ w.
Where that moves fewer bytes, x @ w is written alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from weft.ir.graph import Graph, Node, Value
from weft.schedule.groups import Group, Leaf, Operand
from weft.schedule.inline_cheap import Floating
from weft.schedule.nodes import is_view, tensor_type
from weft.schedule.views import dense

__all__ = ["bytes_written", "kept", "recipes", "roots_of"]

MOST = 16  # nodes that are computed again at most, to compute one
DEAR = 2  # of them, those that take long: exp, erf…


def kept(graph: Graph, in_loops: Callable[[Node], bool]) -> set[Value]:
    """Values that lie in memory in any case: others than loops read them."""
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
) -> dict[Value, Floating] | None:
    """How a value that a product's group computes, and all that it needs of it, is computed of what
    lies in memory: the product itself among them. None if it is too much, or views are between."""
    first = home.nodes[0].outputs[0]

    def lies(operand: Operand) -> bool:
        return isinstance(operand, Value) and (operand is first or in_memory(operand))

    found: dict[Value, Floating] = {}
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
        found[top] = Floating(node, operands, 1 + sum(found[op].count for op in inner))
        stack.pop()
    dear = sum(not made.node.op.cheap for made in found.values())
    return found if dear <= DEAR else None


def roots_of(found: Mapping[Value, Floating]) -> dict[Value, None]:
    """The buffers that are read to compute them."""
    operands = [op for made in found.values() for op in made.operands]
    return {op.root: None for op in operands if isinstance(op, Leaf)}


def bytes_written(
    home: Group, users: Mapping[Value, Sequence[Node]], in_memory: Callable[[Value], bool]
) -> int:
    """The bytes that a product's group would write for others to read, beside what it does now."""
    inside = set(home.nodes)
    return sum(
        tensor_type(value).nbytes
        for node in home.nodes[1:]
        for value in node.outputs
        if not in_memory(value) and any(user not in inside for user in users.get(value, ()))
    )
