"""What surrounds attention in a graph, done by its kernels.

    softmax((q * c) kᵀ) v            the factor is part of the scale: q is read as it is
    concat([dq * c, dk, dv]) + 0     the gradients are written side by side

The first is how `scaled_dot_product_attention` scales, the second what the gradient of a product
that gives q, k and v at once looks like. A factor is not rounded with q any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weft.base.shapes import size_of
from weft.ir.graph import Builder, Graph, Node, Value
from weft.ops.cards import ADD, CONCAT, MULTIPLY, PERMUTE_DIMS, RESHAPE
from weft.passes.dead_code import DeadCode
from weft.passes.lowering.attention.cards import (
    ATTENTION,
    ATTENTION_GRAD,
    ATTENTION_GRAD_JOINED,
    turned_back,
)
from weft.passes.lowering.attention.parts import is_number, number_of
from weft.schedule.views import View, dense, viewed

__all__ = ["joined"]

Users = Mapping[Value, Sequence[Node]]


def joined(graph: Graph) -> Graph:
    """The graph with both where they are found; nested graphs too."""
    if not any(node.op is ATTENTION for part in graph.walk() for node in part.nodes):
        return graph
    return DeadCode().run(_beside(DeadCode().run(_scaled(graph))))


# --- factors of q -------------------------------------------------------------------------------


def _scaled(graph: Graph) -> Graph:
    users, given = graph.users(), set(graph.outputs)
    factors: dict[Node, float] = {}  # of nodes of attention
    left_out: set[Node] = set()  # the same factors of dq
    for node in graph.nodes:
        q = node.inputs[0] if node.op is ATTENTION else None
        factor = None if q is None else _factor(q)
        if q is None or factor is None or q in given:
            continue
        group = users[q]
        if not all(_reads_as_q(user, q) for user in group):
            continue
        grads = [user for user in group if user.op is ATTENTION_GRAD]
        found = [_multiplied(user.outputs[0], factor, users, given) for user in grads]
        if None not in found:
            factors.update(dict.fromkeys(group, factor))
            left_out.update(one for one in found if one is not None)
    builder = Builder(graph, nested=_scaled)
    for node in graph.nodes:
        if node in left_out:
            builder.forward(node.outputs, [builder[node.inputs[0]]])
        elif node in factors:
            _, *others = node.inputs
            assert node.inputs[0].node is not None
            q = node.inputs[0].node.inputs[0]
            attrs = {**node.attrs, "scale": node.attrs["scale"] * factors[node]}
            inputs = [builder[value] for value in (q, *others)]
            made = builder.graph.add(node.op, *inputs, location=node.location, **attrs)
            builder.forward(node.outputs, made.outputs)
        else:
            builder.copy(node)
    return builder.finish()


def _factor(value: Value) -> float | None:
    """The number that a value is multiplied by; None if there is none."""
    node = value.node
    if node is None or node.op is not MULTIPLY or node.inputs[0].type != value.type:
        return None
    return number_of(node)


def _reads_as_q(node: Node, value: Value) -> bool:
    is_attention = node.op is ATTENTION or node.op is ATTENTION_GRAD
    return is_attention and node.inputs[0] is value and node.inputs.count(value) == 1


def _multiplied(value: Value, factor: float, users: Users, given: set[Value]) -> Node | None:
    """The only use of a value, perhaps in another shape: a product with this number."""
    while value not in given and len(users[value]) == 1:
        node = users[value][0]
        if node.op is MULTIPLY and node.inputs[0] is value and number_of(node) == factor:
            return node
        if node.op is not PERMUTE_DIMS and node.op is not RESHAPE:
            return None
        value = node.outputs[0]
    return None


# --- gradients side by side ---------------------------------------------------------------------


@dataclass(frozen=True)
class _Join:
    """The gradients, and for each of them where it lies in the result: an offset and strides."""

    grads: Node
    lies: tuple[tuple[int, tuple[int, ...]], ...]


def _beside(graph: Graph) -> Graph:
    users, given = graph.users(), set(graph.outputs)
    found: dict[Node, _Join] = {}
    for node in graph.nodes:
        join = _join(node, users, given) if node.op is CONCAT else None
        if join is not None:
            found[_last(node, users, given)] = join
    if not found:
        return graph
    builder = Builder(graph, nested=_beside)
    for node in graph.nodes:
        join = found.get(node)
        if join is None:
            builder.copy(node)
            continue
        attrs = {key: join.grads.attrs[key] for key in ("scale", "causal", "blank")}
        shape = node.outputs[0].tensor_type.shape
        made = builder.graph.add(
            ATTENTION_GRAD_JOINED,
            *builder.inputs_of(join.grads),
            location=join.grads.location,
            shape=shape,
            lies=join.lies,
            **attrs,
        )
        builder.forward(node.outputs, made.outputs)
    return builder.finish()


def _last(node: Node, users: Users, given: set[Value]) -> Node:
    """The concat, or what adds 0 to it: that only gives zeros their sign."""
    out = node.outputs[0]
    if out in given or len(users[out]) != 1:
        return node
    after = users[out][0]
    is_zero = after.op is ADD and after.inputs[0] is out and is_number(after.inputs[1], 0.0)
    return after if is_zero else node


def _join(node: Node, users: Users, given: set[Value]) -> _Join | None:
    """The gradients that a concat joins, if it does nothing else."""
    if len(node.inputs) != 3:
        return None
    whole = dense(node.outputs[0].tensor_type.shape)
    axis = node.attrs["axis"] % len(whole.shape)
    lies: dict[int, tuple[int, tuple[int, ...]]] = {}
    grads: Node | None = None
    before = 0
    for value in node.inputs:
        shape = value.tensor_type.shape
        view = View(shape, whole.strides, before * whole.strides[axis])
        before += shape[axis]
        traced = _traced(value, view, users, given)
        if traced is None or (grads is not None and traced[0].node is not grads):
            return None
        source, view = traced
        grads = source.node
        assert grads is not None
        place = grads.outputs.index(source)
        order = turned_back(grads.attrs["axes"][place])
        strides = tuple(view.strides[i] for i in order)
        if strides[-1] != 1 or any(step % 2 for step in (view.offset, *strides[:-1])):
            return None  # two neighbours are written at once
        lies[place] = view.offset, strides
    if grads is None or len(lies) != 3:
        return None
    if size_of(whole.shape) != sum(value.tensor_type.size for value in grads.outputs):
        return None
    return _Join(grads, (lies[0], lies[1], lies[2]))


def _traced(value: Value, view: View, users: Users, given: set[Value]) -> tuple[Value, View] | None:
    """The gradient that a value is, and how it lies where the value lies as `view` says."""
    while value not in given and len(users[value]) == 1 and value.node is not None:
        node = value.node
        if node.op is ATTENTION_GRAD:
            return value, view
        if node.op is not PERMUTE_DIMS and node.op is not RESHAPE:
            return None
        before = node.inputs[0]
        attrs = node.attrs
        if node.op is PERMUTE_DIMS:
            attrs = {"axes": turned_back(attrs["axes"])}
        found = viewed(view, node.op, attrs, before.tensor_type.shape)
        if found is None:
            return None
        value, view = before, found
    return None
