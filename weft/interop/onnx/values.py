"""Rows of casts and constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.dims import has_dims
from weft.base.dtypes import DType, float_info, int_info
from weft.interop.onnx.library import COMPUTED_IN
from weft.interop.onnx.table import row, unsupported
from weft.interop.onnx.writer import Writer
from weft.ir.graph import Node

# --- casts ---------------------------------------------------------------------------------------


@row("astype")
def _astype(w: Writer, node: Node, x: str, dtype: DType) -> str:
    return converted(w, x, node.inputs[0].tensor_type.dtype, dtype)


def converted(w: Writer, x: str, old: DType, new: DType) -> str:
    """x as Weft casts it: floats beyond an integer's limits become its limits, NaN becomes 0."""
    if old.kind != "float" or new.kind not in ("int", "uint"):
        return w.cast(x, new)
    wide = COMPUTED_IN.get(old, old)
    x = x if wide is old else w.cast(x, wide)
    limits = int_info(new)
    largest = float_info(wide).max
    top = float(limits.max) + 1.0 if limits.max < 2**24 else float(limits.max)
    low = w.call("LessOrEqual", x, w.number(float(limits.min), wide))
    high = w.call("GreaterOrEqual", x, w.number(min(top, float(largest)), wide))
    odd = w.call("Or", w.call("Or", low, high), w.call("IsNaN", x))
    inside = w.cast(w.call("Where", odd, w.number(0, wide), x), new)
    inside = w.call("Where", low, w.number(limits.min, new), inside)
    return w.call("Where", high, w.number(limits.max, new), inside)


# --- constants -----------------------------------------------------------------------------------

#: Arrays of up to this many elements that follow from attributes are written down.
_WRITTEN = 4096


@row("constant")
def _constant(w: Writer, node: Node, value: Any, dtype: DType, device: Any) -> str:
    return w.const(value.array)


@row("full")
def _full(w: Writer, node: Node, shape: Any, value: Any, dtype: DType, device: Any) -> str:
    number = w.number(value, dtype)
    return w.call("Expand", number, w.ints(shape)) if shape else number


@row("dim_size")
def _dim_size(w: Writer, node: Node, size: int, dtype: DType, device: Any) -> str:
    found = w.call("Squeeze", w.size(size), w.const(np.zeros(1, np.int64)))
    return found if dtype is dtypes.int64 else w.cast(found, dtype)


def _is_known(node: Node, attrs: dict[str, Any]) -> bool:
    shape = node.outputs[0].tensor_type.shape
    return not has_dims((*shape, *[v for v in attrs.values() if isinstance(v, int)]))


def _written(w: Writer, node: Node, attrs: dict[str, Any]) -> str:
    """What the op makes, as a constant."""
    evaluate: Any = node.op.eval
    return w.const(evaluate(np, **attrs).astype(node.outputs[0].tensor_type.dtype.numpy))


@row("eye")
def _eye(w: Writer, node: Node, **attrs: Any) -> str:
    if not _is_known(node, attrs):
        raise unsupported(node, "of a symbolic size has no operator in ONNX", "compare two arange")
    return _written(w, node, attrs)


@row("arange")
def _arange(w: Writer, node: Node, **attrs: Any) -> str:
    if _is_known(node, attrs) and node.outputs[0].tensor_type.size <= _WRITTEN:
        return _written(w, node, attrs)
    return _counted(w, node, attrs["start"], attrs["step"], attrs["length"])


def _counted(w: Writer, node: Node, start: Any, step: Any, length: int) -> str:
    dtype = node.outputs[0].tensor_type.dtype
    whole = not isinstance(start, float) and not isinstance(step, float)
    counts = iota(w, length)
    if whole:
        found = w.call("Add", w.call("Mul", counts, w.size(step)), w.size(start))
        return w.cast(found, dtype)
    counts = w.cast(counts, dtypes.float64)
    by, first = w.number(step, dtypes.float64), w.number(start, dtypes.float64)
    return converted(w, w.call("Add", w.call("Mul", counts, by), first), dtypes.float64, dtype)


def iota(w: Writer, length: int) -> str:
    """0, 1, 2, … as int64, as many as a size."""
    none = w.const(np.zeros(1, np.int64))
    end = w.call("Squeeze", w.size(length), none)
    return w.call("Range", w.number(0, dtypes.int64), end, w.number(1, dtypes.int64))
