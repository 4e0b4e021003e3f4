"""Shapes and parts of tensors as PyTorch means them."""

from __future__ import annotations

from typing import Any

from weft.base.shapes import broadcast_shapes as core_broadcast_shapes
from weft.ops import creation, elementwise, index, linalg_matrix, select, shape
from weft.ops.cast import astype
from weft.torch.reductions import nonzero
from weft.torch.tensor import Size, method

__all__ = [
    "broadcast_shapes",
    "broadcast_tensors",
    "diagonal",
    "div",
    "divide",
    "flatten",
    "flip",
    "meshgrid",
    "repeat_interleave",
    "roll",
    "squeeze",
    "take",
    "tile",
    "transpose",
    "tril",
    "triu",
    "true_divide",
    "where",
]


def _sizes(sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Sizes that are given one by one, or as one sequence."""
    one = len(sizes) == 1 and isinstance(sizes[0], (tuple, list))
    return tuple(sizes[0]) if one else sizes


@method()
def repeat(input: Any, *sizes: Any) -> Any:
    """The whole tensor, repeated along each axis."""
    return shape.tile(input, _sizes(sizes)).clone()  # never a view


@method("tile")
def tile(input: Any, *dims: Any) -> Any:
    """The whole tensor, repeated along each of the last axes."""
    return shape.tile(input, _sizes(dims)).clone()


@method()
def repeat_interleave(input: Any, repeats: Any, dim: int | None = None) -> Any:
    """Each element, repeated."""
    return index.repeat(input, repeats, axis=dim)


@method()
def squeeze(input: Any, dim: Any = None) -> Any:
    """Without axes of size 1; with `dim`, without those of them that are of size 1."""
    if not input.ndim:
        return shape.reshape(input, ())
    axes = range(input.ndim) if dim is None else dim if isinstance(dim, (tuple, list)) else (dim,)
    return shape.squeeze(input, axis=tuple(i for i in axes if input.shape[i] == 1))


@method()
def flatten(input: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    """Several axes as one."""
    return shape.flatten(input, start_dim, end_dim)


@method()
def transpose(input: Any, dim0: int, dim1: int) -> Any:
    """Two axes exchanged."""
    if not input.ndim:
        return shape.reshape(input, ())
    return shape.swapaxes(input, dim0, dim1)


@method()
def flip(input: Any, *axes: Any, dims: Any = None) -> Any:
    """The other way round along these axes."""
    return shape.flip(input, axis=_sizes(axes if dims is None else (dims,)))


@method()
def roll(input: Any, shifts: Any, dims: Any = None) -> Any:
    """Shifted, with what leaves at one end entering at the other."""
    return shape.roll(input, shifts, axis=dims)


@method()
def diagonal(input: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """The diagonal of the matrices that two axes hold, as the last axis."""
    return linalg_matrix.diagonal(shape.moveaxis(input, (dim1, dim2), (-2, -1)), offset=offset)


@method()
def tril(input: Any, diagonal: int = 0) -> Any:
    """The lower triangle of matrices."""
    return creation.tril(input, k=diagonal)


@method()
def triu(input: Any, diagonal: int = 0) -> Any:
    """The upper triangle of matrices."""
    return creation.triu(input, k=diagonal)


@method()
def take(input: Any, index: Any) -> Any:
    """The elements at these places of the flattened tensor."""
    return shape.reshape(input, (-1,))[index]


def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Any, ...]:
    """Coordinates of a grid; axis i of each goes along tensor i, unless `indexing="xy"`."""
    return tuple(creation.meshgrid(*_sizes(tensors), indexing=indexing))  # type: ignore[arg-type]


def broadcast_shapes(*shapes: Any) -> Size:
    """The shape that all of them broadcast to."""
    given = [(size,) if isinstance(size, int) else tuple(size) for size in shapes]
    return Size(core_broadcast_shapes(*given))


def broadcast_tensors(*tensors: Any) -> tuple[Any, ...]:
    """All broadcast to one shape."""
    return tuple(shape.broadcast_arrays(*tensors))


def where(condition: Any, input: Any = None, other: Any = None) -> Any:
    """One or the other, element by element; of a condition alone, where it is true."""
    if input is None:
        return nonzero(condition, as_tuple=True)
    return select.where(condition, input, other)


@method("where")
def _where(self: Any, condition: Any, other: Any) -> Any:
    return select.where(condition, self, other)


@method("view")
def _view(self: Any, *sizes: Any) -> Any:
    if len(sizes) == 1 and not isinstance(sizes[0], (int, tuple, list)):
        raise NotImplementedError("view of the bytes as another dtype; cast it: x.to(dtype)")
    return shape.reshape(self, _sizes(sizes))


@method("div", "divide", "true_divide")
def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Any:
    """The quotient; with "floor" or "trunc", rounded so."""
    if rounding_mode == "floor":
        return elementwise.floor_divide(input, other)
    out = elementwise.divide(input, other)
    if rounding_mode is None:
        return out
    whole = elementwise.trunc(out)
    kinds = {getattr(x, "dtype", type(x)) for x in (input, other)}
    integers = all(kind is int or getattr(kind, "kind", "") in ("int", "uint") for kind in kinds)
    return astype(whole, input.dtype) if integers else whole


divide = true_divide = div
