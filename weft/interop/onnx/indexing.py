"""Rows of ops that rearrange, read and write elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.asked_sizes import is_less
from weft.base.dim_algebra import Dim
from weft.base.dims import has_dims, is_zero
from weft.base.dtypes import DType
from weft.base.shapes import Shape, broadcast_shapes, size_of
from weft.interop.onnx.table import ROWS, Row, kind_of, row
from weft.interop.onnx.values import iota
from weft.interop.onnx.writer import Writer
from weft.ir.graph import Node
from weft.ops.index_shape import TENSOR, full_index, indexed_shape

#: Beyond every axis, in the direction of a slice.
_END = 2**62

# --- shapes --------------------------------------------------------------------------------------


def reshaped(w: Writer, x: str, shape: Shape) -> str:
    """x in another shape. One symbolic size is left to the engine."""
    open_axes = [axis for axis, size in enumerate(shape) if isinstance(size, Dim)]
    if len(open_axes) == 1 and not any(map(is_zero, shape)):
        sizes = [-1 if isinstance(size, Dim) else size for size in shape]
        return w.call("Reshape", x, w.ints(sizes))
    if open_axes or any(map(is_zero, shape)):
        return w.call("Reshape", x, w.ints(shape), allowzero=1)
    return w.call("Reshape", x, w.ints(shape))


@row("reshape")
def _reshape(w: Writer, node: Node, x: str, shape: Shape) -> str:
    return reshaped(w, x, shape)


@row("permute_dims")
def _permute_dims(w: Writer, node: Node, x: str, axes: tuple[int, ...]) -> str:
    return w.call("Transpose", x, perm=list(axes)) if axes else w.call("Identity", x)


@row("broadcast_to")
def _broadcast_to(w: Writer, node: Node, x: str, shape: Shape) -> str:
    if any(map(is_zero, shape)) and not has_dims(shape):  # engines differ about 1 against 0
        return w.const(np.zeros(shape, node.outputs[0].tensor_type.dtype.numpy))
    return expanded(w, x, shape)


def expanded(w: Writer, x: str, shape: Shape) -> str:
    """x broadcast to a shape."""
    return w.call("Expand", x, w.ints(shape)) if shape else w.call("Identity", x)


@row("concat")
def _concat(w: Writer, node: Node, *arrays: str, axis: int) -> str:
    return w.call("Concat", *arrays, axis=axis)


# --- x[…] ----------------------------------------------------------------------------------------


def sliced(w: Writer, x: str, parts: list[Any]) -> str:
    """x with slices and ints applied, one for each axis; ints leave an axis of size 1.

    The bounds of Slice mean what those of Python mean: negative ones count from the end.
    """
    starts, ends, axes, steps = [], [], [], []
    for axis, part in enumerate(parts):
        if part == slice(None):
            continue
        axes.append(axis)
        if not isinstance(part, slice):
            starts.append(part)
            ends.append(_END if part == -1 else part + 1)
            steps.append(1)
            continue
        step = 1 if part.step is None else part.step
        upwards = is_less(0, step)
        starts.append((0 if upwards else _END) if part.start is None else part.start)
        ends.append((_END if upwards else -_END) if part.stop is None else part.stop)
        steps.append(step)
    if not axes:
        return x
    bounds = w.ints(starts), w.ints(ends), w.ints(axes)
    return w.call("Slice", x, *bounds, *([w.ints(steps)] if set(steps) != {1} else []))


@row("getitem")
def _getitem(w: Writer, node: Node, x: str, index: Any) -> str:
    return read(w, x, node.inputs[0].tensor_type.ndim, index)


def read(w: Writer, x: str, ndim: int, index: Any) -> str:
    """x[index] for an index without tensors."""
    parts = full_index(index, ndim)
    found = sliced(w, x, [part for part in parts if part is not None])
    dropped, axis = [], 0
    for part in parts:
        if part is not None:
            dropped += [] if isinstance(part, slice) else [axis]
            axis += 1
    if dropped:
        found = w.call("Squeeze", found, w.ints(dropped))
    kept = [part for part in parts if part is None or isinstance(part, slice)]
    new = [place for place, part in enumerate(kept) if part is None]
    if new:
        found = w.call("Unsqueeze", found, w.ints(new))
    return w.call("Identity", found) if found == x else found


def positions(w: Writer, x: str, dtype: DType) -> str:
    """An index as int64."""
    return x if dtype is dtypes.int64 else w.cast(x, dtypes.int64)


@row("gather")
def _gather(w: Writer, node: Node, x: str, *indices: str, index: Any) -> str:
    kinds = [value.tensor_type for value in node.inputs[1:]]
    given = [positions(w, i, kind.dtype) for i, kind in zip(indices, kinds, strict=True)]
    shape = node.inputs[0].tensor_type.shape
    return read_at(w, x, shape, index, given, [kind.shape for kind in kinds])


def read_at(
    w: Writer, x: str, shape: Shape, index: Any, given: list[str], shapes: list[Shape]
) -> str:
    """x[index] for an index with tensors, whose names and shapes are given."""
    parts = full_index(index, len(shape))
    on_axes = [part for part in parts if part is not None]
    plain = [part if isinstance(part, slice) else slice(None) for part in on_axes]
    x = sliced(w, x, plain)
    left = iter(given)
    at = {
        axis: next(left) if part is TENSOR else w.const(np.array(part, dtype=np.int64))
        for axis, part in enumerate(on_axes)
        if not isinstance(part, slice)
    }
    axes = list(at)
    together = broadcast_shapes(*shapes)
    if len(axes) == 1:
        found, front = w.call("Gather", x, at[axes[0]], axis=axes[0]), axes[0]
    else:
        found, front = _read_many(w, x, at, together, len(shape)), 0
    result = indexed_shape(shape, index, shapes)
    places = [i for i, part in enumerate(parts) if part is not None and not isinstance(part, slice)]
    adjacent = places[-1] - places[0] + 1 == len(places)
    wanted = sum(isinstance(part, slice) for part in parts[: places[0]]) if adjacent else 0
    if wanted != front:  # where the axes of the tensors go, among those of the slices
        rest = len(shape) - len(axes)
        block = list(range(front, front + len(together)))
        others = [i for i in range(rest + len(together)) if i not in block]
        found = w.call("Transpose", found, perm=[*others[:wanted], *block, *others[wanted:]])
    return found if None not in parts else reshaped(w, found, result)


def _read_many(w: Writer, x: str, at: dict[int, str], together: Shape, ndim: int) -> str:
    """The elements at several tensors of positions: their axes come first."""
    order = [*at, *[axis for axis in range(ndim) if axis not in at]]
    x = w.call("Transpose", x, perm=order) if order != sorted(order) else x
    last = w.const(np.array([-1]))
    columns = [w.call("Unsqueeze", expanded(w, i, together), last) for i in at.values()]
    return w.call("GatherND", x, w.call("Concat", *columns, axis=-1))


@row("take", "embedding")
def _take(w: Writer, node: Node, x: str, indices: str, axis: int = 0, **_attrs: Any) -> str:
    at = positions(w, indices, node.inputs[1].tensor_type.dtype)
    return w.call("Gather", x, at, axis=axis)


@row("take_along_axis")
def _take_along_axis(w: Writer, node: Node, x: str, indices: str, axis: int) -> str:
    kind, where = node.inputs[0].tensor_type, node.inputs[1].tensor_type
    wanted = (*where.shape[:axis], kind.shape[axis], *where.shape[axis + 1 :])
    x = expanded(w, x, wanted) if wanted != kind.shape else x
    return w.call("GatherElements", x, positions(w, indices, where.dtype), axis=axis)


# --- x[…] = value --------------------------------------------------------------------------------


def _places(w: Writer, node: Node, shape: Shape, indices: tuple[str, ...], first: int) -> Any:
    """The flat positions of the elements of x[index], as one axis; and the shape of that part."""
    index = node.attrs["index"]
    numbers = reshaped(w, iota(w, size_of(shape)), shape)
    if not indices:
        part = indexed_shape(shape, index)
        return reshaped(w, read(w, numbers, len(shape), index), (size_of(part),)), part
    kinds = [value.tensor_type for value in node.inputs[first:]]
    given = [positions(w, i, kind.dtype) for i, kind in zip(indices, kinds, strict=True)]
    shapes = [kind.shape for kind in kinds]
    part = indexed_shape(shape, index, shapes)
    found = read_at(w, numbers, shape, index, given, shapes)
    return reshaped(w, found, (size_of(part),)), part


def _values(w: Writer, value: str, shape: Shape, part: Shape) -> str:
    """A value as large as the part that it is written to, as one axis."""
    if len(shape) > len(part):  # axes of size 1 in front
        value, shape = reshaped(w, value, shape[len(shape) - len(part) :]), part
    whole = expanded(w, value, part) if shape != part or has_dims(part) else value
    return reshaped(w, whole, (size_of(part),))


@row("setitem")
def _setitem(w: Writer, node: Node, x: str, value: str, *indices: str, index: Any) -> str:
    """Where a position is named twice, the last value stays: each finds the last that names it."""
    kind, given = node.inputs[0].tensor_type, node.inputs[1].tensor_type
    value = value if given.dtype is kind.dtype else w.cast(value, kind.dtype)
    at, part = _places(w, node, kind.shape, indices, 2)
    if is_zero(size_of(part)):
        return w.call("Identity", x)
    values, flat = _values(w, value, given.shape, part), reshaped(w, x, (size_of(kind.shape),))
    if not indices:
        return reshaped(w, w.call("ScatterElements", flat, at, values, axis=0), kind.shape)
    nothing = w.call("Expand", w.number(-1, dtypes.int64), w.ints((size_of(kind.shape),)))
    numbers = iota(w, size_of(part))
    last = w.call("ScatterElements", nothing, at, numbers, axis=0, reduction="max")
    written = w.call("Less", w.number(-1, dtypes.int64), last)
    new = w.call("Gather", values, w.call("Max", last, w.number(0, dtypes.int64)), axis=0)
    return reshaped(w, w.call("Where", written, new, flat), kind.shape)


def _combining(reduction: str) -> Any:
    def write(w: Writer, node: Node, x: str, value: str, *indices: str, index: Any) -> str:
        kind = node.inputs[0].tensor_type
        at, part = _places(w, node, kind.shape, indices, 2)
        if is_zero(size_of(part)):
            return w.call("Identity", x)
        flat = reshaped(w, x, (size_of(kind.shape),))
        values = _values(w, value, node.inputs[1].tensor_type.shape, part)
        found = w.call("ScatterElements", flat, at, values, axis=0, reduction=reduction)
        return reshaped(w, found, kind.shape)

    return write


def _extreme_at(reduction: str) -> Any:
    """Engines differ about NaN: it is written apart."""
    combine = _combining(reduction)

    def write(w: Writer, node: Node, x: str, value: str, *indices: str, index: Any) -> str:
        found: str = combine(w, node, x, value, *indices, index=index)
        dtype = kind_of(node)
        if dtype.kind != "float":
            return found
        odd = [w.cast(w.call("IsNaN", part), dtypes.int64) for part in (x, value)]
        some = w.cast(_combining("max")(w, node, *odd, *indices, index=index), dtypes.bool)
        return w.call("Where", some, w.number(math.nan, dtype), found)

    return write


ROWS["maximum_at"] = Row(_extreme_at("max"), computes=True)
ROWS["minimum_at"] = Row(_extreme_at("min"), computes=True)

for _name, _reduction in {"add": "add", "multiply": "mul"}.items():
    ROWS[f"{_name}_at"] = Row(_combining(_reduction), computes=True)


@row("scatter_add", computes=True)
def _scatter_add(w: Writer, node: Node, value: str, *indices: str, shape: Shape, index: Any) -> str:
    zeros = w.call("Expand", w.number(0, kind_of(node)), w.ints((size_of(shape),)))
    at, part = _places(w, node, shape, indices, 1)
    if is_zero(size_of(part)):
        return reshaped(w, zeros, shape)
    values = reshaped(w, value, (size_of(part),))
    found = w.call("ScatterElements", zeros, at, values, axis=0, reduction="add")
    return reshaped(w, found, shape)
