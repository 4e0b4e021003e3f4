"""Constant folding: calls on constants are computed now, by the op's own kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.device import CPU
from weft.base.dim_algebra import Dim
from weft.core.quiet import quietly
from weft.ir.graph import Graph, Node, Value
from weft.ir.literal import CONSTANT
from weft.ir.op import Op
from weft.ir.types import DENSE, TensorType
from weft.ops.cards import BROADCAST_TO, DIM_SIZE
from weft.passes.contract import Notes, Pass
from weft.passes.facts import Array, is_bound, is_static
from weft.passes.sweep import Sweep

#: A larger constant is only made from constants that are at least as large.
MOST_ELEMENTS = 4096
#: A `full`, `arange` or `eye` with more elements than this is not expanded to compute with it.
MOST_MADE = 65536

Arrays = dict[Value, Array]


class Fold(Pass):
    """Computes what depends on constants only, if the result is small."""

    name = "fold"

    def rewrite(self, graph: Graph, notes: Notes) -> Graph:
        arrays: Arrays = {}

        def rule(node: Node, sweep: Sweep) -> Sequence[Value] | None:
            if node.op is DIM_SIZE and not isinstance(node.attrs["size"], Dim):
                notes.add("sizes that are known now")
                return [sweep.constant(_created(node.op, node.attrs), node.out.tensor_type)]
            if not _is_candidate(node):
                return None
            results = _evaluated(node, arrays)
            if results is None:
                return None
            notes.add("calls computed")
            types = [value.tensor_type for value in node.outputs]
            return [sweep.constant(a, t) for a, t in zip(results, types, strict=True)]

        return Sweep(graph).run(rule)


def _is_candidate(node: Node) -> bool:
    """Whether a node has only constants as inputs, and a result that is small enough."""
    inputs = node.inputs
    if not inputs:
        return False
    for value in inputs:
        if value.node is None or not value.node.op.creation:
            return False
    op = node.op
    if is_bound(op) or op.data_shape or op.alias:
        return False  # an alias is there for more than its value
    if op is BROADCAST_TO:  # its operand is smaller than its result
        return False
    total = 0
    for value in inputs:
        type = _plain(value)
        if type is None:
            return False
        if value.node is not None and value.node.op is CONSTANT:
            total += type.size
        elif type.size > MOST_MADE:
            return False
    allowed = max(total, MOST_ELEMENTS)
    types = [_plain(value) for value in node.outputs]
    return all(type is not None and type.size <= allowed for type in types)


def _plain(value: Value) -> TensorType | None:
    """The type of a dense tensor of known shape: on the CPU, or a single number anywhere."""
    type = value.type
    if isinstance(type, TensorType) and type.layout == DENSE and is_static(type):
        return type if type.device == CPU or type.size == 1 else None
    return None


def _evaluated(node: Node, arrays: Arrays) -> list[Array] | None:
    """The results of a node; None if it fails, so that it fails at run time, on the user's line."""
    try:
        inputs = [_array_of(value, arrays) for value in node.inputs]
        kernel = node.op.kernels[np.ndarray][inputs[node.op.dispatch_on].dtype]
        out = quietly(kernel, *inputs, **node.attrs)
    except Exception:
        return None
    results = [np.asarray(part) for part in (out if isinstance(out, tuple) else (out,))]
    types = [value.tensor_type for value in node.outputs]
    if [(a.dtype, a.shape) for a in results] != [(t.dtype.numpy, t.shape) for t in types]:
        return None
    return [_frozen(array) for array in results]


def _array_of(value: Value, arrays: Arrays) -> Array:
    found = arrays.get(value)
    if found is None:
        node = value.node
        assert node is not None
        found = node.attrs["value"].array if node.op is CONSTANT else _created(node.op, node.attrs)
        arrays[value] = found
    return found


def _created(op: Op, attrs: dict[str, Any]) -> Array:
    return np.asarray(quietly(op.kernels[np.ndarray][attrs["dtype"].numpy], **attrs))


def _frozen(array: Array) -> Array:
    """The array, made read-only if it owns its memory."""
    if array.base is None:
        array.flags.writeable = False
    return array
