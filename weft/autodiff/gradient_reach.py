"""Which inputs of a graph gradients of its outputs may reach: `gradient_flow`, from the end."""

from __future__ import annotations

from collections.abc import Container, Sequence

from weft.autodiff.gradient_flow import active_values, carried_active
from weft.ir.graph import Graph, Node, Value
from weft.ir.types import StackType
from weft.ops.cards import (
    ADD,
    IDENTITY,
    LIST_OF,
    LIST_ONLY,
    ONLY_WHERE,
    PERMUTE_DIMS,
    RESHAPE,
    SCAN,
    SCATTER_ADD,
    STACK_ADD,
    STACK_PUSH,
    STACK_ZEROS,
    WHILE,
)


def reached_inputs(graph: Graph, active: set[Value], outputs: Sequence[bool]) -> list[bool]:
    """The inputs that gradients of these outputs may reach, along active values."""
    reached = {
        value for value, on in zip(graph.outputs, outputs, strict=True) if on and value in active
    }
    for node in reversed(graph.nodes):
        wanted = [value in reached for value in node.outputs]
        if True in wanted:
            operands = _reached_operands(node, [value in active for value in node.inputs], wanted)
            pairs = zip(node.inputs, operands, strict=True)
            reached.update(value for value, on in pairs if on and value in active)
    return [value in reached for value in graph.inputs]


def flowing_carries(
    body: Graph,
    active: set[Value],
    consts: int,
    inner: Sequence[bool],
    carried: Sequence[bool],
    ys: Sequence[bool],
) -> list[bool]:
    """The carries of a loop that have a gradient in some iteration.

    inner     carries that are active inside
    carried   carries whose results have a gradient after the loop
    ys        the same for the ys
    """
    flowing = [on and given for on, given in zip(inner, carried, strict=True)]
    while True:  # a gradient of one carry may reach others
        reached = reached_inputs(body, active, [*flowing, *ys])[consts : consts + len(inner)]
        after = [a or (b and on) for a, b, on in zip(flowing, reached, inner, strict=True)]
        if after == flowing:
            return flowing
        flowing = after


def _reached_operands(node: Node, operands: list[bool], wanted: list[bool]) -> list[bool]:
    """Which operands of a node gradients of its wanted results may reach."""
    if node.op.branch:
        sides = [
            reached_inputs(graph, active_values(graph, operands[1:]), wanted)
            for graph in node.graphs
        ]
        return [False, *[any(column) for column in zip(*sides, strict=True)]]
    if node.op is WHILE:
        carries = len(operands) - node.attrs["consts"]
        return _reached_by_loop(node, operands, wanted[:carries], wanted[carries + 1 :])
    if node.op is SCAN:
        carries = node.attrs["carries"]
        return _reached_by_loop(node, operands, wanted[:carries], wanted[carries:])
    return [True] * len(operands)


def _reached_by_loop(
    node: Node, operands: list[bool], carried: list[bool], ys: list[bool]
) -> list[bool]:
    body = node.graphs[-1]
    consts, end = node.attrs["consts"], node.attrs["consts"] + len(carried)
    inner = carried_active(body, operands, consts, len(carried))
    active = active_values(body, [*operands[:consts], *inner, *operands[end:]])
    flowing = flowing_carries(body, active, consts, inner, carried, ys)
    reached = reached_inputs(body, active, [*flowing, *ys])
    return [*reached[:consts], *flowing, *reached[end:]]


#: Ops that put a gradient among zeros, and ops that keep zeros zeros.
_AMONG_ZEROS = (LIST_ONLY, SCATTER_ADD, STACK_ZEROS)
_PASS_ZEROS = (STACK_ADD, ADD, LIST_OF, RESHAPE, PERMUTE_DIMS, IDENTITY)


def has_gaps(cotangent: Value, known: Container[Value]) -> bool:
    """Whether a cotangent is zeros for elements of a list, or iterations, that were not used.

    `known` are cotangents that have gaps.
    """
    waiting, is_stack = [cotangent], isinstance(cotangent.type, StackType)
    while waiting:
        value = waiting.pop()
        if value in known:
            continue
        node = value.node
        if node is not None and node.op in _PASS_ZEROS:
            waiting += node.inputs
        elif node is not None and node.op is STACK_PUSH:
            waiting.append(node.inputs[0])
        elif node is not None and node.op is ONLY_WHERE:
            waiting.append(node.inputs[1])
        elif node is None or not is_stack or node.op not in _AMONG_ZEROS:
            return False
    return True
