"""The cards behind scatter_add, index_add, segment_max…: x, with values combined into x[index].

Where an index names a position several times, all its values count. Narrow floats are combined in
float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.dim_algebra import Dim
from weft.base.errors import ShapeError
from weft.base.shapes import broadcasts_to, size_of
from weft.ir.op import Op, Trait
from weft.ir.types import TensorType
from weft.ops.batch_index import setitem_rule
from weft.ops.index_cards import GATHER, GETITEM, SCATTER_ADD, filled_in, flat_places
from weft.ops.index_shape import Index, check_indices, indexed_shape
from weft.ops.reduce import can_divide
from weft.ops.rules import apply, cast_to, check_kind, check_same, conj_of, sum_to

__all__ = ["ADD_AT", "MAXIMUM_AT", "MINIMUM_AT", "MULTIPLY_AT"]

Array = np.ndarray[Any, Any]


def _typing(kinds: str) -> Callable[..., TensorType]:
    def infer(x: TensorType, value: TensorType, *indices: TensorType, index: Index) -> TensorType:
        check_indices(indices)
        check_kind(x, kinds)
        check_same(x, value)
        part = indexed_shape(x.shape, index, [i.shape for i in indices])
        if not broadcasts_to(value.shape, part):
            raise ShapeError(f"a value of shape {value.shape} does not fit into a part of {part}")
        return x

    return infer


def _combining(name: str) -> Callable[..., Any]:
    def combined(xp: Any, x: Any, value: Any, *indices: Any, index: Index) -> Any:
        out = xp.asarray(x, copy=True)
        getattr(xp, name).at(out, filled_in(index, indices), value)
        return out

    return combined


def _combining_numpy(ufunc: Any) -> Callable[..., Any]:
    """The same; `ufunc.at` is fast for flat arrays only."""

    def combined(x: Array, value: Array, *indices: Array, index: Index) -> Array:
        out = np.array(x, order="C")
        if not indices:
            out[index] = ufunc(out[index], value)
            return out
        part = indexed_shape(x.shape, index, [i.shape for i in indices])
        places = flat_places(np, x.shape, index, indices)
        ufunc.at(out.reshape(-1), places, np.broadcast_to(value, part).reshape(-1))
        return out

    return combined


# --- derivatives -------------------------------------------------------------------------------


def _part(x: Any, indices: Any, index: Index) -> Any:
    return apply(GATHER, x, *indices, index=index) if indices else apply(GETITEM, x, index=index)


def _whole(xp: Any, value: Any, x: Any, indices: Any, index: Index) -> Any:
    """The value, as large as the part of x that it is combined with."""
    part = indexed_shape(x.shape, index, [i.shape for i in indices])
    return xp.broadcast_to(value, part)


def _add_value(
    xp: Any, g: Any, _out: Any, _x: Any, value_type: Any, *indices: Any, index: Index
) -> Any:
    return sum_to(xp, _part(g, indices, index), value_type.shape)


def _multiply_x(
    xp: Any, g: Any, _out: Any, _x: Any, value: Any, *indices: Any, index: Index
) -> Any:
    return g * conj_of(xp, apply(MULTIPLY_AT, xp.ones_like(g), value, *indices, index=index))


def _multiply_value(
    xp: Any, g: Any, out: Any, x: Any, value: Any, *indices: Any, index: Index
) -> Any:
    whole = _whole(xp, value, x, indices, index)
    if xp is np and can_divide(out):
        part = _part(g * conj_of(xp, out), indices, index) / conj_of(xp, whole)
    else:
        others = _others(xp, x, whole, indices, index)
        part = _part(g, indices, index) * conj_of(xp, others)
    return sum_to(xp, part, value.shape)


def _shares(
    xp: Any, g: Any, out: Any, x: Any, whole: Any, indices: Any, index: Index
) -> tuple[Any, Any, Any]:
    """Those that tie for an extreme share the gradient evenly; so do NaNs.

    Returns which elements of x tie, which values do, and the share of each position.
    """
    own = (x == out) | (x != x)
    hits = (whole == _part(out, indices, index)) | (whole != whole)
    counted = cast_to(xp, hits, g.dtype)
    others = apply(SCATTER_ADD, counted, *indices, shape=x.shape, index=index)
    return own, hits, g / (cast_to(xp, own, g.dtype) + others)


def _extreme_x(xp: Any, g: Any, out: Any, x: Any, value: Any, *indices: Any, index: Index) -> Any:
    whole = _whole(xp, value, x, indices, index)
    own, _, share = _shares(xp, g, out, x, whole, indices, index)
    return xp.where(own, share, 0)


def _extreme_value(
    xp: Any, g: Any, out: Any, x: Any, value: Any, *indices: Any, index: Index
) -> Any:
    whole = _whole(xp, value, x, indices, index)
    _, hits, share = _shares(xp, g, out, x, whole, indices, index)
    return sum_to(xp, xp.where(hits, _part(share, indices, index), 0), value.shape)


def _others(xp: Any, x: Any, value: Any, indices: Any, index: Index) -> Any:
    """For each value, the product of x and of all other values at the same position.

    There is no division, so zeros are no exception, and it has derivatives of any order.
    """
    numbers = xp.reshape(xp.arange(size_of(x.shape), device=x.device), x.shape)
    groups = xp.reshape(_part(numbers, indices, index), (-1,))
    flat = xp.reshape(value, (-1,))
    if isinstance(flat.shape[0], Dim):  # over all pairs
        same = xp.expand_dims(groups, axis=0) == xp.expand_dims(groups, axis=1)
        each = xp.arange(flat.shape[0], device=x.device)
        other = same & (xp.expand_dims(each, axis=0) != xp.expand_dims(each, axis=1))
        products = xp.prod(xp.where(other, xp.expand_dims(flat, axis=0), 1), axis=1)
    else:
        order = xp.argsort(groups, stable=True)
        sorted_groups, given = xp.take(groups, order, axis=0), xp.take(flat, order, axis=0)
        before = _products_before(xp, sorted_groups, given)
        behind = _products_before(xp, xp.flip(sorted_groups, axis=0), xp.flip(given, axis=0))
        products = before * xp.flip(behind, axis=0)
        products = xp.take(products, xp.argsort(order, stable=True), axis=0)
    return _part(x, indices, index) * xp.reshape(products, value.shape)


def _products_before(xp: Any, groups: Any, x: Any) -> Any:
    """For each element of sorted groups, the product of those before it in its group.

    In about log2(n) steps: each doubles the number of elements that a product is made of.
    """
    size, window = x.shape[0], 1
    total = x
    while window < size:
        same = groups[window:] == groups[:-window]
        more = xp.where(same, total[window:] * total[:-window], total[window:])
        total = xp.concat([total[:window], more])
        window *= 2
    if not size:
        return total
    same = groups[1:] == groups[:-1]
    return xp.concat([xp.ones_like(x[:1]), xp.where(same, total[:-1], xp.ones_like(x[1:]))])


# --- cards -------------------------------------------------------------------------------------


def _card(ufunc: Any, kinds: str, vjp: Any, traits: Trait = Trait.NONE) -> Op:
    return Op(
        f"{ufunc.__name__}_at",
        _typing(kinds),
        _combining(ufunc.__name__),
        numpy=_combining_numpy(ufunc),
        kinds=kinds,
        vjp=(*vjp, None),
        batch=setitem_rule,
        traits=Trait.WIDEN | traits,
    )


def _same(_xp: Any, g: Any, _out: Any, _x: Any, _value: Any, *_indices: Any, index: Index) -> Any:
    return g


ADD_AT = _card(np.add, "numeric", (_same, _add_value), Trait.JOINT)
MULTIPLY_AT: Op = _card(np.multiply, "numeric", (_multiply_x, _multiply_value))
MAXIMUM_AT = _card(np.maximum, "real numeric", (_extreme_x, _extreme_value))
MINIMUM_AT = _card(np.minimum, "real numeric", (_extreme_x, _extreme_value))
