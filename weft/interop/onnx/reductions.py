"""Rows of reductions, softmax, running sums, and sorting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.dtypes import DType
from weft.interop.onnx.elementwise import truth
from weft.interop.onnx.table import ROWS, Row, kind_of, row
from weft.interop.onnx.writer import Writer
from weft.ir.graph import Node

Axes = tuple[int, ...]


def _reduced(w: Writer, operator: str, x: str, axis: Axes, keepdims: bool) -> str:
    if not axis:
        return w.call("Identity", x)
    return w.call(operator, x, w.ints(axis), keepdims=int(keepdims))


def _reducing(operator: str) -> Any:
    def write(w: Writer, node: Node, x: str, axis: Axes, keepdims: bool) -> str:
        return _reduced(w, operator, x, axis, keepdims)

    return write


ROWS["sum"] = Row(_reducing("ReduceSum"), computes=True)
ROWS["prod"] = Row(_reducing("ReduceProd"), computes=True)


def _extreme(operator: str) -> Any:
    """Engines differ about NaN: it is looked for."""

    def write(w: Writer, node: Node, x: str, axis: Axes, keepdims: bool) -> str:
        dtype = kind_of(node)
        if dtype is dtypes.bool:
            found = _reduced(w, operator, w.cast(x, dtypes.int64), axis, keepdims)
            return w.cast(found, dtypes.bool)
        found = _reduced(w, operator, x, axis, keepdims)
        if dtype.kind != "float" or not axis:
            return found
        odd = _any(w, w.call("IsNaN", x), axis, keepdims)
        return w.call("Where", odd, w.number(math.nan, dtype), found)

    return write


ROWS["max"] = Row(_extreme("ReduceMax"), computes=True)
ROWS["min"] = Row(_extreme("ReduceMin"), computes=True)


def _any(w: Writer, x: str, axis: Axes, keepdims: bool) -> str:
    """Whether a bool along some axes is True; of none it is not."""
    count = _reduced(w, "ReduceSum", w.cast(x, dtypes.int64), axis, keepdims)
    return w.call("Greater", count, w.number(0, dtypes.int64))


@row("any", computes=True)
def _any_row(w: Writer, node: Node, x: str, axis: Axes, keepdims: bool) -> str:
    return _any(w, truth(w, x, kind_of(node)), axis, keepdims)


@row("all", computes=True)
def _all_row(w: Writer, node: Node, x: str, axis: Axes, keepdims: bool) -> str:
    wrong = w.call("Not", truth(w, x, kind_of(node)))
    return w.call("Not", _any(w, wrong, axis, keepdims))


def _position(operator: str) -> Any:
    def write(w: Writer, node: Node, x: str, axis: int, keepdims: bool) -> str:
        dtype = kind_of(node)
        x = w.cast(x, dtypes.int64) if dtype is dtypes.bool else x
        found = w.call(operator, x, axis=axis, keepdims=int(keepdims))
        if dtype.kind != "float":
            return found
        odd = w.cast(w.call("IsNaN", x), dtypes.int64)  # the first NaN, if there is one
        first = w.call("ArgMax", odd, axis=axis, keepdims=int(keepdims))
        some = w.call("ReduceMax", odd, w.ints((axis,)), keepdims=int(keepdims))
        return w.call("Where", w.cast(some, dtypes.bool), first, found)

    return write


ROWS["argmax"] = Row(_position("ArgMax"), computes=True)
ROWS["argmin"] = Row(_position("ArgMin"), computes=True)


# --- softmax -------------------------------------------------------------------------------------


def _softmax(operator: str) -> Any:
    return lambda w, node, x, axis: w.call(operator, x, axis=axis)


ROWS["softmax"] = Row(_softmax("Softmax"), computes=True)
ROWS["log_softmax"] = Row(_softmax("LogSoftmax"), computes=True)


@row("cumulative_sum", computes=True)
def _cumulative_sum(w: Writer, node: Node, x: str, axis: int) -> str:
    return w.call("CumSum", x, w.number(axis, dtypes.int64))


# --- sorting -------------------------------------------------------------------------------------


def _order(w: Writer, node: Node, x: str, axis: int, largest: bool) -> str:
    """The positions of all elements in order; of equal ones the first comes first, NaN last."""
    kind = node.inputs[0].tensor_type
    count = w.ints((kind.shape[axis],))
    how: dict[str, Any] = {"axis": axis, "largest": int(largest)}
    dtype = kind_of(node)
    if dtype is dtypes.bool:
        x = w.cast(x, dtypes.int64)
    if dtype.kind != "float":
        return w.calls("TopK", 2, x, count, **how)[1]
    odd = w.call("IsNaN", x)
    order = w.calls("TopK", 2, w.call("Where", odd, w.number(0, dtype), x), count, **how)[1]
    places = w.call("GatherElements", w.cast(odd, dtypes.int64), order, axis=axis)
    last = w.calls("TopK", 2, places, count, axis=axis, largest=0)[1]
    return w.call("GatherElements", order, last, axis=axis)


@row("argsort", computes=True)
def _argsort(w: Writer, node: Node, x: str, axis: int, descending: bool) -> str:
    if not node.inputs[0].tensor_type.ndim:
        return w.number(0, dtypes.int64)
    return _order(w, node, x, axis, descending)


@row("sort", computes=True)
def _sort(w: Writer, node: Node, x: str, axis: int, descending: bool) -> str:
    if not node.inputs[0].tensor_type.ndim:
        return w.call("Identity", x)
    return w.call("GatherElements", x, _order(w, node, x, axis, descending), axis=axis)


@row("ranked", computes=True)
def _ranked(w: Writer, node: Node, x: str, axis: int, first: int, count: int, largest: bool) -> str:
    """Of the largest, NaN comes first."""
    dtype, size = kind_of(node), node.inputs[0].tensor_type.shape[axis]
    if dtype is dtypes.bool:
        x = w.cast(x, dtypes.int64)
    if dtype.kind == "float":
        order = _ranked_floats(w, x, w.ints((size,)), axis, largest, dtype)
    else:
        many = w.ints((first + count,))
        order = w.calls("TopK", 2, x, many, axis=axis, largest=int(largest))[1]
    ends = w.ints((first,)), w.ints((first + count,))
    return w.call("Slice", order, *ends, w.ints((axis,)))


def _ranked_floats(w: Writer, x: str, size: str, axis: int, largest: bool, dtype: DType) -> str:
    odd = w.call("IsNaN", x)
    usual = w.call("Where", odd, w.number(0, dtype), x)
    order = w.calls("TopK", 2, usual, size, axis=axis, largest=int(largest))[1]
    places = w.call("GatherElements", w.cast(odd, dtypes.int64), order, axis=axis)
    last = w.calls("TopK", 2, places, size, axis=axis, largest=int(largest))[1]
    return w.call("GatherElements", order, last, axis=axis)


@row("nonzero")
def _nonzero(w: Writer, node: Node, x: str) -> str:
    kind = node.inputs[0].tensor_type
    return w.call("NonZero", truth(w, x, kind.dtype))


@row("nll", computes=True)
def _nll(w: Writer, node: Node, logp: str, target: str, axis: int, ignore_index: int) -> str:
    dtype = kind_of(node)
    number = kind_of(node, 1)
    ignored = w.call("Equal", target, w.number(ignore_index, number))
    wanted = w.call("Where", ignored, w.number(0, number), target)
    at = w.call("Unsqueeze", w.cast(wanted, dtypes.int64), w.ints((axis,)))
    found = w.call("Squeeze", w.call("GatherElements", logp, at, axis=axis), w.ints((axis,)))
    return w.call("Where", ignored, w.number(0, dtype), w.call("Neg", found))


@row("searchsorted", computes=True)
def _searchsorted(w: Writer, node: Node, x1: str, x2: str, side: str) -> str:
    """How many of the sorted values lie before each value."""
    dtype = kind_of(node)
    values = w.call("Unsqueeze", x2, w.const(np.array([-1])))
    table = x1
    if node.inputs[0].tensor_type.ndim > 1:
        table = w.call("Unsqueeze", x1, w.const(np.array([-2])))
    if dtype is dtypes.bool:
        values, table = w.cast(values, dtypes.int64), w.cast(table, dtypes.int64)
    before = w.call("Less" if side == "left" else "LessOrEqual", table, values)
    if dtype.kind == "float":  # NaN comes last
        odd = w.call("IsNaN", values)
        before = w.call("Or", before, w.call("And", odd, w.call("Not", w.call("IsNaN", table)))
                        if side == "left" else odd)  # fmt: skip
    return _reduced(w, "ReduceSum", w.cast(before, dtypes.int64), (-1,), False)
