"""The elementwise cards as IR: one op on values in registers.

`emit` writes one op on vectors (or scalars, where `lanes` is 1) in compute form; see
`weft.codegen.scalar.forms` for what that is, and for `load`, `store`, `splat` and `literal`, which
this module also exports. What an op gives is what its card's evaluation gives in NumPy: bit by bit
where it is exact, else within 2 units in the last place of float32 (4 of float64). Narrow floats
are computed in float32 and rounded once, as the cards' trait WIDEN says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.base import dtypes
from weft.base.dtypes import NARROW_FLOATS, DType
from weft.codegen.scalar import complexes
from weft.codegen.scalar.casts import cast
from weft.codegen.scalar.floats import FLOATS, UNROUNDED, nextafter
from weft.codegen.scalar.forms import (
    compute_kind,
    compute_type,
    literal,
    load,
    memory_type,
    rounded,
    splat,
    store,
    supported,
)
from weft.codegen.scalar.integers import BOOLS, SIGNED, UNSIGNED
from weft.codegen.scalar.vec import Vec
from weft.codegen.text import Function

__all__ = [
    "compute_type",
    "emit",
    "has_emitter",
    "literal",
    "load",
    "memory_type",
    "number_of_size",
    "splat",
    "store",
]

_BY_KIND: dict[str, dict[str, Callable[..., Vec]]] = {
    "bool": BOOLS,
    "int": SIGNED,
    "uint": UNSIGNED,
    "float": FLOATS,
}


def number_of_size(f: Function, size: int, dtype: DType) -> str:
    """A size of the run as a number of a dtype, in compute form."""
    return cast(Vec(f, "i64", 1, str(f.size(size))), dtypes.int64, dtype).name


def has_emitter(op: str, inputs: Sequence[DType], result: DType) -> bool:
    """Whether `emit` can write this op for operands of these dtypes."""
    if any(dtype.kind == "complex" for dtype in (*inputs, result)):
        return complexes.has_emitter(op, inputs, result)
    if not all(map(supported, (*inputs, result))):
        return False
    if op == "where":
        return inputs[0] is dtypes.bool and inputs[1] is inputs[2] is result
    if op == "astype":
        return True
    if any(dtype is not inputs[0] for dtype in inputs):
        return False
    return op in _BY_KIND[inputs[0].kind] or (op == "nextafter" and inputs[0].kind == "float")


def emit(
    f: Function,
    op: str,
    inputs: Sequence[tuple[DType, str]],
    result: DType,
    lanes: int,
    attrs: Mapping[str, Any],
) -> str | None:
    """Write one elementwise op: the name of its result, or None if there is no emitter."""
    kinds = [dtype for dtype, _ in inputs]
    if not has_emitter(op, kinds, result):
        return None
    values = [Vec(f, compute_kind(dtype), lanes, name) for dtype, name in inputs]
    first = kinds[0]
    if any(dtype.kind == "complex" for dtype in (*kinds, result)):
        return complexes.emit(op, values, kinds, result).name
    if op == "astype":
        return cast(values[0], first, result).name
    if op == "where":
        return values[0].pick(values[1], values[2]).name
    if op == "nextafter":
        return nextafter(*values, dtype=first).name
    out = _BY_KIND[first.kind][op](*values)
    if result in NARROW_FLOATS and op not in UNROUNDED:
        out = rounded(out, result)
    return out.name
