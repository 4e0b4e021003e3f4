"""Gradients of slices of one value become one concat instead of a sum of padded parts.

The gradients of x[:, :3] and x[:, 3:] are each padded with zeros to the shape of x, and then added:
for n parts, n times the work. If the parts lie side by side along one axis, each element is added
to zeros only, and x + 0.0 is x up to the sign of a zero. One addition of 0.0 to the concat gives
the zeros the same sign.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from weft.ir.graph import Builder, Graph, Node, Value
from weft.ir.literal import CONSTANT, constant_attrs
from weft.ops.cards import ADD, CONCAT, FULL, RESHAPE, SCATTER_ADD
from weft.passes.contract import Notes, Pass
from weft.passes.facts import of_kind
from weft.passes.slices import WHOLE, index_parts


class Joins(Pass):
    """Replaces a sum of zero-padded parts that lie side by side by one concat."""

    name = "joins"

    def rewrite(self, graph: Graph, notes: Notes) -> Graph:
        found = _sums(graph)
        if not found:
            return graph
        builder = Builder(graph)
        for node in graph.nodes:
            pads = found.get(node)
            if pads is None:
                builder.copy(node)
            else:
                builder.forward(node.outputs, [_joined(builder, node, pads)])
                notes.add("sums of parts joined")
        return builder.finish()


class Pad(NamedTuple):
    """A value at `start` to `stop` of an axis, with zeros around it."""

    start: int
    stop: int
    axis: int
    node: Node


def _sums(graph: Graph) -> dict[Node, list[Pad]]:
    """The sums of parts that lie side by side, each with its parts in order."""
    pads: dict[Value, Pad] = {}
    for node in graph.nodes:
        pad = _pad(node)
        if pad is not None:
            pads[node.outputs[0]] = pad
    if len(pads) < 2:
        return {}
    users = graph.users()
    given = set(graph.outputs)
    sums: dict[Value, Node] = {}
    inner: set[Value] = set()  # sums that only another sum uses

    def fits(value: Value) -> bool:
        alone = value in sums and len(users[value]) == 1 and value not in given
        return value in pads or alone

    for node in graph.nodes:
        if node.op is ADD and all(fits(value) for value in node.inputs):
            sums[node.outputs[0]] = node
            inner.update(value for value in node.inputs if value in sums)
    found: dict[Node, list[Pad]] = {}
    for value, node in sums.items():
        if value not in inner:
            together = _side_by_side(value, pads)
            if together is not None:
                found[node] = together
    return found


def _pad(node: Node) -> Pad | None:
    """The part that a scatter_add by a slice (or a number) along one axis writes; else None."""
    if node.op is not SCATTER_ADD or len(node.inputs) != 1:
        return None
    kind = node.outputs[0].tensor_type
    if not of_kind(kind.dtype, "numeric"):
        return None
    parts = index_parts(kind.shape, node.attrs["index"])
    if parts is None or len(parts) != kind.ndim:
        return None
    axes = [axis for axis, part in enumerate(parts) if part != WHOLE]
    if len(axes) != 1 or not isinstance(kind.shape[axes[0]], int):
        return None
    part = parts[axes[0]]
    if isinstance(part, int):
        return Pad(part, part + 1, axes[0], node)
    if isinstance(part, range) and part.step == 1 and part:
        return Pad(part.start, part.stop, axes[0], node)
    return None


def _side_by_side(value: Value, pads: dict[Value, Pad]) -> list[Pad] | None:
    """The parts of a sum in order, if they lie along one axis and do not overlap; else None."""
    leaves: list[Pad] = []
    stack = [value]
    while stack:
        part = stack.pop()
        if part in pads:
            leaves.append(pads[part])
        elif part.node is not None:
            stack += part.node.inputs
    leaves.sort(key=lambda pad: (pad.start, pad.stop))
    if any(pad.axis != leaves[0].axis for pad in leaves):
        return None
    return None if any(one.stop > two.start for one, two in pairwise(leaves)) else leaves


def _joined(builder: Builder, node: Node, pads: list[Pad]) -> Value:
    kind = node.outputs[0].tensor_type
    axis = pads[0].axis
    parts: list[Value] = []
    end = 0

    def fill(stop: int) -> None:
        if stop > end:
            shape = (*kind.shape[:axis], stop - end, *kind.shape[axis + 1 :])
            zero = kind.dtype.numpy.type(0).item()
            parts.append(
                builder.add(FULL, shape=shape, value=zero, dtype=kind.dtype, device=kind.device)
            )

    for pad in pads:
        fill(pad.start)
        shape = (*kind.shape[:axis], pad.stop - pad.start, *kind.shape[axis + 1 :])
        part = builder[pad.node.inputs[0]]
        if part.tensor_type.shape != shape:
            part = builder.add(RESHAPE, part, shape=shape, like=pad.node)
        parts.append(part)
        end = pad.stop
    fill(int(kind.shape[axis]))
    whole = builder.add(CONCAT, *parts, axis=axis, like=node)
    if of_kind(kind.dtype, "integral"):
        return whole
    zeros = np.zeros((), kind.dtype.numpy)
    zero = builder.add(CONSTANT, **constant_attrs(zeros, kind.device))
    return builder.add(ADD, whole, zero, like=node)
