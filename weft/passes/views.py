"""Views: several ops that only move elements become one, or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.base.errors import WeftError
from weft.base.shapes import Shape
from weft.ir.graph import Graph, Node, Value
from weft.ir.op import Op
from weft.ir.types import TensorType
from weft.ops.cards import BROADCAST_TO, CONCAT, FULL, IDENTITY, PERMUTE_DIMS, RESHAPE, TO_DEVICE
from weft.passes.contract import Notes, Pass
from weft.passes.facts import dense, made_by, of_kind
from weft.passes.sweep import Sweep


class Views(Pass):
    """Cancels reshapes, permutations and broadcasts that undo each other or do nothing."""

    name = "views"

    def rewrite(self, graph: Graph, notes: Notes) -> Graph:
        def rule(node: Node, sweep: Sweep) -> Value | None:
            cancel = _reduction if node.op.reduction else _RULES.get(node.op)
            if cancel is None:
                return None
            type = dense(node)
            if type is None:
                return None
            try:
                found = cancel(node, type, sweep)
            except WeftError:  # symbolic sizes that cannot be shown to fit
                return None
            if found is not None:
                notes.add("views left out")
            return found

        return Sweep(graph).run(rule)


def _same(node: Node, type: TensorType, sweep: Sweep) -> Value | None:
    """identity(x) → x; to_device(x) → x if x is on that device"""
    value = node.inputs[0]
    return value if value.type == type else None


def _of_uniform(value: Value, type: TensorType, sweep: Sweep) -> Value | None:
    """A view of `full` is `full`, with another shape."""
    made = made_by(value, FULL)
    if made is None:
        return None
    return sweep.add(FULL, **{**made.attrs, "shape": type.shape})


def _reshape(node: Node, type: TensorType, sweep: Sweep) -> Value | None:
    (value,) = node.inputs
    if value.tensor_type.shape == type.shape:
        return value
    inner = made_by(value, RESHAPE)
    if inner is not None:
        first = inner.inputs[0]
        if first.tensor_type.shape == type.shape:
            return first
        return sweep.add(RESHAPE, first, shape=type.shape)
    return _of_uniform(value, type, sweep)


def _permute(node: Node, type: TensorType, sweep: Sweep) -> Value | None:
    (value,) = node.inputs
    axes: tuple[int, ...] = node.attrs["axes"]
    if axes == tuple(range(len(axes))):
        return value
    inner = made_by(value, PERMUTE_DIMS)
    if inner is not None:
        first = inner.inputs[0]
        order = tuple([inner.attrs["axes"][axis] for axis in axes])
        if order == tuple(range(len(order))):
            return first
        return sweep.add(PERMUTE_DIMS, first, axes=order)
    if keeps_order(value.tensor_type.shape, axes):
        return sweep.add(RESHAPE, value, shape=type.shape)
    return _of_uniform(value, type, sweep)


def keeps_order(shape: Shape, axes: Sequence[int]) -> bool:
    """Whether a permutation moves only axes of size 1, so that elements keep their order."""
    moved = [axis for axis in axes if shape[axis].__class__ is not int or shape[axis] != 1]
    return moved == sorted(moved)


def _broadcast(node: Node, type: TensorType, sweep: Sweep) -> Value | None:
    (value,) = node.inputs
    if value.tensor_type.shape == type.shape:
        return value
    inner = made_by(value, BROADCAST_TO)
    if inner is None:  # a broadcast adds axes of size 1 in front by itself
        inner = made_by(value, RESHAPE)
        if inner is not None and not _only_adds_in_front(inner):
            inner = None
    if inner is not None:
        first = inner.inputs[0]
        if first.tensor_type.shape == type.shape:
            return first
        return sweep.add(BROADCAST_TO, first, shape=type.shape)
    return _of_uniform(value, type, sweep)


def _only_adds_in_front(node: Node) -> bool:
    before = node.inputs[0].tensor_type.shape
    after = node.outputs[0].tensor_type.shape
    added = len(after) - len(before)
    return added >= 0 and after[added:] == before and set(after[:added]) <= {1}


def _concat(node: Node, type: TensorType, sweep: Sweep) -> Value | None:
    """The concatenation of one array is this array; empty parts are dropped."""
    axis = node.attrs["axis"]
    if len(node.inputs) == 1:
        return node.inputs[0]
    parts = [value for value in node.inputs if value.tensor_type.shape[axis] != 0]
    if not parts or len(parts) == len(node.inputs):
        return None
    return parts[0] if len(parts) == 1 else sweep.add(CONCAT, *parts, axis=axis)


def _reduction(node: Node, type: TensorType, sweep: Sweep) -> Value | None:
    """A reduction over axes of size 1, or over none, gives the elements themselves."""
    (value,) = node.inputs
    x = value.tensor_type
    axes = node.attrs["axis"]
    if x.dtype is not type.dtype or not of_kind(x.dtype, node.op.keeps_one):
        return None
    if not isinstance(axes, tuple) or any(x.shape[axis] != 1 for axis in axes):
        return None
    return value if x.shape == type.shape else sweep.add(RESHAPE, value, shape=type.shape)


_RULES: dict[Op, Callable[[Node, TensorType, Sweep], Value | None]] = {
    IDENTITY: _same,
    TO_DEVICE: _same,
    RESHAPE: _reshape,
    PERMUTE_DIMS: _permute,
    BROADCAST_TO: _broadcast,
    CONCAT: _concat,
}
