"""Reading and writing parts of tensors: x[…], x[…] = v, take, nonzero, repeat.

An index is split once into a static part (ints, slices, new axes) and the integer tensors in it.
Without tensors it is the `getitem` op, which moves no data; with them it is `gather`. Boolean masks
become the positions of their True elements. Both follow NumPy's rules, and an index that is out of
range is an error in every mode.
"""

from __future__ import annotations

import operator
from sys import getrefcount
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.asked_sizes import is_less, same_shape
from weft.base.dim_algebra import Dim
from weft.base.dims import dim
from weft.base.errors import DTypeError, IndexError, ShapeError
from weft.base.promotion import RANKS
from weft.base.shapes import Shape, broadcast_shapes, normalize_axis, size_of
from weft.core.bind import bind, rebind, recorder, short, update
from weft.core.operands import as_tensor, cast, constant, number_kind
from weft.core.public import attach, public
from weft.core.temporaries import ITEM_OF_TEMPORARY, lost_item
from weft.core.tensor import Tensor
from weft.ir.op import Op, Trait
from weft.ir.types import TensorType
from weft.ops.batch_index import repeat_rule, take_rule
from weft.ops.batching import shifted
from weft.ops.creation import arange, asarray
from weft.ops.index_cards import GATHER, GETITEM, SCATTER_ADD, SETITEM, TENSOR, check_indices
from weft.ops.rules import apply, cast_to
from weft.ops.select import where
from weft.ops.shape import broadcast_to, expand_dims, reshape, unstack
from weft.ops.sized_slices import placed_slices
from weft.ops.slices import has_tensor_bounds, read_slices, written_slices
from weft.ops.ways import taken, taken_along

__all__ = ["nonzero", "repeat", "take", "take_along_axis", "take_along_dim"]

_PLAIN = frozenset((int, slice, type(None), type(...)))


# --- x[…] and x[…] = v -------------------------------------------------------------------------


def _is_static(key: Any) -> bool:
    kind = key.__class__
    return kind in _PLAIN or (kind is tuple and all(part.__class__ in _PLAIN for part in key))


def _static_index(index: Any) -> dict[str, Any]:
    return {"index": index}


def _getitem_method(self: Tensor, key: Any, /) -> Tensor:
    """x[key]: a part of x, as a new tensor."""
    if _is_static(key):
        part = short(GETITEM, operator.getitem, self, key, _static_index)
        if part is not None:
            return part
        if not has_tensor_bounds(key):
            return bind(GETITEM, self, index=placed_slices(self, key))  # type: ignore[no-any-return]
    x = self
    if has_tensor_bounds(key):
        x, key = read_slices(x, key, _axes_used)
    x, index, tensors = split_index(x, placed_slices(x, key))
    out: Tensor = (
        bind(GATHER, x, *tensors, index=index) if tensors else bind(GETITEM, x, index=index)
    )
    return out


def _setitem_method(self: Tensor, key: Any, value: Any, /) -> None:
    """x[key] = value: x now holds the new values; no other tensor changes."""
    lost = getrefcount(self) <= ITEM_OF_TEMPORARY
    new = fitting(value, self)
    if has_tensor_bounds(key):
        rebind(self, written_slices(self, key, new, _axes_used), "setitem")
    elif _is_static(key):
        update(SETITEM, self, new, index=placed_slices(self, key))
    elif (mask := whole_mask(self, key, new)) is not None:
        # Without looking for positions: their number would depend on values.
        rebind(self, where(mask, new, self), "setitem")
    else:
        x, index, tensors = split_index(self, placed_slices(self, key))
        if x is self:
            update(SETITEM, self, new, *tensors, index=index)
        else:  # a 0-d mask indexes a new axis in front
            written = bind(SETITEM, x, new, *tensors, index=index)
            rebind(self, reshape(written, self.shape), "setitem")
    if lost:
        lost_item()


def whole_mask(x: Tensor, key: Any, value: Tensor) -> Tensor | None:
    """A mask over the first axes of x, for `where`, if one value is written everywhere.

    Returns None for other indices, and for values that differ from place to place.
    """
    if not isinstance(key, (Tensor, np.ndarray)) or key.dtype not in (dtypes.bool, np.dtype(bool)):
        return None
    rest = x.ndim - key.ndim
    if key.ndim == 0 or rest < value.ndim or tuple(key.shape) != x.shape[: key.ndim]:
        return None
    if any(n not in (1, m) for n, m in zip(value.shape[::-1], x.shape[::-1], strict=False)):
        return None
    mask = _as_index(key, x)
    return reshape(mask, (*x.shape[: key.ndim], *(1,) * rest)) if rest else mask


def fitting(value: Any, target: Tensor) -> Tensor:
    """`value` in the dtype of the tensor it is written to, if that can hold its kind."""
    dtype = target.dtype
    kind = number_kind(value)
    given = (
        kind
        or (
            as_tensor(value, "setitem")
            if isinstance(value, (Tensor, np.ndarray))
            else asarray(value)
        ).dtype.kind
    )
    if RANKS[given] > RANKS[dtype.kind]:
        raise DTypeError(
            f"a {given} value cannot be written into a tensor of {dtype.name}",
            op="setitem",
            operands=[target.type],
            hint="cast the value or the tensor with astype",
        )
    if kind is not None:
        return constant(value, dtype, target.device)
    tensor = value if isinstance(value, Tensor) else asarray(value, device=target.device)
    return cast(tensor, dtype)


def split_index(x: Tensor, key: Any) -> tuple[Tensor, tuple[Any, ...], list[Tensor]]:
    """An index as its static part and the integer tensors in it."""
    parts: list[Any] = []
    tensors: list[Tensor] = []
    given = key if isinstance(key, tuple) else (key,)
    axis = 0  # of x: the next one that the index covers
    for position, part in enumerate(given):
        if part is ...:
            later = sum(_axes_used(p) for p in given[position + 1 :])
            axis = max(x.ndim - later, axis)
            parts.append(part)
        elif part is None or isinstance(part, slice):
            parts.append(part)
            axis += part is not None
        elif isinstance(part, (bool, np.bool_)):
            x = expand_dims(x, axis)
            parts.append(TENSOR)
            tensors.append(arange(int(part), device=x.device))
            axis += 1
        elif isinstance(part, (int, Dim)):
            parts.append(part)
            axis += 1
        elif isinstance(part, Tensor) and part.dtype is not dtypes.bool:
            parts.append(TENSOR)
            tensors.append(part)
            axis += 1
        else:
            found = _as_index(part, x)
            if found.dtype is not dtypes.bool:
                parts.append(TENSOR)
                tensors.append(found)
                axis += 1
            elif found.ndim == 0:
                x = expand_dims(x, axis)
                parts.append(TENSOR)
                tensors.append(arange(int(found), device=x.device))
                axis += 1
            else:
                _check_mask(found, x.shape[axis : axis + found.ndim])
                parts.extend([TENSOR] * found.ndim)
                tensors.extend(nonzero(found))
                axis += found.ndim
    return x, tuple(parts), tensors


def _axes_used(part: Any) -> int:
    """The number of axes of the tensor that a part of an index covers."""
    if part is None or isinstance(part, (bool, np.bool_)):
        return 0
    if isinstance(part, (Tensor, np.ndarray)) and part.dtype in (dtypes.bool, np.dtype(bool)):
        return part.ndim
    return 1


def _as_index(part: Any, x: Tensor) -> Tensor:
    if isinstance(part, Tensor):
        return part
    if isinstance(part, (list, tuple, range, np.ndarray)):
        made = asarray(part if not isinstance(part, range) else list(part), device=x.device)
        return made if made.size else cast(made, dtypes.int64)
    try:
        return asarray(operator.index(part), device=x.device)
    except TypeError:
        raise IndexError(
            f"{type(part).__name__} {part!r:.40} is not an index",
            op="getitem",
            operands=[x.type],
            hint="use ints, slices, None, ..., integer or bool tensors",
        ) from None


def _check_mask(mask: Tensor, shape: Shape) -> None:
    if len(shape) != mask.ndim or any(
        m not in (n, 0) for m, n in zip(mask.shape, shape, strict=True)
    ):
        raise IndexError(
            f"a mask of shape {mask.shape} does not fit axes of shape {shape}",
            op="getitem",
            operands=[mask.type],
        )


attach({"__getitem__": _getitem_method, "__setitem__": _setitem_method})


# --- functions ---------------------------------------------------------------------------------


def _take_type(x: TensorType, indices: TensorType, *, axis: int) -> TensorType:
    check_indices([indices])
    return x.like(shape=(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


def _along_type(x: TensorType, indices: TensorType, *, axis: int) -> TensorType:
    check_indices([indices])
    return x.like(shape=indices.shape)


def _take_vjp(_xp: Any, g: Any, _out: Any, x_type: Any, indices: Any, *, axis: int) -> Any:
    index = (slice(None),) * axis + (TENSOR,)
    return apply(SCATTER_ADD, g, indices, shape=x_type.shape, index=index)


def _along_vjp(xp: Any, g: Any, _out: Any, x_type: Any, indices: Any, *, axis: int) -> Any:
    ndim = len(x_type.shape)
    places = [
        xp.reshape(xp.arange(n, device=g.device), (-1,) + (1,) * (ndim - i - 1))
        for i, n in enumerate(indices.shape)
    ]
    places[axis] = indices
    return apply(SCATTER_ADD, g, *places, shape=x_type.shape, index=(TENSOR,) * ndim)


_take = Op(
    "take",
    _take_type,
    lambda xp, x, indices, *, axis: xp.take(x, indices, axis=axis),
    vjp=(_take_vjp, None),
    batch=take_rule,
    traits=Trait.LINEAR,
    ways=taken,
)
_take_along_axis = Op(
    "take_along_axis",
    _along_type,
    lambda xp, x, indices, *, axis: xp.take_along_axis(x, indices, axis=axis),
    vjp=(_along_vjp, None),
    batch=shifted("axis"),
    traits=Trait.LINEAR,
    ways=taken_along,
)


@public("take")
def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """The elements of x at `indices` along an axis; without one, those of x as a vector.

    >>> weft.take(weft.asarray([10, 20, 30]), weft.asarray([2, 0, -1]))
    tensor([30, 10, 30])
    """
    if axis is None:
        x, axis = reshape(x, (size_of(x.shape),)), 0
    at = as_tensor(indices, "take", like=x)
    out: Tensor = bind(_take, x, at, axis=normalize_axis(axis, x.ndim, "take"))
    return out


@public("take_along_axis")
def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """For each position, the element of x at `indices` along the axis; for results of argsort."""
    at = normalize_axis(axis, x.ndim, "take_along_axis")
    if indices.ndim != x.ndim:
        raise ShapeError(
            f"x has {x.ndim} axes and indices {indices.ndim}: they must agree",
            op="take_along_axis",
            operands=[x.type, indices.type],
        )

    def rest(shape: Shape) -> Shape:
        return (*shape[:at], 1, *shape[at + 1 :])

    other = broadcast_shapes(rest(x.shape), rest(indices.shape))
    source = broadcast_to(x, (*other[:at], x.shape[at], *other[at + 1 :]))
    places = broadcast_to(indices, (*other[:at], indices.shape[at], *other[at + 1 :]))
    return take_along(source, places, at)


@public("take_along_dim")
def take_along_dim(x: Tensor, indices: Tensor, /, axis: int | None = None) -> Tensor:
    """`take_along_axis`; without an axis, of both tensors as vectors.

    >>> x = weft.asarray([[3, 1], [2, 9]])
    >>> weft.take_along_dim(x, weft.argmax(x, axis=1, keepdims=True), 1)
    tensor([[3],
            [9]])
    """
    if axis is None:
        return take(x, reshape(indices, (indices.size,)))
    return take_along_axis(x, indices, axis=axis)


def take_along(x: Tensor, indices: Tensor, axis: int) -> Tensor:
    """The same for operands that need no broadcasting."""
    out: Tensor = bind(_take_along_axis, x, indices, axis=axis)
    return out


def _nonzero_type(x: TensorType) -> TensorType:
    return x.like(dtype=dtypes.int64, shape=(x.ndim, dim("_n")))


_nonzero = Op(
    "nonzero",
    _nonzero_type,
    lambda xp, x: xp.astype(xp.stack(xp.nonzero(x)), dtypes.int64.numpy),
    traits=Trait.DATA_SHAPE,
)


@public("nonzero")
def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The positions of the nonzero elements: one tensor of indices for each axis."""
    if not x.ndim:
        raise ShapeError("a 0-d tensor has no positions", op="nonzero", operands=[x.type])
    return unstack(bind(_nonzero, x))


def _repeat_type(x: TensorType, repeats: TensorType, *, axis: int) -> TensorType:
    if repeats.shape != (x.shape[axis],):
        raise ShapeError(
            f"{size_of(repeats.shape)} counts of repetition for an axis of size {x.shape[axis]}"
        )
    check_indices([repeats])
    return x.like(shape=(*x.shape[:axis], dim("_n"), *x.shape[axis + 1 :]))


def _repeat_vjp(xp: Any, g: Any, _out: Any, x_type: Any, repeats: Any, *, axis: int) -> Any:
    ends = cast_to(xp, xp.cumulative_sum(repeats), dtypes.int64)
    places = xp.arange(g.shape[axis], dtype=ends.dtype, device=g.device)
    came_from = xp.searchsorted(ends, places, side="right")
    return _take_vjp(xp, g, None, x_type, came_from, axis=axis)


_repeat = Op(
    "repeat",
    _repeat_type,
    lambda xp, x, repeats, *, axis: xp.repeat(x, repeats, axis=axis),
    vjp=(_repeat_vjp, None),
    batch=repeat_rule,
    traits=Trait.DATA_SHAPE | Trait.LINEAR,
)


@public("repeat")
def repeat(x: Tensor, repeats: int | Tensor, /, *more: int, axis: int | None = None) -> Tensor:
    """Each element repeated: a count for all, or a tensor of counts, one for each element.

    >>> weft.asarray([1, 2]).repeat(2)
    tensor([1, 1, 2, 2])
    """
    if more:  # NumPy's second number is an axis; PyTorch's is a count for the second axis
        counts = ", ".join(map(repr, (repeats, *more)))
        raise DTypeError(
            "one count is taken, and the axis by name",
            op="repeat",
            operands=[x.type],
            hint=f"x.tile({counts}) repeats the whole tensor, x.repeat({repeats!r}, "
            f"axis={more[0]!r}) each element along an axis",
        )
    if axis is None:
        x, axis = reshape(x, (size_of(x.shape),)), 0
    at = normalize_axis(axis, x.ndim, "repeat")
    if isinstance(repeats, Tensor) and recorder() is not None:
        if not same_shape(repeats.shape, (x.shape[at],)) and size_of(repeats.shape) == 1:
            repeats = broadcast_to(reshape(repeats, (1,)), (x.shape[at],))
        return bind(_repeat, x, repeats, axis=at)  # type: ignore[no-any-return]
    if isinstance(repeats, Tensor) and size_of(repeats.shape) != 1:
        out: Tensor = bind(_repeat, x, repeats, axis=at)
        return out
    count = repeats.item() if isinstance(repeats, Tensor) else repeats
    if count.__class__ is not Dim:
        count = operator.index(count)
    if is_less(count, 0):
        raise ShapeError(f"repeats must not be negative: {count}", op="repeat")
    spread = expand_dims(x, at + 1)
    wide = broadcast_to(spread, (*x.shape[: at + 1], count, *x.shape[at + 1 :]))
    return reshape(wide, (*x.shape[:at], x.shape[at] * count, *x.shape[at + 1 :]))
