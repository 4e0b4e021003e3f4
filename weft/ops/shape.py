"""Ops that rearrange elements: four primitives, and functions built from them."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

from weft.base.asked_sizes import is_less, number_of
from weft.base.dim_algebra import Dim, dim_max
from weft.base.errors import DTypeError, ShapeError
from weft.base.shapes import (
    Shape,
    as_shape,
    broadcast_shapes,
    broadcasts_to,
    new_shape,
    normalize_axes,
    normalize_axis,
    size_of,
    unfit,
)
from weft.core.bind import bind
from weft.core.operands import common
from weft.core.public import attach_properties, public
from weft.core.tensor import Tensor
from weft.ir.op import Op, Trait
from weft.ir.types import TensorType
from weft.ops.batch_shape import broadcast_rule, concat_rule, permute_rule
from weft.ops.batching import sized
from weft.ops.rules import check_same, sum_to
from weft.ops.ways import broadcasted, joined, permuted, reshaped

__all__ = [
    "broadcast_arrays",
    "broadcast_to",
    "concat",
    "expand",
    "expand_dims",
    "flatten",
    "flip",
    "matrix_transpose",
    "moveaxis",
    "permute_dims",
    "reshape",
    "roll",
    "squeeze",
    "stack",
    "swapaxes",
    "tile",
    "unstack",
]

# --- primitives --------------------------------------------------------------------------------


def _reshape_type(x: TensorType, *, shape: Shape) -> TensorType:
    if size_of(shape) != size_of(x.shape):
        raise unfit(
            f"{size_of(x.shape)} elements of shape {x.shape} do not fill the shape {shape}",
            size_of(x.shape),
            size_of(shape),
        )
    return x.like(shape=shape)


def _permute_type(x: TensorType, *, axes: tuple[int, ...]) -> TensorType:
    return x.like(shape=tuple(x.shape[axis] for axis in axes))


def _broadcast_type(x: TensorType, *, shape: Shape) -> TensorType:
    if not broadcasts_to(x.shape, shape):
        raise unfit(f"shape {x.shape} does not broadcast to {shape}", *x.shape)
    return x.like(shape=shape)


def _concat_type(*arrays: TensorType, axis: int) -> TensorType:
    check_same(*arrays)
    first = arrays[0]
    rest = first.shape[:axis] + first.shape[axis + 1 :]
    for other in arrays:
        if other.ndim != first.ndim or other.shape[:axis] + other.shape[axis + 1 :] != rest:
            raise ShapeError(
                f"shapes {first.shape} and {other.shape} differ in more than axis {axis}",
                hint="all sizes but the one along the axis must be equal",
            )
    total = builtins.sum(t.shape[axis] for t in arrays)
    return first.like(shape=(*first.shape[:axis], total, *first.shape[axis + 1 :]))


def inverse_order(axes: tuple[int, ...]) -> tuple[int, ...]:
    """The order of axes that undoes a permutation."""
    return tuple(axes.index(i) for i in range(len(axes)))


def _concat_vjp(number: int, xp: Any, g: Any, _out: Any, *arrays_type: Any, axis: int) -> Any:
    start = builtins.sum(t.shape[axis] for t in arrays_type[:number])
    stop = start + arrays_type[number].shape[axis]
    return g[(slice(None),) * axis + (slice(start, stop),)]


_reshape = Op(
    "reshape", _reshape_type, lambda xp, x, *, shape: xp.reshape(x, shape),
    vjp=(lambda xp, g, _out, x_type, *, shape: xp.reshape(g, x_type.shape),),
    batch=sized, traits=Trait.VIEW | Trait.LINEAR, ways=reshaped,
)  # fmt: skip
_permute_dims = Op(
    "permute_dims", _permute_type, lambda xp, x, *, axes: xp.permute_dims(x, axes),
    vjp=(lambda xp, g, _out, _x, *, axes: xp.permute_dims(g, inverse_order(axes)),),
    batch=permute_rule, traits=Trait.VIEW | Trait.LINEAR, short="Permute",
    scatters=lambda axes: list(axes) != sorted(axes), ways=permuted,
)  # fmt: skip
_broadcast_to = Op(
    "broadcast_to", _broadcast_type, lambda xp, x, *, shape: xp.broadcast_to(x, shape),
    vjp=(lambda xp, g, _out, x_type, *, shape: sum_to(xp, g, x_type.shape),),
    batch=broadcast_rule, traits=Trait.VIEW | Trait.LINEAR, short="Expand",
    scatters=lambda shape: True, ways=broadcasted,
)  # fmt: skip
_concat = Op(
    "concat", _concat_type, lambda xp, *arrays, axis: xp.concat(arrays, axis=axis),
    vjp=(_concat_vjp,), batch=concat_rule, traits=Trait.LINEAR | Trait.JOINT,
    may_fail=False, short="Cat", ways=joined,
)  # fmt: skip


# --- public ------------------------------------------------------------------------------------


@public("reshape", "view")
def reshape(x: Tensor, /, shape: int | Sequence[int], *, copy: bool | None = None) -> Tensor:
    """The same elements, in row-major order, in another shape; one size may be -1.

    >>> weft.reshape(weft.arange(6), (2, -1))
    tensor([[0, 1, 2],
            [3, 4, 5]])
    """
    wanted = as_shape(shape, "reshape")
    if -1 in wanted:
        known = -size_of(wanted) if wanted.count(-1) == 1 else 0
        if is_less(known, 1) or size_of(x.shape) % known != 0:
            raise unfit(
                f"no size for -1 makes {wanted} hold {size_of(x.shape)} elements",
                known,
                size_of(x.shape),
                op="reshape",
                operands=[x.type],
            )
        wanted = tuple(size_of(x.shape) // known if size == -1 else size for size in wanted)
    elif any(size < 0 for size in wanted if size.__class__ is int):
        raise ShapeError(f"the shape {wanted} has a negative size", op="reshape")
    out: Tensor = bind(_reshape, x, shape=wanted)
    return out


@public("permute_dims", "permute")
def permute_dims(x: Tensor, /, axes: Sequence[int]) -> Tensor:
    """The axes in another order: axis i of the result is axis axes[i] of x."""
    order = normalize_axes(axes if isinstance(axes, int) else tuple(axes), x.ndim, "permute_dims")
    if len(order) != x.ndim:
        raise ShapeError(
            f"{len(order)} axes named for a tensor of {x.ndim}",
            op="permute_dims",
            operands=[x.type],
        )
    out: Tensor = bind(_permute_dims, x, axes=order)
    return out


@public("broadcast_to")
def broadcast_to(x: Tensor, /, shape: int | Sequence[int]) -> Tensor:
    """x repeated along axes of size 1, and along new axes in front, up to `shape`."""
    out: Tensor = bind(_broadcast_to, x, shape=new_shape(shape, "broadcast_to"))
    return out


@public("expand")
def expand(x: Tensor, /, shape: int | Sequence[int]) -> Tensor:
    """`broadcast_to` a shape in which -1 keeps a size.

    >>> weft.arange(2).reshape(2, 1).expand(-1, 3)
    tensor([[0, 0, 0],
            [1, 1, 1]])
    """
    wanted = as_shape(shape, "expand")
    kept = (-1,) * (len(wanted) - x.ndim) + x.shape
    return broadcast_to(x, [k if w == -1 else w for w, k in zip(wanted, kept, strict=False)])


@public()
def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """All tensors broadcast to their common shape."""
    shape = broadcast_shapes(*(x.shape for x in arrays))
    return [broadcast_to(x, shape) for x in arrays]


@public()
def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """The tensors joined along `axis`; flattened first if it is None."""
    if not arrays:
        raise ShapeError("there is nothing to concatenate", op="concat")
    parts = common(arrays, "concat")
    if axis is None:
        parts = [reshape(part, (part.size,)) for part in parts]
        axis = 0
    out: Tensor = bind(_concat, *parts, axis=normalize_axis(axis, parts[0].ndim, "concat"))
    return out


@public()
def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Tensors of one shape, joined along a new axis."""
    if not arrays:
        raise ShapeError("there is nothing to stack", op="stack")
    parts = common(arrays, "stack")
    shapes = {part.shape: None for part in parts}
    if len(shapes) > 1:
        listed = ", ".join(map(str, shapes))
        raise ShapeError(f"the tensors differ in shape: {listed}", op="stack")
    return concat([expand_dims(part, axis) for part in parts], axis=axis)


@public("unstack")
def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The tensors that lie along `axis`, without it."""
    first = moveaxis(x, normalize_axis(axis, x.ndim, "unstack"), 0)
    count = number_of(first.shape[0])
    if count is None:
        raise ShapeError(
            f"axis {axis} has size {first.shape[0]}, so it is not known how many tensors there are",
            op="unstack",
            operands=[x.type],
            hint="give the axis a fixed size, or work on the whole tensor",
        )
    return tuple(first[i] for i in range(count))


@public("expand_dims", "unsqueeze")
def expand_dims(x: Tensor, /, axis: int) -> Tensor:
    """x with a new axis of size 1 at position `axis`."""
    at = normalize_axis(axis, x.ndim + 1, "expand_dims")
    return reshape(x, (*x.shape[:at], 1, *x.shape[at:]))


@public("squeeze")
def squeeze(x: Tensor, /, axis: int | Sequence[int] | None = None) -> Tensor:
    """x without the named axes, which must be of size 1; by default, without all such axes."""
    if axis is None:
        axis = tuple(i for i, size in enumerate(x.shape) if size == 1)
    axes = normalize_axes(axis, x.ndim, "squeeze")
    for at in axes:
        if x.shape[at] != 1:
            raise ShapeError(
                f"axis {at} has size {x.shape[at]}, not 1", op="squeeze", operands=[x.type]
            )
    return reshape(x, tuple(size for i, size in enumerate(x.shape) if i not in axes))


@public("flatten")
def flatten(x: Tensor, /, start_axis: int = 0, end_axis: int = -1) -> Tensor:
    """x with the axes from `start_axis` to `end_axis` as one."""
    if not x.ndim:
        return reshape(x, (1,))
    start = normalize_axis(start_axis, x.ndim, "flatten")
    end = normalize_axis(end_axis, x.ndim, "flatten")
    if start > end:
        raise ShapeError(f"start_axis {start} lies behind end_axis {end}", op="flatten")
    merged = size_of(x.shape[start : end + 1])
    return reshape(x, (*x.shape[:start], merged, *x.shape[end + 1 :]))


@public("moveaxis")
def moveaxis(x: Tensor, source: int | Sequence[int], destination: int | Sequence[int], /) -> Tensor:
    """x with the axes `source` moved to the positions `destination`."""
    origin = normalize_axes(source, x.ndim, "moveaxis")
    target = normalize_axes(destination, x.ndim, "moveaxis")
    if len(origin) != len(target):
        raise ShapeError(f"{len(origin)} axes cannot move to {len(target)} places", op="moveaxis")
    order = [i for i in range(x.ndim) if i not in origin]
    for to, come in sorted(zip(target, origin, strict=True)):
        order.insert(to, come)
    return permute_dims(x, order)


@public("swapaxes")
def swapaxes(x: Tensor, axis1: int, axis2: int, /) -> Tensor:
    """x with two axes exchanged."""
    a = normalize_axis(axis1, x.ndim, "swapaxes")
    b = normalize_axis(axis2, x.ndim, "swapaxes")
    order = list(range(x.ndim))
    order[a], order[b] = b, a
    return permute_dims(x, order)


@public()
def matrix_transpose(x: Tensor, /) -> Tensor:
    """Each matrix in the last two axes, transposed."""
    if x.ndim < 2:
        raise ShapeError(
            f"a matrix has two axes; this tensor has {x.ndim}",
            op="matrix_transpose",
            operands=[x.type],
        )
    return swapaxes(x, -2, -1)


@public("flip")
def flip(x: Tensor, /, *, axis: int | Sequence[int] | None = None) -> Tensor:
    """x with the order of elements reversed along `axis` (all axes by default)."""
    axes = normalize_axes(axis, x.ndim, "flip")
    return x[tuple(slice(None, None, -1) if i in axes else slice(None) for i in range(x.ndim))]


@public("roll")
def roll(
    x: Tensor, /, shift: int | Sequence[int], *, axis: int | Sequence[int] | None = None
) -> Tensor:
    """x with elements shifted along `axis`; elements shifted out come back in at the front."""
    if axis is None:
        if not isinstance(shift, (int, Dim)):
            raise DTypeError("without an axis, shift must be one int", op="roll")
        return reshape(roll(reshape(x, (size_of(x.shape),)), shift, axis=0), x.shape)
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = [normalize_axis(a, x.ndim, "roll") for a in given]  # an axis may be named twice
    shifts = tuple(shift) if isinstance(shift, (tuple, list)) else (shift,) * len(axes)
    if len(shifts) != len(axes):
        raise ShapeError(f"{len(shifts)} shifts for {len(axes)} axes", op="roll")
    x = x.clone()
    for along, by in zip(axes, as_shape(shifts, "roll"), strict=True):
        cut = -by % dim_max(x.shape[along], 1)
        if cut.__class__ is Dim or cut:
            before: list[Any] = [slice(None)] * x.ndim
            after = list(before)
            before[along], after[along] = slice(None, cut), slice(cut, None)
            x = concat([x[tuple(after)], x[tuple(before)]], axis=along)
    return x


@public("tile")
def tile(x: Tensor, repetitions: Sequence[int], /) -> Tensor:
    """x repeated: repetitions[i] times along axis i, counted from the last."""
    counts = new_shape(repetitions, "tile")
    ndim = builtins.max(x.ndim, len(counts))
    shape = (1,) * (ndim - x.ndim) + x.shape
    counts = (1,) * (ndim - len(counts)) + counts
    pairs = [size for pair in zip(counts, shape, strict=True) for size in pair]
    ones_between = [size for n in shape for size in (1, n)]
    spread = broadcast_to(reshape(x, ones_between), pairs)
    return reshape(spread, tuple(math.prod(p) for p in zip(counts, shape, strict=True)))


# --- methods that are called differently -------------------------------------------------------


def _matrix_t(self: Tensor) -> Tensor:
    """The transpose of a matrix."""
    if self.ndim != 2:
        raise ShapeError(
            f"x.T is for matrices, not for {self.ndim} axes",
            op="T",
            operands=[self.type],
            hint="use x.mT for a stack of matrices, or permute_dims",
        )
    return swapaxes(self, 0, 1)


attach_properties({"T": _matrix_t, "mT": matrix_transpose})
