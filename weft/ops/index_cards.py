"""The cards that read and write parts of tensors: getitem, gather, setitem, scatter_add.

An index has a static part (ints, slices, new axes), which is an attribute, and integer tensors,
which are inputs. In the static part, TENSOR stands for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.errors import IndexError, ShapeError
from weft.base.shapes import Shape, broadcasts_to, size_of
from weft.ir.op import Op, Trait
from weft.ir.types import TensorType
from weft.ops.batch_index import gather_rule, getitem_rule, scatter_add_rule, setitem_rule
from weft.ops.index_shape import TENSOR, Index, check_indices, full_index, indexed_shape
from weft.ops.rules import apply, sum_to
from weft.ops.ways import added_at, read_at, section_attrs, written_at

__all__ = ["GATHER", "GETITEM", "SCATTER_ADD", "SETITEM", "TENSOR", "check_indices"]

# --- type rules --------------------------------------------------------------------------------


def _getitem_type(x: TensorType, *, index: Index) -> TensorType:
    return x.like(shape=indexed_shape(x.shape, index))


def _gather_type(x: TensorType, *indices: TensorType, index: Index) -> TensorType:
    check_indices(indices)
    return x.like(shape=indexed_shape(x.shape, index, [i.shape for i in indices]))


def _setitem_type(
    x: TensorType, value: TensorType, *indices: TensorType, index: Index
) -> TensorType:
    check_indices(indices)
    target = indexed_shape(x.shape, index, [i.shape for i in indices])
    if not broadcasts_to(value.shape, target):
        raise ShapeError(f"a value of shape {value.shape} does not fit into a part of {target}")
    return x


# --- primitives --------------------------------------------------------------------------------


def filled_in(index: Index, arrays: Sequence[Any]) -> Any:
    """The index with its tensors filled in."""
    if not arrays:
        return index
    given = iter(arrays)
    parts = index if isinstance(index, tuple) else (index,)
    return tuple(next(given) if part is TENSOR else part for part in parts)


def _read(x: Any, *indices: Any, index: Index) -> Any:
    return x[filled_in(index, indices)]


def _write(x: Any, value: Any, *indices: Any, index: Index) -> None:
    x[filled_in(index, _in_order(indices))] = value


def _in_order(indices: Sequence[Any]) -> Sequence[Any]:
    """The same positions, so laid out that NumPy goes over them in row-major order: where one is
    repeated, the last write counts."""
    if not all(isinstance(i, np.ndarray) for i in indices):
        return indices
    together = np.broadcast_arrays(*indices) if len(indices) > 1 else indices
    return [np.asarray(i, order="C") for i in together]


def _written(xp: Any, x: Any, value: Any, *indices: Any, index: Index) -> Any:
    out = xp.asarray(x, copy=True)
    _write(out, value, *indices, index=index)
    return out


def _read_plain(x: Any, index: Index) -> Any:
    return x[index]


# A rule may call a card that is defined later: reading and adding are derivatives of each other.


def _part(x: Any, indices: Sequence[Any], index: Index) -> Any:
    return apply(GATHER, x, *indices, index=index) if indices else apply(GETITEM, x, index=index)


class Patch:
    """A raw gradient that is zero except for one part: the gradient of x from x[index].

    Patches of one array are added in one buffer. So the backward of reading an array row by row
    costs as much as the rows, not one whole array per row.
    """

    __slots__ = ("buffer", "index", "part", "shape")

    def __init__(self, part: Any, shape: Shape, index: Index) -> None:
        self.part, self.shape, self.index = part, shape, index
        self.buffer: Any = None

    def array(self) -> Any:
        """The whole gradient."""
        if self.buffer is None:
            self.buffer = np.zeros(self.shape, dtype=self.part.dtype)
            self.buffer[self.index] = self.part
        return self.buffer

    def plus(self, other: Any) -> Patch:
        """Add another gradient of the same array, in this one's buffer."""
        buffer = self.array()
        if isinstance(other, Patch) and other.buffer is None:
            buffer[other.index] += other.part
        else:
            buffer += other.array() if isinstance(other, Patch) else other
        return self


def _unread(xp: Any, g: Any, _out: Any, x_type: Any, *, index: Index) -> Any:
    if xp is np:
        return Patch(g, x_type.shape, index)
    return apply(SCATTER_ADD, g, shape=x_type.shape, index=index)


def _scatters(index: Index) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    first = parts[0] if parts else None
    return len(parts) > 1 or (isinstance(first, slice) and first.step not in (None, 1))


GETITEM = Op(
    "getitem",
    _getitem_type,
    lambda xp, x, *, index: x[index],
    numpy=_read_plain,
    vjp=(_unread,),
    batch=getitem_rule,
    traits=Trait.VIEW | Trait.LINEAR,
    scatters=_scatters,
    ways=read_at,
    local_attrs=section_attrs,
)
GATHER = Op(
    "gather",
    _gather_type,
    lambda xp, x, *indices, index: _read(x, *indices, index=index),
    numpy=_read,
    vjp=(
        lambda _xp, g, _out, x_type, *indices, index: apply(
            SCATTER_ADD, g, *indices, shape=x_type.shape, index=index
        ),
        None,
    ),
    batch=gather_rule,
    traits=Trait.LINEAR,
    ways=read_at,
)

# --- x[…] = v ----------------------------------------------------------------------------------


def _setitem_x(
    xp: Any, g: Any, _out: Any, _x: Any, _value: Any, *indices: Any, index: Index
) -> Any:
    """Elements that were overwritten have no gradient."""
    zero = xp.zeros((), dtype=g.dtype, device=g.device)
    return apply(SETITEM, g, zero, *indices, index=index)


def _setitem_value(
    xp: Any, g: Any, _out: Any, _x: Any, value_type: Any, *indices: Any, index: Index
) -> Any:
    part = _part(g, indices, index)
    if indices:  # they may repeat a position; the last write wins
        numbers = xp.reshape(xp.arange(part.size, device=g.device), part.shape)
        untouched = xp.zeros(g.shape, dtype=numbers.dtype, device=g.device)
        written = apply(SETITEM, untouched, numbers, *indices, index=index)
        part = xp.where(_part(written, indices, index) == numbers, part, 0)
    shape = value_type.shape
    ones = max(len(shape) - len(part.shape), 0)  # NumPy drops axes of size 1 in front
    return xp.reshape(sum_to(xp, part, shape[ones:]), shape)


SETITEM = Op(
    "setitem",
    _setitem_type,
    _written,
    in_place=_write,
    vjp=(_setitem_x, _setitem_value, None),
    batch=setitem_rule,
    traits=Trait.JOINT,
    ways=written_at,
)

# --- the sum of parts --------------------------------------------------------------------------


def _scatter_add_type(
    value: TensorType, *indices: TensorType, shape: Shape, index: Index
) -> TensorType:
    check_indices(indices)
    part = indexed_shape(shape, index, [i.shape for i in indices])
    if value.shape != part:
        raise ShapeError(f"a value of shape {value.shape} is no part of shape {part}")
    return value.like(shape=shape)


def _scattered(xp: Any, value: Any, *indices: Any, shape: Shape, index: Index) -> Any:
    """Zeros, with the value added at the index; repeated positions add up."""
    out = xp.zeros(shape, dtype=value.dtype)
    if indices:
        xp.add.at(out, filled_in(index, indices), value)
    else:
        out[index] = value
    return out


def _scattered_numpy(value: Any, *indices: Any, shape: Shape, index: Index) -> Any:
    """The same; `np.add.at` is five times as fast on flat arrays."""
    if not indices:
        return _scattered(np, value, shape=shape, index=index)
    out = np.zeros(size_of(shape), value.dtype)
    np.add.at(out, flat_places(np, shape, index, indices), value.reshape(-1))
    return out.reshape(shape)


def flat_places(xp: Any, shape: Shape, index: Index, indices: Sequence[Any]) -> Any:
    """The flat positions of the elements of x[index], for x of `shape`."""
    parts = index if isinstance(index, tuple) else (index,)
    axis = len(parts) - 1
    if parts == (slice(None),) * axis + (TENSOR,):
        rows, size, inner = size_of(shape[:axis]), shape[axis], size_of(shape[axis + 1 :])
        first = in_range(xp, indices[0].reshape(-1), size) * inner
        block = (first[:, None] + xp.arange(inner)).reshape(-1)
        return (xp.arange(rows)[:, None] * (size * inner) + block).reshape(-1)
    if parts == (TENSOR,) * len(shape):
        flat: Any = 0
        for at, size in zip(xp.broadcast_arrays(*indices), shape, strict=True):
            flat = flat * size + in_range(xp, at, size)
        return xp.reshape(flat, (-1,))
    within = all_in_range(xp, shape, index, indices)
    return xp.arange(size_of(shape)).reshape(shape)[filled_in(index, within)].reshape(-1)


def in_range(xp: Any, at: Any, size: int) -> Any:
    """Positions on an axis as nonnegative numbers; an error if one is out of range."""
    wide = at.astype(np.int64)
    if wide.size and not (-size <= int(wide.min()) and int(wide.max()) < size):
        wrong = int(wide[(wide < -size) | (wide >= size)][0])
        raise IndexError(f"index {wrong} is out of range for an axis of size {size}")
    return xp.where(wide < 0, wide + size, wide)


def all_in_range(xp: Any, shape: Shape, index: Index, indices: Sequence[Any]) -> list[Any]:
    """The tensors of an index for x of `shape`, as `in_range` gives them."""
    sizes = iter(shape)
    parts = [
        (part, None if part is None else next(sizes)) for part in full_index(index, len(shape))
    ]
    axes = [size for part, size in parts if part is TENSOR]
    return [in_range(xp, at, size) for at, size in zip(indices, axes, strict=True)]  # type: ignore[arg-type]


SCATTER_ADD: Op = Op(
    "scatter_add",
    _scatter_add_type,
    _scattered,
    numpy=_scattered_numpy,
    kinds="numeric",
    vjp=(lambda _xp, g, _out, _value, *indices, shape, index: _part(g, indices, index), None),
    batch=scatter_add_rule,
    traits=Trait.LINEAR | Trait.WIDEN,
    ways=added_at,
    local_attrs=section_attrs,
)
