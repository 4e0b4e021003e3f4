"""What a tensor is, and new tensors made after the example of another: PyTorch's small methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.device import as_device
from weft.base.dtypes import as_dtype, default_float
from weft.base.errors import DTypeError
from weft.base.shapes import as_shape, size_of
from weft.base.shapes import broadcast_shapes as shapes_broadcast
from weft.core.operands import as_number, cast
from weft.core.public import method, public
from weft.core.tensor import Tensor
from weft.ops.cast import astype
from weft.ops.creation import (
    arange,
    asarray,
    empty,
    full,
    linspace,
    ones,
    place_like,
    tensor,
    zeros,
)
from weft.ops.elementwise import floor_divide, greater_equal, less_equal, pow, remainder
from weft.ops.index import nonzero
from weft.ops.shape import expand_dims

__all__ = [
    "broadcast_shapes",
    "from_numpy",
    "is_complex",
    "is_floating_point",
    "is_tensor",
    "logspace",
    "numel",
    "scalar_tensor",
    "tril_indices",
    "triu_indices",
    "unravel_index",
]


# --- what it is --------------------------------------------------------------------------------


@public("numel", "nelement")
def numel(x: Tensor, /) -> int:
    """The number of elements.

    >>> weft.numel(weft.zeros(2, 3))
    6
    """
    return size_of(x.shape)


@public()
def broadcast_shapes(*shapes: int | Sequence[int]) -> tuple[int, ...]:
    """The shape that all shapes broadcast to.

    >>> weft.broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    return shapes_broadcast(*(as_shape(shape, "broadcast_shapes") for shape in shapes))


@method("dim", "ndimension")
def dim(x: Tensor, /) -> int:
    """The number of axes."""
    return x.ndim


@method()
def element_size(x: Tensor, /) -> int:
    """Bytes per element."""
    return x.itemsize


@public()
def is_tensor(x: Any, /) -> bool:
    """Whether this is a tensor.

    >>> weft.is_tensor([1, 2])
    False
    """
    return isinstance(x, Tensor)


@public("is_floating_point")
def is_floating_point(x: Tensor, /) -> bool:
    """Whether the elements are real floating-point numbers.

    >>> weft.zeros(2).is_floating_point()
    True
    """
    return x.dtype.kind == "float"


@public("is_complex")
def is_complex(x: Tensor, /) -> bool:
    """Whether the elements are complex.

    >>> weft.zeros(2).is_complex()
    False
    """
    return x.dtype.kind == "complex"


# --- where and how it lies ---------------------------------------------------------------------


@method()
def contiguous(x: Tensor, /) -> Tensor:
    """The same value: how elements lie in memory shows nowhere."""
    return x.clone()


@method()
def is_contiguous(x: Tensor, /) -> bool:
    """True: how the elements lie in memory shows nowhere."""
    return True


@method()
def cpu(x: Tensor, /) -> Tensor:
    """The tensor on the CPU."""
    return x.to_device("cpu")


@method()
def cuda(x: Tensor, device: Any = None, /) -> Tensor:
    """The tensor on a GPU: `x.to_device("cuda")`, or the GPU with a number."""
    return x.to_device(f"cuda:{device}" if isinstance(device, int) else device or "cuda")


@method()
def type_as(x: Tensor, other: Tensor, /) -> Tensor:
    """x in the dtype of another tensor, and on its device."""
    return astype(x, other.dtype, copy=False).to_device(other.device)


# --- new tensors -------------------------------------------------------------------------------


@method()
def new_zeros(
    x: Tensor, /, shape: int | Sequence[int], *, dtype: Any = None, device: Any = None
) -> Tensor:
    """Zeros of another shape, with the dtype and the device of x."""
    return zeros(shape, **place_like(x, dtype, device))


@method()
def new_ones(
    x: Tensor, /, shape: int | Sequence[int], *, dtype: Any = None, device: Any = None
) -> Tensor:
    """Ones of another shape, with the dtype and the device of x."""
    return ones(shape, **place_like(x, dtype, device))


@method()
def new_empty(
    x: Tensor, /, shape: int | Sequence[int], *, dtype: Any = None, device: Any = None
) -> Tensor:
    """`empty` of another shape, with the dtype and the device of x."""
    return empty(shape, **place_like(x, dtype, device))


@method()
def new_full(
    x: Tensor,
    /,
    shape: int | Sequence[int],
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
) -> Tensor:
    """A tensor of one value, with the dtype and the device of x."""
    return full(shape, fill_value, **place_like(x, dtype, device))


@method()
def new_tensor(x: Tensor, data: Any, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A new leaf with these values, and the dtype and the device of x."""
    return tensor(data, **place_like(x, dtype, device))


@public()
def from_numpy(array: Any, /) -> Tensor:
    """A tensor of a NumPy array. The values are copied: later writes to the array do not show.

    >>> import numpy as np
    >>> weft.from_numpy(np.ones(2))
    tensor([1., 1.], dtype=float64)
    """
    if not isinstance(array, np.ndarray):
        raise DTypeError(
            f"a NumPy array is needed, not {type(array).__name__}",
            op="from_numpy",
            hint="weft.asarray takes numbers, lists and arrays",
        )
    return asarray(array)


@public()
def scalar_tensor(value: Any, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A 0-d tensor of a number, by default of the default floating dtype.

    >>> weft.scalar_tensor(3)
    tensor(3.)
    """
    return full((), value, dtype=default_float() if dtype is None else dtype, device=device)


@public()
def logspace(
    start: float,
    stop: float,
    /,
    num: int,
    base: float = 10.0,
    *,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
) -> Tensor:
    """base ** y for `num` evenly spaced y from start to stop.

    >>> weft.logspace(0, 2, 3)
    tensor([  1.,  10., 100.])
    """
    wide = linspace(start, stop, num, dtype="float64", device=device, endpoint=endpoint)
    wanted = default_float() if dtype is None else as_dtype(dtype)
    return cast(pow(float(as_number(base, "logspace")), wide), wanted)


@public()
def unravel_index(indices: Tensor, /, shape: Sequence[int]) -> tuple[Tensor, ...]:
    """Positions in a tensor of a shape, from positions in its elements as a vector.

    >>> weft.unravel_index(weft.asarray([0, 4]), (2, 3))
    (tensor([0, 1]), tensor([0, 1]))
    """
    found: list[Tensor] = []
    rest = indices
    for size in reversed(as_shape(shape, "unravel_index")):
        found.insert(0, remainder(rest, size))
        rest = floor_divide(rest, size)
    return tuple(found)


def _triangle(rows: int, columns: int | None, offset: int, device: Any, lower: bool) -> Any:
    width = rows if columns is None else columns
    place = as_device(device)
    row = expand_dims(arange(rows, device=place), 1)
    column = arange(width, device=place)
    inside = less_equal(column, row + offset) if lower else greater_equal(column, row + offset)
    return nonzero(inside)


@public()
def tril_indices(
    rows: int, columns: int | None = None, /, offset: int = 0, *, device: Any = None
) -> tuple[Tensor, Tensor]:
    """The rows and the columns of the elements on and below a diagonal.

    >>> weft.tril_indices(2)
    (tensor([0, 1, 1]), tensor([0, 0, 1]))
    """
    found: tuple[Tensor, Tensor] = _triangle(rows, columns, offset, device, lower=True)
    return found


@public()
def triu_indices(
    rows: int, columns: int | None = None, /, offset: int = 0, *, device: Any = None
) -> tuple[Tensor, Tensor]:
    """The rows and the columns of the elements on and above a diagonal.

    >>> weft.triu_indices(2)
    (tensor([0, 0, 1]), tensor([0, 1, 1]))
    """
    found: tuple[Tensor, Tensor] = _triangle(rows, columns, offset, device, lower=False)
    return found
