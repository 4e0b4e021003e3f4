"""Canonical forms: one way to write each call, so that later passes need to match only one."""

from __future__ import annotations

from collections.abc import Callable

from weft.ir.graph import Graph, Node, Value
from weft.ir.literal import CONSTANT
from weft.ir.op import Op
from weft.ir.types import TensorType
from weft.ops.cards import (
    BROADCAST_TO,
    FULL,
    GREATER,
    GREATER_EQUAL,
    LESS,
    LESS_EQUAL,
    MULTIPLY,
    SQUARE,
)
from weft.passes.contract import Notes, Pass
from weft.passes.facts import (
    commutes_exactly,
    dense,
    is_constant,
    is_plain,
    number_of,
    of_kind,
    one_number,
)
from weft.passes.sweep import Sweep

Ranks = dict[Value, int]

#: A comparison with its sides exchanged.
MIRRORED = {
    LESS: GREATER,
    GREATER: LESS,
    LESS_EQUAL: GREATER_EQUAL,
    GREATER_EQUAL: LESS_EQUAL,
}


class Canonical(Pass):
    """Brings calls into one form: constants on the right, < instead of >, squares, `full`."""

    name = "canonical"

    def rewrite(self, graph: Graph, notes: Notes) -> Graph:
        ranks: Ranks = {value: rank for rank, value in enumerate(graph.values())}
        ordered: set[Node] = set()

        def rule(node: Node, sweep: Sweep) -> Value | None:
            form = _FORMS.get(node.op)
            found = None
            if form is not None:
                type = dense(node)
                found = None if type is None else form(node, type, sweep)
            if found is None and node.op.commutative and node not in ordered:
                found = _in_order(node, sweep, ranks)
                if found is not None and found.node is not None:
                    ordered.add(found.node)
            if found is not None:
                notes.add("in canonical form")
            return found

        return Sweep(graph).run(rule)


def _in_order(node: Node, sweep: Sweep, ranks: Ranks) -> Value | None:
    """Constants go to the right; otherwise the operand that was made first goes to the left."""
    if len(node.inputs) != 2 or not isinstance(node.inputs[0].type, TensorType):
        return None
    left, right = node.inputs
    if not commutes_exactly(node.op, node.inputs[0].type.dtype):
        return None
    if is_constant(left) != is_constant(right):
        swap = is_constant(left)
    else:
        source = sweep.source  # ranks are known for the old graph
        if source.op is not node.op:
            return None
        swap = ranks[source.inputs[0]] > ranks[source.inputs[1]]
    return sweep.add(node.op, right, left, **node.attrs) if swap else None


def _comparison(node: Node, type: TensorType, sweep: Sweep) -> Value | None:
    """x > y becomes y < x; a constant goes to the right."""
    left, right = node.inputs
    if is_constant(left) != is_constant(right):
        swap = is_constant(left)
    else:
        swap = node.op in (GREATER, GREATER_EQUAL)
    return sweep.add(MIRRORED[node.op], right, left) if swap else None


def _product(node: Node, type: TensorType, sweep: Sweep) -> Value | None:
    """x * x becomes square(x): the same bits for real numbers."""
    left, right = node.inputs
    if left is right and of_kind(type.dtype, "real numeric"):
        return sweep.add(SQUARE, left)
    return None


def _constant(node: Node, type: TensorType, sweep: Sweep) -> Value | None:
    """A constant with axes that holds one number everywhere becomes `full`."""
    number = one_number(node.attrs["value"].array) if type.shape else None
    return None if number is None else sweep.uniform(number, type)


def _full(node: Node, type: TensorType, sweep: Sweep) -> Value | None:
    """`full` without axes becomes a constant; its value becomes the Python number of its dtype."""
    number = number_of(node.outputs[0])
    assert number is not None
    if type.shape and number.item().__class__ is node.attrs["value"].__class__:
        return None
    return sweep.uniform(number, type)


def _broadcast(node: Node, type: TensorType, sweep: Sweep) -> Value | None:
    number = number_of(node.inputs[0])
    return None if number is None or not is_plain(number) else sweep.uniform(number, type)


_FORMS: dict[Op, Callable[[Node, TensorType, Sweep], Value | None]] = {
    **dict.fromkeys(MIRRORED, _comparison),
    MULTIPLY: _product,
    CONSTANT: _constant,
    FULL: _full,
    BROADCAST_TO: _broadcast,
}
