"""Moves broadcasts behind elementwise calls: compute on the small operand, then broadcast.

exp(broadcast_to(x))                        → broadcast_to(exp(x))
broadcast_to(x) + broadcast_to(y)           → broadcast_to(x + y)
x + broadcast_to(y), x of the full shape    → x + y, which broadcasts by itself
permute_dims(broadcast_to(x)), and reshapes that add or drop axes of size 1: in the same way
"""

from __future__ import annotations

from weft.base.errors import WeftError
from weft.base.shapes import Shape
from weft.ir.graph import Graph, Node, Value
from weft.ir.types import TensorType
from weft.ops.cards import BROADCAST_TO, FULL, PERMUTE_DIMS, POW, RESHAPE
from weft.passes.contract import Notes, Pass
from weft.passes.facts import dense, is_bound, made_by, number_of, of_kind
from weft.passes.sweep import Sweep


class SinkBroadcasts(Pass):
    """Moves broadcasts behind elementwise calls, which then compute fewer elements."""

    name = "sink"

    def rewrite(self, graph: Graph, notes: Notes) -> Graph:
        def rule(node: Node, sweep: Sweep) -> Value | None:
            try:
                if node.op.elementwise:
                    found = _elementwise(node, sweep)
                elif node.op is RESHAPE:
                    found = _reshape(node, sweep)
                elif node.op is PERMUTE_DIMS:
                    found = _permute(node, sweep)
                else:
                    return None
            except WeftError:  # symbolic sizes that cannot be shown to fit
                return None
            if found is not None:
                notes.add("broadcasts moved")
            return found

        return Sweep(graph).run(rule)


def _elementwise(node: Node, sweep: Sweep) -> Value | None:
    for value in node.inputs:
        made = value.node
        if made is not None and made.op in (BROADCAST_TO, FULL):
            break
    else:
        return None
    type = dense(node)
    if type is None or is_bound(node.op) or _kernel_sees_shapes(node):
        return None
    if node.op.alias or 0 in type.shape:
        return None  # there is nothing to save
    inputs = [_before_broadcast(value, sweep) for value in node.inputs]
    if inputs == list(node.inputs):
        return None
    small = sweep.add(node.op, *inputs, **node.attrs)
    if small.tensor_type.dtype is not type.dtype:
        return None
    return sweep.fitted(small, type)


def _kernel_sees_shapes(node: Node) -> bool:
    """x ** 2 with a 0-d 2 is a product; with an array of twos it is not."""
    return node.op is POW and of_kind(node.inputs[-1].tensor_type.dtype, "floating")


def _before_broadcast(value: Value, sweep: Sweep) -> Value:
    """The operand of a broadcast; for `full`, its number as a 0-d constant."""
    made = made_by(value, BROADCAST_TO)
    if made is not None:
        return made.inputs[0]
    made = made_by(value, FULL)
    number = None if made is None else number_of(value)
    if number is None or not value.tensor_type.shape:
        return value
    return sweep.constant(number, value.tensor_type)


def _reshape(node: Node, sweep: Sweep) -> Value | None:
    inner = made_by(node.inputs[0], BROADCAST_TO)
    type = dense(node)
    if inner is None or type is None:
        return None
    x = inner.inputs[0]
    sizes = _padded(x.tensor_type, inner)
    before = [
        size
        for size, full in zip(sizes, inner.outputs[0].tensor_type.shape, strict=True)
        if not _is_one(full)
    ]
    kept = [size for size in inner.outputs[0].tensor_type.shape if not _is_one(size)]
    if kept != [size for size in type.shape if not _is_one(size)]:
        return None  # it changes more than axes of size 1
    rest = iter(before)
    shape = tuple([1 if _is_one(size) else next(rest) for size in type.shape])
    return sweep.fitted(_reshaped(x, shape, sweep), type)


def _permute(node: Node, sweep: Sweep) -> Value | None:
    inner = made_by(node.inputs[0], BROADCAST_TO)
    type = dense(node)
    if inner is None or type is None:
        return None
    x = inner.inputs[0]
    padded = _reshaped(x, _padded(x.tensor_type, inner), sweep)
    return sweep.fitted(sweep.add(PERMUTE_DIMS, padded, **node.attrs), type)


def _padded(x: TensorType, broadcast: Node) -> Shape:
    """The shape of x, with ones for the axes that the broadcast adds in front."""
    return (1,) * (broadcast.outputs[0].tensor_type.ndim - x.ndim) + x.shape


def _reshaped(x: Value, shape: Shape, sweep: Sweep) -> Value:
    return x if x.tensor_type.shape == shape else sweep.add(RESHAPE, x, shape=shape)


def _is_one(size: int) -> bool:
    return size.__class__ is int and size == 1
