"""How often numbers occur, and how many lie between edges."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.asked_sizes import is_less
from weft.base.dims import dim
from weft.base.dtypes import NARROW_FLOATS
from weft.base.errors import DTypeError, RangeError, ShapeError
from weft.core.bind import bind
from weft.core.operands import as_tensor, cast, constant
from weft.core.public import public
from weft.core.results import Histogram
from weft.core.tensor import Tensor, type_of
from weft.ir.op import Op, Trait
from weft.ir.types import TensorType
from weft.ops.arguments import integer
from weft.ops.creation import arange, asarray, ones
from weft.ops.dtype_functions import diff
from weft.ops.elementwise import (
    add,
    divide,
    equal,
    greater_equal,
    less,
    less_equal,
    logical_and,
    maximum,
    minimum,
    multiply,
    subtract,
)
from weft.ops.index import take
from weft.ops.index_cards import SCATTER_ADD, TENSOR
from weft.ops.reduce import computable, max, min, sum
from weft.ops.search import searchsorted
from weft.ops.segments import segment_sum
from weft.ops.select import where
from weft.ops.shape import concat, reshape

__all__ = ["bincount", "histc", "histogram"]


# --- equal numbers -----------------------------------------------------------------------------


def _bincount_type(x: TensorType, *weights: TensorType, minlength: int) -> TensorType:
    if x.dtype.kind not in ("int", "uint"):
        raise DTypeError(f"it counts integers, not {x.dtype.name}", hint="cast x with astype")
    if x.ndim != 1 or any(w.shape != x.shape for w in weights):
        raise ShapeError("x and the weights must be vectors of one length")
    kind = weights[0].dtype if weights else dtypes.int64
    return x.like(dtype=kind, shape=(dim("_n"),))


def _bincount(xp: Any, x: Any, *weights: Any, minlength: int) -> Any:
    if x.dtype.kind not in "iu" or x.ndim != 1:
        raise ValueError  # the type rule explains the error
    if x.size and x.dtype.kind == "i" and x.min() < 0:
        raise RangeError(f"x holds {x.min()}: it must not be negative", op="bincount")
    length = builtins.max(int(x.max()) + 1 if x.size else 0, minlength)
    dtype = weights[0].dtype if weights else np.dtype(np.int64)
    wide = np.dtype(np.float32) if dtype in _NARROW else dtype
    out = np.zeros(length, wide)
    np.add.at(out, x.astype(np.int64), weights[0].astype(wide) if weights else 1)
    return out.astype(dtype, copy=False)


_NARROW = frozenset(dtype.numpy for dtype in NARROW_FLOATS)


def _bincount_vjp(
    _number: int, xp: Any, g: Any, _out: Any, x: Any, *_weights: Any, minlength: int
) -> Any:
    return xp.take(g, x, axis=0)


_bincount_op = Op(
    "bincount",
    _bincount_type,
    _bincount,
    vjp=(None, _bincount_vjp),
    traits=Trait.DATA_SHAPE,
)


@public("bincount")
def bincount(
    x: Tensor,
    /,
    weights: Tensor | None = None,
    minlength: int = 0,
    *,
    length: int | None = None,
) -> Tensor:
    """How often each of 0, 1, 2… occurs in x, or the sums of the weights of each.

    The result has max(x) + 1 elements, and at least `minlength`. If `length` is given, it has that
    many, and larger numbers are an error: compiled code then knows the size.

    >>> weft.bincount(weft.asarray([1, 3, 1]))
    tensor([0, 2, 0, 1])
    """
    given = as_tensor(x, "bincount")
    least = integer(minlength, "minlength", "bincount", given)
    more = [] if weights is None else [as_tensor(weights, "bincount", like=given)]
    if more and more[0].dtype.kind == "bool":
        more = [cast(more[0], dtypes.int64)]
    if least < 0:
        raise RangeError(f"minlength is {least}: it must not be negative", op="bincount")
    if length is None:
        out: Tensor = bind(_bincount_op, given, *more, minlength=least)
        return out
    value = more[0] if more else ones(given.shape, dtype=dtypes.int64, device=given.device)
    return segment_sum(value, given, length)


# --- numbers between edges ---------------------------------------------------------------------


def _edges(x: Tensor, bins: int, ends: tuple[Any, Any], room: float) -> Tensor:
    """The edges of bins of one width; if the ends are equal, `room` is left on both sides."""
    first, last = (_scalar(end, x) for end in ends)
    same = equal(first, last)
    first, last = where(same, subtract(first, room), first), where(same, add(last, room), last)
    width = divide(subtract(last, first), bins)
    steps = arange(bins, dtype=x.dtype, device=x.device)
    inner = add(multiply(steps, width), first)
    return concat([inner, reshape(last, (1,))], axis=0)


def _scalar(value: Any, x: Tensor) -> Tensor:
    return value if isinstance(value, Tensor) else constant(float(value), x.dtype, x.device)


def _range(x: Tensor, low: Any, high: Any, op: str) -> tuple[Any, Any]:
    """The range of bins; that of the elements if low and high are equal."""
    if not low <= high:
        raise RangeError(f"there is no range from {low} to {high}", op=op)
    if low != high:
        return low, high
    return (0.0, 1.0) if x.size == 0 else (min(x), max(x))


def _counted(x: Tensor, edges: Tensor, values: Tensor, *, even: bool) -> Tensor:
    """The sums of values by bins; the last bin includes its upper edge. `even`: of one width."""
    bins = edges.shape[0] - 1
    inside = logical_and(greater_equal(x, edges[0]), less_equal(x, edges[-1]))
    if even:
        place = _even_bin(x, edges, bins)
    else:
        place = minimum(subtract(searchsorted(edges, x, side="right"), 1), bins - 1)
    at = where(inside, place, bins)  # one more bin for those outside
    out: Tensor = bind(SCATTER_ADD, values, at, shape=(bins + 1,), index=(TENSOR,))
    return out[:-1]


def _even_bin(x: Tensor, edges: Tensor, bins: int) -> Tensor:
    """The number of the bin of each element: computed, and corrected by one where rounding put an
    element beyond an edge."""
    scale = divide(bins, subtract(edges[-1], edges[0]))
    guess = cast(multiply(subtract(x, edges[0]), scale), dtypes.int64)
    guess = minimum(maximum(guess, 0), bins - 1)
    below = less(x, take(edges, guess))
    above = logical_and(greater_equal(x, take(edges, add(guess, 1))), less(guess, bins - 1))
    return add(subtract(guess, cast(below, dtypes.int64)), cast(above, dtypes.int64))


def _bins(bins: Any, op: str, x: Tensor) -> int:
    count = integer(bins, "bins", op, x)
    if count < 1:
        raise RangeError(f"bins is {count}: there must be at least one", op=op)
    return count


@public("histc")
def histc(x: Tensor, /, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements lie in each of `bins` bins of one width from min to max, in x's dtype.

    If min and max are equal, they are those of the elements, which must then be finite. Elements
    outside, and NaN, are not counted.

    >>> weft.histc(weft.asarray([1.0, 2.0, 1.0]), bins=4, min=0, max=3)
    tensor([0., 2., 1., 0.])
    """
    given = as_tensor(x, "histc")
    wide, _ = computable(given)
    flat = reshape(wide, (given.size,))
    edges = _edges(flat, _bins(bins, "histc", given), _range(flat, min, max, "histc"), 1.0)
    each = ones(flat.shape, dtype=dtypes.int64, device=given.device)
    counts = _counted(flat, edges, each, even=True)
    return cast(counts, given.dtype if given.dtype.kind == "float" else dtypes.int64)


@public("histogram")
def histogram(
    x: Tensor,
    /,
    bins: Any = 10,
    *,
    range: Sequence[float] | None = None,
    weights: Tensor | None = None,
    density: bool = False,
) -> Histogram:
    """How many elements lie in each bin, and the edges of the bins.

    `bins` is their number, or a tensor of edges. Each bin includes its lower edge, and the last
    one both. With weights, these are added up; with `density` the integral over the range is 1.

    >>> weft.histogram(weft.asarray([1.0, 2.0, 1.0]), 2, range=(0, 3))
    Histogram(hist=tensor([2, 1]), bin_edges=tensor([0. , 1.5, 3. ]))
    """
    given = as_tensor(x, "histogram")
    wide, dtype = computable(given)
    flat = reshape(wide, (given.size,))
    even = not isinstance(bins, (Tensor, np.ndarray, list, tuple))
    if not even:
        edges = cast(asarray(bins, device=given.device), wide.dtype)
        if edges.ndim != 1 or is_less(edges.shape[0], 2):
            raise ShapeError(
                f"edges of shape {edges.shape} make no bins", op="histogram", operands=[given.type]
            )
    else:
        ends: tuple[Any, Any]
        if range is None:
            ends = _range(flat, 0.0, 0.0, "histogram")
        else:
            ends = range[0], range[1]
            if not ends[0] <= ends[1]:
                raise RangeError(f"there is no range from {ends[0]} to {ends[1]}", op="histogram")
        edges = _edges(flat, _bins(bins, "histogram", given), ends, 0.5)
    if weights is None:
        values = ones(flat.shape, dtype=dtypes.int64, device=given.device)
    else:
        values = as_tensor(weights, "histogram", like=given)
        if values.shape != given.shape:
            raise ShapeError(
                "there must be a weight for each element",
                op="histogram",
                operands=[type_of(given), type_of(values)],
            )
        values = reshape(values, flat.shape)
    counts = _counted(flat, edges, values, even=even)
    if density:
        width = diff(edges)
        counts = divide(cast(counts, wide.dtype), multiply(sum(counts), width))
        counts = cast(counts, dtype)
    return Histogram(counts, cast(edges, dtype))
