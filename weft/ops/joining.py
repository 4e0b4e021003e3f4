"""Parts of a tensor, and tensors joined: what others have beside `concat` and `stack`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from weft.base.asked_sizes import active, is_less, number_of
from weft.base.dim_algebra import dim_max, dim_min
from weft.base.dims import ceil_div, has_dims
from weft.base.errors import ShapeError
from weft.base.shapes import normalize_axis, size_of
from weft.core.operands import common
from weft.core.public import public
from weft.core.tensor import Tensor
from weft.ops.creation import asarray, meshgrid, zeros
from weft.ops.index import take
from weft.ops.rearranging import atleast_1d, atleast_2d, atleast_3d, narrow
from weft.ops.shape import concat, flatten, reshape, stack

__all__ = [
    "block_diag",
    "cartesian_prod",
    "chunk",
    "column_stack",
    "combinations",
    "dsplit",
    "dstack",
    "hsplit",
    "hstack",
    "split",
    "tensor_split",
    "vsplit",
    "vstack",
]


def _lengths(x: Tensor, at: int, size: int, op: str) -> list[int]:
    """The lengths of parts of `size` along an axis, of which the last may be shorter.

    If the axis is symbolic, how many parts there are is asked.
    """
    length = x.shape[at]
    if has_dims((length, size)) and active() is None:
        raise ShapeError(
            f"axis {at} has size {length}, so it is not known how many parts there are",
            op=op,
            operands=[x.type],
            hint="give the axis a fixed size, or cut with slices: x[:n]",
        )
    found, start = [], 0
    while start + size < length:
        found.append(size)
        start += size
    return [*found, length - start]


def _parts(x: Tensor, at: int, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    starts = itertools.accumulate(sizes, initial=0)
    return tuple(narrow(x, at, start, size) for start, size in zip(starts, sizes, strict=False))


@public("split")
def split(
    x: Tensor, /, split_size_or_sections: int | Sequence[int], *, axis: int = 0
) -> tuple[Tensor, ...]:
    """Parts of a size along `axis`, or of several sizes. The last one may be smaller.

    >>> weft.arange(5).split(2)
    (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    >>> weft.arange(5).split([1, 4])
    (tensor([0]), tensor([1, 2, 3, 4]))
    """
    size: Any = split_size_or_sections
    at = normalize_axis(axis, x.ndim, "split")
    if isinstance(size, (tuple, list)):
        length = x.shape[at]
        if sum(size) != length or any(is_less(part, 0) for part in size):
            raise ShapeError(
                f"the sizes {tuple(size)} do not add up to {length}", op="split", operands=[x.type]
            )
        return _parts(x, at, size)
    if size < 1:
        raise ShapeError(f"the size of a part must be positive, not {size}", op="split")
    return _parts(x, at, _lengths(x, at, size, "split"))


@public("chunk")
def chunk(x: Tensor, /, chunks: int, *, axis: int = 0) -> tuple[Tensor, ...]:
    """At most so many parts along `axis`, all as long as the first but for the last.

    >>> [part.shape for part in weft.zeros(7).chunk(3)]
    [(3,), (3,), (1,)]
    """
    at = normalize_axis(axis, x.ndim, "chunk")
    if chunks < 1:
        raise ShapeError(f"the number of parts must be positive, not {chunks}", op="chunk")
    size = dim_max(ceil_div(x.shape[at], chunks), 1)
    return _parts(x, at, _lengths(x, at, size, "chunk"))


@public("tensor_split")
def tensor_split(
    x: Tensor, /, indices_or_sections: int | Sequence[int], *, axis: int = 0
) -> tuple[Tensor, ...]:
    """So many parts along `axis`, of sizes that differ by at most 1; or cut at the given indices.

    >>> [part.shape for part in weft.zeros(7).tensor_split(3)]
    [(3,), (2,), (2,)]
    >>> weft.arange(5).tensor_split([1, 3])
    (tensor([0]), tensor([1, 2]), tensor([3, 4]))
    """
    at = normalize_axis(axis, x.ndim, "tensor_split")
    length = x.shape[at]
    if isinstance(indices_or_sections, (tuple, list)):
        cuts = [0, *(_cut(i, length) for i in indices_or_sections), length]
        return tuple(_between(x, at, start, end) for start, end in itertools.pairwise(cuts))
    sections: Any = indices_or_sections
    if sections < 1:
        raise ShapeError(f"the number of parts must be positive, not {sections}", op="tensor_split")
    return _parts(x, at, [ceil_div(length - i, sections) for i in range(sections)])


def _cut(index: int, length: int) -> int:
    """Where a slice up to `index` ends."""
    return dim_max(length + index, 0) if index < 0 else dim_min(index, length)


def _between(x: Tensor, at: int, start: int, end: int) -> Tensor:
    return x[(*(slice(None),) * at, slice(start, end))]


@public()
def hstack(arrays: Sequence[Tensor], /) -> Tensor:
    """Tensors side by side: joined along axis 1, vectors along axis 0.

    >>> weft.hstack([weft.asarray([1, 2]), weft.asarray([3])])
    tensor([1, 2, 3])
    """
    parts = [atleast_1d(x) for x in common(arrays, "hstack")]
    return concat(parts, axis=min(parts[0].ndim - 1, 1) if parts else 0)


@public()
def vstack(arrays: Sequence[Tensor], /) -> Tensor:
    """Tensors one below the other: joined along axis 0, vectors as rows.

    >>> weft.vstack([weft.asarray([1, 2]), weft.asarray([3, 4])])
    tensor([[1, 2],
            [3, 4]])
    """
    return concat([atleast_2d(x) for x in common(arrays, "vstack")], axis=0)


@public()
def dstack(arrays: Sequence[Tensor], /) -> Tensor:
    """Tensors one behind the other: joined along axis 2, vectors and matrices with a new one.

    >>> weft.dstack([weft.asarray([1, 2]), weft.asarray([3, 4])])
    tensor([[[1, 3],
             [2, 4]]])
    """
    return concat([atleast_3d(x) for x in common(arrays, "dstack")], axis=2)


@public()
def column_stack(arrays: Sequence[Tensor], /) -> Tensor:
    """Vectors as the columns of a matrix; matrices side by side.

    >>> weft.column_stack([weft.asarray([1, 2]), weft.asarray([3, 4])])
    tensor([[1, 3],
            [2, 4]])
    """
    parts = common(arrays, "column_stack")
    return concat([reshape(x, (size_of(x.shape), 1)) if x.ndim < 2 else x for x in parts], axis=1)


@public()
def block_diag(*arrays: Tensor) -> Tensor:
    """A matrix with the given matrices along its diagonal, and zeros elsewhere.

    >>> weft.block_diag(weft.asarray([[1, 2]]), weft.asarray([[3]]))
    tensor([[1, 2, 0],
            [0, 0, 3]])
    """
    parts = [atleast_2d(x) for x in common(arrays, "block_diag")]
    for x in parts:
        if x.ndim > 2:
            raise ShapeError("blocks are matrices", op="block_diag", operands=[x.type])
    if not parts:
        return zeros((1, 0))
    total = sum(x.shape[1] for x in parts)
    rows, before = [], 0
    for x in parts:
        height, width = x.shape
        like: dict[str, Any] = {"dtype": x.dtype, "device": x.device}
        left, right = (
            zeros((height, before), **like),
            zeros((height, total - before - width), **like),
        )
        rows.append(concat([left, x, right], axis=1))
        before += width
    return concat(rows, axis=0)


@public()
def cartesian_prod(*arrays: Tensor) -> Tensor:
    """All ways to take one element of each vector, as rows.

    >>> weft.cartesian_prod(weft.asarray([1, 2]), weft.asarray([3, 4]))
    tensor([[1, 3],
            [1, 4],
            [2, 3],
            [2, 4]])
    """
    parts = common(arrays, "cartesian_prod")
    if len(parts) == 1:
        return parts[0].clone()
    return stack([flatten(grid) for grid in meshgrid(*parts, indexing="ij")], axis=1)


@public()
def combinations(x: Tensor, /, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All ways to choose r elements of a vector, as rows, in the order of `itertools`.

    >>> weft.combinations(weft.asarray([1, 2, 3]))
    tensor([[1, 2],
            [1, 3],
            [2, 3]])
    """
    if x.ndim != 1:
        raise ShapeError("elements of a vector are chosen", op="combinations", operands=[x.type])
    length = number_of(x.shape[0])
    if length is None:
        raise ShapeError(
            f"of {x.shape[0]} elements it is not known how many choices there are",
            op="combinations",
            operands=[x.type],
        )
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    places = list(choose(range(length), r))
    if not places:
        return zeros((0, r), dtype=x.dtype, device=x.device)
    chosen = asarray([i for row in places for i in row], device=x.device)
    return reshape(take(x, chosen, axis=0), (len(places), r))


def _split_along(x: Tensor, indices_or_sections: int | Sequence[int], axis: int, op: str) -> Any:
    if x.ndim <= axis:
        raise ShapeError(f"it takes {axis + 1} axes", op=op, operands=[x.type])
    if isinstance(indices_or_sections, int) and x.shape[axis] % indices_or_sections:
        raise ShapeError(
            f"axis {axis} of size {x.shape[axis]} has no {indices_or_sections} equal parts",
            op=op,
            hint="tensor_split makes parts whose sizes differ by at most 1",
        )
    return tensor_split(x, indices_or_sections, axis=axis)


@public("hsplit")
def hsplit(x: Tensor, /, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Equal parts along axis 1 (axis 0 of a vector), or cut at the given indices.

    >>> weft.hsplit(weft.arange(4), 2)
    (tensor([0, 1]), tensor([2, 3]))
    """
    parts: tuple[Tensor, ...] = _split_along(x, indices_or_sections, int(x.ndim > 1), "hsplit")
    return parts


@public("vsplit")
def vsplit(x: Tensor, /, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Equal parts along axis 0, or cut at the given indices.

    >>> [part.shape for part in weft.vsplit(weft.zeros(4, 2), [1])]
    [(1, 2), (3, 2)]
    """
    if x.ndim < 2:
        raise ShapeError("it takes at least 2 axes", op="vsplit", operands=[x.type])
    parts: tuple[Tensor, ...] = _split_along(x, indices_or_sections, 0, "vsplit")
    return parts


@public("dsplit")
def dsplit(x: Tensor, /, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Equal parts along axis 2, or cut at the given indices.

    >>> [part.shape for part in weft.dsplit(weft.zeros(1, 2, 4), 2)]
    [(1, 2, 2), (1, 2, 2)]
    """
    parts: tuple[Tensor, ...] = _split_along(x, indices_or_sections, 2, "dsplit")
    return parts
