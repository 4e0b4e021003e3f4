"""New tensors: from values, from other libraries, and from rules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from weft.base import dtypes
from weft.base.device import Device, as_device
from weft.base.dim_algebra import Dim, dim_max
from weft.base.dtypes import PYTHON_KINDS, DType, as_dtype, default_for_kind, int_info
from weft.base.errors import ShapeError
from weft.base.shapes import Shape, new_shape, size_of
from weft.core.bind import bind, new_tensor, recorder
from weft.core.operands import (
    array_of,
    as_number,
    cast,
    common_kind,
    constant,
    holds_unknown_numbers,
    is_strong,
)
from weft.core.parts import Parts
from weft.core.public import public
from weft.core.tensor import Tensor, labelled, wrap
from weft.ir.dispatch import family_for, is_device_array
from weft.ir.op import Op, Trait
from weft.ir.types import TensorType
from weft.ops.cast import astype
from weft.ops.select import where
from weft.ops.shape import broadcast_to, reshape, stack
from weft.ops.ways import same_axes

__all__ = [
    "arange",
    "asarray",
    "empty",
    "empty_like",
    "eye",
    "from_dlpack",
    "full",
    "full_like",
    "linspace",
    "meshgrid",
    "ones",
    "ones_like",
    "tensor",
    "tril",
    "triu",
    "zeros",
    "zeros_like",
]

# --- from values -------------------------------------------------------------------------------


@public()
def asarray(
    obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None
) -> Tensor:
    """A tensor of numbers, nested lists, NumPy arrays, buffers or tensors.

    The values are copied, so that later writes to `obj` do not show in the tensor. With
    `copy=False` memory is shared instead; then you must not write to `obj` any more.

    >>> weft.asarray([[1, 2], [3, 4.5]])
    tensor([[1. , 2. ],
            [3. , 4.5]])
    """
    wanted = None if dtype is None else as_dtype(dtype)
    if holds_unknown_numbers(obj):
        return _of_numbers(obj, wanted or default_for_kind(common_kind(obj)), as_device(device))
    if isinstance(obj, Tensor):
        out = obj if copy is False else obj.clone()
        if wanted is not None and out.dtype is not wanted:
            if copy is False:
                raise ValueError(f"a copy is needed to make {wanted.name} of {obj.dtype.name}")
            out = astype(out, wanted)
        return out if device is None else out.to_device(device)
    place = as_device(device)
    if isinstance(obj, Dim):
        return constant(obj, wanted or default_for_kind("int"), place)
    if copy is False and not is_device_array(obj):
        array = np.asarray(obj) if hasattr(obj, "__array_interface__") else None
        native = None if array is None else dtypes.dtype_of_numpy(array.dtype)
        if array is None or array.dtype != native.numpy or wanted not in (None, native):  # type: ignore[union-attr]
            raise ValueError("a copy is needed to make a tensor of this; leave copy=False out")
        array = array.view(np.ndarray)
        array.flags.writeable = False
        return new_tensor(array, place, obj)
    if is_device_array(obj):
        made = wrap(obj if copy is False else obj.copy())
        made = made if device is None else made.to_device(place)
    else:
        made = new_tensor(array_of(obj, wanted, "asarray"), place, obj)
    return made if wanted is None else cast(made, wanted)


def _of_numbers(obj: Any, dtype: DType, device: Device) -> Tensor:
    """A tensor of a Python number or nested lists of them, some of which only the graph knows."""
    if isinstance(obj, (list, tuple)):
        return stack([_of_numbers(part, dtype, device) for part in obj])
    return constant(obj, dtype, device)


@public()
def tensor(
    data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A new leaf with these values; with `requires_grad`, one that gets a `.grad`."""
    made = asarray(data, dtype=dtype, device=device, copy=True).detach()
    if requires_grad:
        made.requires_grad = True
    return made


#: What DLPack calls memory of an NVIDIA GPU, and memory that it shares with the CPU.
_CUDA_MEMORY = (2, 13)


@public()
def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor of another library's array, through the DLPack protocol.

    The values are copied, as `asarray` does, unless `copy=False` asks for shared memory.
    """
    if isinstance(x, Tensor):
        return asarray(x, device=device, copy=copy)
    if int(x.__dlpack_device__()[0]) in _CUDA_MEMORY:
        shared = family_for(as_device("cuda")).namespace.from_dlpack(x)
        made = wrap(shared if copy is False else shared.copy())
        return made if device is None else made.to_device(device)
    place = as_device(device)
    array = np.from_dlpack(x)
    if copy is not False:
        array = array.copy()
    native = dtypes.dtype_of_numpy(array.dtype)
    return new_tensor(array.astype(native.numpy, copy=False), place, x)


# --- from rules --------------------------------------------------------------------------------


def _full_type(*, shape: Shape, value: Any, dtype: DType, device: Device) -> TensorType:
    return TensorType(dtype, shape, device)


def _arange_type(*, start: Any, step: Any, length: int, dtype: DType, device: Device) -> TensorType:
    return TensorType(dtype, (length,), device)


def _eye_type(*, rows: int, columns: int, k: int, dtype: DType, device: Device) -> TensorType:
    return TensorType(dtype, (rows, columns), device)


def _full_values(xp: Any, *, shape: Shape, value: Any, dtype: DType, device: Device) -> Any:
    if value == 0 and "-" not in repr(value):  # not -0.0: the system provides zeros for free
        return xp.zeros(shape, dtype=dtype.numpy)
    return xp.full(shape, value, dtype=dtype.numpy)


def _arange_values(
    xp: Any, *, start: Any, step: Any, length: int, dtype: DType, device: Device
) -> Any:
    if isinstance(start, int) and isinstance(step, int):
        counted = xp.arange(length, dtype=np.uint64)  # wraps like integers of any width
        whole = counted * np.uint64(step % 2**64) + np.uint64(start % 2**64)
        signed = whole.view(np.int64) if dtype is not dtypes.uint64 else whole
        return xp.astype(signed, dtype.numpy)
    exact = start + step * xp.arange(length, dtype=np.float64)
    return xp.astype(exact, dtype.numpy)


_full = Op("full", _full_type, _full_values, traits=Trait.CREATION, ways=same_axes)
_arange = Op("arange", _arange_type, _arange_values, kinds="numeric", traits=Trait.CREATION)
_eye = Op(
    "eye",
    _eye_type,
    lambda xp, *, rows, columns, k, dtype, device: xp.eye(rows, columns, k=k, dtype=dtype.numpy),
    traits=Trait.CREATION,
)


@public()
def full(
    shape: int | Sequence[int], fill_value: Any, *, dtype: Any = None, device: Any = None
) -> Tensor:
    """A tensor with the same value everywhere; `fill_value` may be a 0-d tensor."""
    sizes = new_shape(shape, "full")
    if is_strong(fill_value):
        if dtype is not None:
            fill_value = cast(fill_value, as_dtype(dtype))
        return broadcast_to(fill_value.to_device(as_device(device)), sizes)
    if isinstance(fill_value, (Dim, Tensor)):  # a number that only the graph knows
        return broadcast_to(asarray(fill_value, dtype=dtype, device=device), sizes)
    value = as_number(fill_value, "full")
    wanted = default_for_kind(PYTHON_KINDS[type(value)]) if dtype is None else as_dtype(dtype)
    return _filled(sizes, value, wanted, device, "full")


def _filled(shape: Shape, value: Any, dtype: DType, device: Any, op: str) -> Tensor:
    if dtype.kind in ("int", "uint"):
        info = int_info(dtype)
        if isinstance(value, float) or not info.min <= value <= info.max:
            raise OverflowError(f"{op}: {value} is out of bounds for {dtype.name}")
    out: Tensor = bind(_full, shape=shape, value=value, dtype=dtype, device=as_device(device))
    return out


def _dtype_or_default(dtype: Any) -> DType:
    return dtypes.default_float() if dtype is None else as_dtype(dtype)


@public()
def zeros(shape: int | Sequence[int], *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of zeros."""
    return _filled(new_shape(shape, "zeros"), 0, _dtype_or_default(dtype), device, "zeros")


@public()
def ones(shape: int | Sequence[int], *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of ones."""
    return _filled(new_shape(shape, "ones"), 1, _dtype_or_default(dtype), device, "ones")


@public()
def empty(shape: int | Sequence[int], *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of zeros: uninitialized memory is never handed out."""
    return _filled(new_shape(shape, "empty"), 0, _dtype_or_default(dtype), device, "empty")


def place_like(x: Tensor, dtype: Any, device: Any) -> dict[str, Any]:
    """The dtype and the device of x, where none are given."""
    return {
        "dtype": x.dtype if dtype is None else dtype,
        "device": x.device if device is None else device,
    }


def _shape_like(x: Tensor) -> Shape:
    """The shape of x; of a tensor over a mesh, that of the part of this rank."""
    data = x._data
    if data.__class__ is Parts and recorder() is None:
        shape: Shape = data.local.shape
        return shape
    return x.shape


def _laid_like(x: Tensor, made: Tensor) -> Tensor:
    """What was made for `_shape_like`, in the layout of x."""
    data = x._data
    if data.__class__ is Parts and recorder() is None:
        made._data = Parts(made._data, data.shape, data.cuts, data.mesh)
    return made


@public()
def full_like(x: Tensor, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of the shape and dtype of x with the same value everywhere."""
    out = full(_shape_like(x), fill_value, **place_like(x, dtype, device))
    return _laid_like(x, labelled(out, x._result_class))


@public()
def zeros_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of zeros of the shape and dtype of x."""
    out = zeros(_shape_like(x), **place_like(x, dtype, device))
    return _laid_like(x, labelled(out, x._result_class))


@public()
def ones_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of ones of the shape and dtype of x."""
    out = ones(_shape_like(x), **place_like(x, dtype, device))
    return _laid_like(x, labelled(out, x._result_class))


@public()
def empty_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of zeros of the shape and dtype of x, as `empty` makes them."""
    out = empty(_shape_like(x), **place_like(x, dtype, device))
    return _laid_like(x, labelled(out, x._result_class))


@public()
def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: Any = None,
    device: Any = None,
) -> Tensor:
    """Evenly spaced values from start (or 0) up to, not including, stop.

    >>> weft.arange(2, 12, 3)
    tensor([ 2,  5,  8, 11])
    """
    if stop is None:
        start, stop = 0, start
    first, last, by = (as_number(value, "arange") for value in (start, stop, step))
    if by == 0:
        raise ShapeError("step must not be 0", op="arange")
    whole = all(isinstance(value, (int, Dim)) for value in (first, last, by))
    natural = default_for_kind("int" if whole else "float")
    wanted = natural if dtype is None else as_dtype(dtype)
    length = -((first - last) // by) if whole else math.ceil((last - first) / by)
    out: Tensor = bind(
        _arange,
        start=first,
        step=by,
        length=dim_max(length, 0),
        dtype=wanted,
        device=as_device(device),
    )
    return out


@public()
def linspace(
    start: complex,
    stop: complex,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
) -> Tensor:
    """`num` evenly spaced values from start to stop; the last is stop itself with `endpoint`."""
    first, last = (as_number(value, "linspace") for value in (start, stop))
    is_complex = isinstance(first, complex) or isinstance(last, complex)
    wanted = default_for_kind("complex" if is_complex else "float")
    if dtype is not None:
        wanted = as_dtype(dtype)
    if num < 0:
        raise ShapeError(f"num must not be negative: {num}", op="linspace")
    place = as_device(device)
    if isinstance(num, Dim):
        return cast(_spaced(first, last, num, place, endpoint), wanted)
    array = np.linspace(first, last, num, endpoint=endpoint)
    return cast(new_tensor(array, place), wanted)


def _spaced(first: complex, last: complex, num: int, device: Device, endpoint: bool) -> Tensor:
    """What `np.linspace` computes, for a symbolic number of points."""
    counts = arange(num, dtype=dtypes.float64, device=device)
    gaps = dim_max(num - 1, 1) if endpoint else num
    step = (last - first) / constant(gaps, dtypes.float64, device)
    points = counts * step + first
    return where(counts == num - 1, last, points) if endpoint and num != 1 else points


@public()
def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: Any = None,
    device: Any = None,
) -> Tensor:
    """A matrix with ones on the k-th diagonal and zeros elsewhere."""
    rows, columns = new_shape((n_rows, n_rows if n_cols is None else n_cols), "eye")
    wanted = _dtype_or_default(dtype)
    out: Tensor = bind(
        _eye, rows=rows, columns=columns, k=int(k), dtype=wanted, device=as_device(device)
    )
    return out


@public()
def meshgrid(*arrays: Tensor, indexing: Literal["xy", "ij"] = "xy") -> list[Tensor]:
    """Coordinate tensors of a grid, one for each of the 1-d tensors of coordinates."""
    if indexing not in ("xy", "ij"):
        raise ShapeError(f"indexing must be 'xy' or 'ij', not {indexing!r}", op="meshgrid")
    for x in arrays:
        if x.ndim > 1:
            raise ShapeError(
                f"coordinates must have 1 axis, not {x.ndim}", op="meshgrid", operands=[x.type]
            )
    order = list(range(len(arrays)))
    if indexing == "xy" and len(arrays) > 1:
        order[:2] = 1, 0
    shape = tuple(arrays[i].size for i in order)
    grids = []
    for axis, x in zip(order, arrays, strict=True):
        along = tuple(size_of(x.shape) if i == axis else 1 for i in range(len(arrays)))
        grids.append(broadcast_to(reshape(x, along), shape))
    return grids


def _below(x: Tensor, k: int) -> Tensor:
    """A mask of the elements on or below the k-th diagonal of the last two axes."""
    if x.ndim < 2:
        raise ShapeError(
            f"a matrix has two axes; this tensor has {x.ndim}", op="tril/triu", operands=[x.type]
        )
    rows, columns = x.shape[-2:]
    i = reshape(arange(rows, device=x.device), (rows, 1))
    return arange(columns, device=x.device) <= i + k


@public("tril")
def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The lower triangle of each matrix: zero above the k-th diagonal."""
    return where(_below(x, k), x, zeros_like(x))


@public("triu")
def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The upper triangle of each matrix: zero below the k-th diagonal."""
    return where(_below(x, k - 1), zeros_like(x), x)
