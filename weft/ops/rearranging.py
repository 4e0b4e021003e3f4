"""Views and rearrangements that NumPy and PyTorch have names for, made of slices and reshapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.dtypes import int64
from weft.base.errors import ShapeError
from weft.base.shapes import as_shape, broadcasts_to, normalize_axes, normalize_axis
from weft.core.public import method, public
from weft.core.tensor import Tensor
from weft.ops.creation import asarray, eye, zeros
from weft.ops.index import repeat, take
from weft.ops.linalg_matrix import diagonal
from weft.ops.reduce import sum
from weft.ops.select import where
from weft.ops.shape import (
    broadcast_to,
    concat,
    expand_dims,
    flatten,
    flip,
    moveaxis,
    permute_dims,
    reshape,
    swapaxes,
)

__all__ = [
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "diag",
    "diag_embed",
    "diagflat",
    "fliplr",
    "flipud",
    "narrow",
    "repeat_interleave",
    "rot90",
    "select",
    "t",
    "transpose",
    "unflatten",
]


@public("narrow")
def narrow(x: Tensor, /, axis: int, start: int, length: int) -> Tensor:
    """`length` elements along `axis`, from `start` on.

    >>> weft.arange(6).narrow(0, 2, 3)
    tensor([2, 3, 4])
    """
    at = normalize_axis(axis, x.ndim, "narrow")
    size = x.shape[at]
    first = start + size if start < 0 else start
    if first < 0 or length < 0 or first + length > size:
        raise ShapeError(
            f"axis {at} of size {size} has no {length} elements from {start} on",
            op="narrow",
            operands=[x.type],
        )
    part: Tensor = x[(slice(None),) * at + (slice(first, first + length),)]
    return part


@public("select")
def select(x: Tensor, /, axis: int, index: int) -> Tensor:
    """x at one index along `axis`, without that axis.

    >>> weft.arange(6).reshape(2, 3).select(1, 0)
    tensor([0, 3])
    """
    at = normalize_axis(axis, x.ndim, "select")
    part: Tensor = x[(slice(None),) * at + (index,)]
    return part


@public("unflatten")
def unflatten(x: Tensor, /, axis: int, shape: Sequence[int]) -> Tensor:
    """x with one axis as several of the given sizes, of which one may be -1.

    >>> weft.zeros(2, 6).unflatten(1, (3, -1)).shape
    (2, 3, 2)
    """
    at = normalize_axis(axis, x.ndim, "unflatten")
    sizes = as_shape(shape, "unflatten")
    return reshape(x, (*x.shape[:at], *_filled(sizes, x.shape[at]), *x.shape[at + 1 :]))


def _filled(sizes: tuple[int, ...], total: int) -> tuple[int, ...]:
    """The sizes with -1 replaced by what fills the axis."""
    known = 1
    for size in sizes:
        known *= 1 if size == -1 else size
    if sizes.count(-1) > 1 or known < 1 or (total % known if -1 in sizes else total - known):
        raise ShapeError(f"the sizes {sizes} do not fill an axis of size {total}", op="unflatten")
    return tuple(total // known if size == -1 else size for size in sizes)


@public("repeat_interleave")
def repeat_interleave(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
    """`repeat`, by PyTorch's name: each element several times.

    >>> weft.repeat_interleave(weft.asarray([1, 2]), 2)
    tensor([1, 1, 2, 2])
    """
    return repeat(x, repeats, axis=axis)


# --- order -------------------------------------------------------------------------------------


@public("transpose")
def transpose(x: Tensor, /, *axes: int, dim0: int | None = None, dim1: int | None = None) -> Tensor:
    """transpose(x, a, b) exchanges two axes; transpose(x) reverses all of them.

    >>> weft.zeros(2, 3, 4).transpose(0, 2).shape
    (4, 3, 2)
    """
    if dim0 is not None and dim1 is not None and not axes:
        axes = (dim0, dim1)
    if not axes:
        return permute_dims(x, tuple(reversed(range(x.ndim))))
    if len(axes) != 2:
        raise ShapeError(
            "two axes are exchanged", op="transpose", hint="use permute_dims for more than two"
        )
    return swapaxes(x, *axes)


@public("t")
def t(x: Tensor, /) -> Tensor:
    """The transpose of a matrix; a vector or a number as it is.

    >>> weft.asarray([[1, 2]]).t()
    tensor([[1],
            [2]])
    """
    if x.ndim > 2:
        raise ShapeError(f"t() is for at most 2 axes, not {x.ndim}", op="t", hint="use x.mT")
    return transpose(x)


@public("rot90")
def rot90(x: Tensor, /, k: int = 1, axes: Sequence[int] = (0, 1)) -> Tensor:
    """x turned by 90 degrees k times, in the plane of two axes: from the first to the second.

    >>> weft.rot90(weft.asarray([[1, 2], [3, 4]]))
    tensor([[2, 4],
            [1, 3]])
    """
    plane = normalize_axes(tuple(axes), x.ndim, "rot90")
    if len(plane) != 2:
        raise ShapeError(f"two axes span a plane, not {len(plane)}", op="rot90")
    first, second = plane
    turns = k % 4
    if turns == 0:
        return x.clone()
    if turns == 2:
        return flip(x, axis=plane)
    if turns == 1:
        return swapaxes(flip(x, axis=second), first, second)
    return flip(swapaxes(x, first, second), axis=second)


@public("fliplr")
def fliplr(x: Tensor, /) -> Tensor:
    """x with the order of columns reversed.

    >>> weft.fliplr(weft.asarray([[1, 2], [3, 4]]))
    tensor([[2, 1],
            [4, 3]])
    """
    return flip(x, axis=1)


@public("flipud")
def flipud(x: Tensor, /) -> Tensor:
    """x with the order of rows reversed.

    >>> weft.flipud(weft.asarray([[1, 2], [3, 4]]))
    tensor([[3, 4],
            [1, 2]])
    """
    return flip(x, axis=0)


# --- axes in front -----------------------------------------------------------------------------


def _at_least(x: Tensor, ndim: int) -> Tensor:
    if x.ndim >= ndim:
        return x.clone()
    if ndim == 3:  # a vector lies along axis 1, a matrix along axes 0 and 1
        return expand_dims(_at_least(x, 2), 2)
    return reshape(x, (*(1,) * (ndim - x.ndim), *x.shape))


@public()
def atleast_1d(*arrays: Tensor) -> Any:
    """A tensor with at least one axis; of several tensors, a tuple.

    >>> weft.atleast_1d(weft.asarray(3))
    tensor([3])
    """
    found = tuple(_at_least(x, 1) for x in arrays)
    return found[0] if len(found) == 1 else found


@public()
def atleast_2d(*arrays: Tensor) -> Any:
    """A tensor with at least two axes; of several tensors, a tuple.

    >>> weft.atleast_2d(weft.asarray([1, 2]))
    tensor([[1, 2]])
    """
    found = tuple(_at_least(x, 2) for x in arrays)
    return found[0] if len(found) == 1 else found


@public()
def atleast_3d(*arrays: Tensor) -> Any:
    """A tensor with at least three axes; of several tensors, a tuple.

    >>> weft.atleast_3d(weft.asarray([1, 2])).shape
    (1, 2, 1)
    """
    found = tuple(_at_least(x, 3) for x in arrays)
    return found[0] if len(found) == 1 else found


# --- diagonals ---------------------------------------------------------------------------------


@public("diag_embed")
def diag_embed(x: Tensor, /, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices with the last axis of x along a diagonal, and zeros elsewhere.

    >>> weft.diag_embed(weft.asarray([1, 2]), offset=1)
    tensor([[0, 1, 0],
            [0, 0, 2],
            [0, 0, 0]])
    """
    if not x.ndim:
        raise ShapeError("a 0-d tensor has no last axis", op="diag_embed", operands=[x.type])
    rows, columns = normalize_axes((dim1, dim2), x.ndim + 1, "diag_embed")
    size = x.shape[-1] + abs(offset)
    padding = zeros((*x.shape[:-1], abs(offset)), dtype=x.dtype, device=x.device)
    padded = concat([x, padding], axis=-1) if offset else x
    spread = expand_dims(padded, -1 if offset >= 0 else -2)
    on_it = eye(size, k=offset, dtype="bool", device=x.device)
    full = broadcast_to(spread, (*x.shape[:-1], size, size))
    made = where(on_it, full, zeros((), dtype=x.dtype, device=x.device))
    return moveaxis(made, (-2, -1), (rows, columns))


@public("diag")
def diag(x: Tensor, /, *, k: int = 0) -> Tensor:
    """A matrix with the vector x on its k-th diagonal; of a matrix, its k-th diagonal.

    >>> weft.diag(weft.asarray([1, 2]))
    tensor([[1, 0],
            [0, 2]])
    >>> weft.diag(weft.asarray([[1, 2], [3, 4]]), 1)
    tensor([2])
    """
    if x.ndim == 1:
        return diag_embed(x, k)
    if x.ndim == 2:
        return diagonal(x, offset=k)
    raise ShapeError(
        f"a vector or a matrix is needed, not {x.ndim} axes",
        op="diag",
        operands=[x.type],
        hint="use diag_embed or x.diagonal() for stacks of them",
    )


@public("diagflat")
def diagflat(x: Tensor, /, *, k: int = 0) -> Tensor:
    """A matrix with all elements of x on its k-th diagonal.

    >>> weft.diagflat(weft.asarray([[1], [2]]))
    tensor([[1, 0],
            [0, 2]])
    """
    return diag_embed(flatten(x), k)


# --- as another tensor -------------------------------------------------------------------------


@method("view_as", "reshape_as")
def reshape_as(x: Tensor, other: Tensor, /) -> Tensor:
    """x in the shape of another tensor."""
    return reshape(x, other.shape)


@method()
def expand_as(x: Tensor, other: Tensor, /) -> Tensor:
    """x broadcast to the shape of another tensor."""
    return broadcast_to(x, other.shape)


@method("unfold")
def unfold(x: Tensor, axis: int, size: int, step: int, /) -> Tensor:
    """All windows of a size along an axis, every `step`; elements of a window are the last axis.

    >>> weft.arange(5).unfold(0, 3, 2)
    tensor([[0, 1, 2],
            [2, 3, 4]])
    """
    at = normalize_axis(axis, max(x.ndim, 1), "unfold")
    whole = x if x.ndim else reshape(x, (1,))
    length = whole.shape[at]
    if not 0 <= size <= length or step < 1:
        raise ShapeError(
            f"windows of {size} every {step} do not fit an axis of {length}", op="unfold"
        )
    starts = range(0, length - size + 1, step)
    places = asarray([[start + i for i in range(size)] for start in starts], dtype=int64)
    parts = take(whole, reshape(places, (-1,)), axis=at)
    shape = (*whole.shape[:at], len(starts), size, *whole.shape[at + 1 :])
    windows = moveaxis(reshape(parts, shape), at + 1, -1)
    return windows if x.ndim else reshape(windows, (size,))


@method("sum_to_size")
def sum_to_size(x: Tensor, /, *shape: Any) -> Tensor:
    """x summed over axes along which `shape` would broadcast to the shape of x.

    >>> weft.ones(2, 3).sum_to_size(1, 3)
    tensor([[2., 2., 2.]])
    """
    one = len(shape) == 1 and isinstance(shape[0], (tuple, list))
    wanted = tuple(shape[0]) if one else shape
    if not broadcasts_to(wanted, x.shape):
        raise ShapeError(f"{wanted} does not broadcast to {x.shape}", op="sum_to_size")
    extra = x.ndim - len(wanted)
    small = [i + extra for i, size in enumerate(wanted) if size == 1]
    return reshape(sum(x, axis=(*range(extra), *small)), wanted)
