"""The tensors of `weft.torch`: Weft's own, with PyTorch's methods.

A class of its own only for the sake of its methods. Results of op calls on it are of this class
(`weft.core.bind.register_result_class`), and all of the core works on it as on any tensor.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

import weft.core.tensor as core
from weft.base.device import Device, as_device
from weft.base.dim_algebra import Dim
from weft.base.dtypes import DTYPES, DType, as_dtype
from weft.base.promotion import RANKS
from weft.base.pytree import tree_map
from weft.base.shapes import size_of
from weft.core.bind import register_result_class
from weft.core.grad_mode import no_grad
from weft.core.number import Number
from weft.core.operands import as_tensor
from weft.ir.types import TensorType
from weft.ops import creation
from weft.torch.aliases import watched, writer

__all__ = ["Size", "is_tensor"]

F = TypeVar("F", bound=Callable[..., Any])


class Size(tuple[int, ...]):
    """A shape, as `x.size()` gives it."""

    __slots__ = ()

    def numel(self) -> int:
        count = 1
        for size in self:
            count *= size
        return count

    def __repr__(self) -> str:
        return f"torch.Size({list(self)})"


class _Count(int):
    """`x.size`: called, it is PyTorch's method; the core, where `size` is a property, reads the
    number of elements."""

    shape: tuple[int, ...]

    def __call__(self, dim: int | None = None) -> Any:
        return _size(self.shape, dim)


def _size(shape: tuple[int, ...], dim: int | None) -> Any:
    return Size(shape) if dim is None else shape[dim]


class _Type(TensorType):
    """`x.type`: called, it is PyTorch's method; the core reads the type."""

    __slots__ = ("tensor",)
    tensor: Tensor

    def __call__(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        if dtype is None:
            return f"torch.{TYPE_NAMES.get(self.dtype.name, self.dtype.name)}"
        return self.tensor.to(as_type(dtype))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorType) and _fields(self) == _fields(other)

    def __hash__(self) -> int:
        return hash(core.type_of(self.tensor))


def _fields(kind: TensorType) -> tuple[Any, ...]:
    return kind.dtype, kind.shape, kind.device, kind.layout


#: What PyTorch calls the classes of tensors of a dtype.
TYPE_NAMES = {
    "float32": "FloatTensor",
    "float64": "DoubleTensor",
    "float16": "HalfTensor",
    "bfloat16": "BFloat16Tensor",
    "int64": "LongTensor",
    "int32": "IntTensor",
    "int16": "ShortTensor",
    "int8": "CharTensor",
    "uint8": "ByteTensor",
    "bool": "BoolTensor",
}
_DTYPE_NAMES = {name: dtype for dtype, name in TYPE_NAMES.items()}


def as_type(dtype: Any) -> DType:
    """The dtype of a dtype, or of a name as "torch.FloatTensor"."""
    if isinstance(dtype, str):
        name = dtype.removeprefix("torch.")
        return as_dtype(_DTYPE_NAMES.get(name, name))
    return as_dtype(getattr(dtype, "of_dtype", dtype))


def held(value: Any, dtype: DType) -> Any:
    """A value as a tensor of this dtype holds it."""
    if isinstance(value, Number):
        narrows = RANKS[value.kind] > RANKS[dtype.kind]
        return as_tensor(value, "cast").astype(dtype) if narrows else value
    if isinstance(value, core.Tensor):
        narrows = RANKS[value.dtype.kind] > RANKS[dtype.kind]
        return value.astype(dtype) if narrows and value.dtype.kind != "complex" else value
    if isinstance(value, (int, float)):
        if dtype.kind == "bool":
            return bool(value)
        return int(value) if isinstance(value, float) and dtype.kind in ("int", "uint") else value
    return value


class Tensor(core.Tensor):
    """A tensor with PyTorch's methods. Make one with `torch.tensor`, `torch.zeros`…"""

    __slots__ = ()
    _weak_scalars = True
    _narrows = True

    # --- the same names for other things ------------------------------------------------------

    @property
    def size(self) -> Any:
        count: Any = size_of(self.shape)
        if not isinstance(count, int):  # a size that only a recording knows by name
            return lambda dim=None: _size(self.shape, dim)
        found = _Count(count)
        found.shape = self.shape
        return found

    @property
    def type(self) -> Any:
        kind = core.type_of(self)
        found = _Type(kind.dtype, kind.shape, kind.device, kind.layout)
        object.__setattr__(found, "tensor", self)
        return found

    @property
    def grad(self) -> Any:
        return labelled(core.Tensor.grad.fget(self))  # type: ignore[attr-defined]

    @grad.setter
    def grad(self, value: Any) -> None:
        core.Tensor.grad.fset(self, value)  # type: ignore[attr-defined]

    @grad.deleter
    def grad(self) -> None:
        core.Tensor.grad.fset(self, None)  # type: ignore[attr-defined]

    @property
    def data(self) -> Any:
        return _data_of(self)

    @data.setter
    def data(self, value: Any) -> None:
        core.Tensor.data.fset(self, value)  # type: ignore[attr-defined]

    def detach(self) -> Any:
        """The same value without history. A write to it is a write to this tensor, too."""
        return _data_of(self)

    def clone(self, *, memory_format: Any = None) -> Any:
        """A copy. The core copies when one of both is written; a view is copied at once, so that
        it is no view any more."""
        out = super().clone()
        if out._data.__class__ is np.ndarray and out._data.base is not None:
            out._data = out._data.copy()
        return out

    # --- where it is --------------------------------------------------------------------------

    is_mps = is_sparse = is_quantized = False

    @property
    def is_cuda(self) -> bool:
        """Whether it is on a GPU."""
        return self.device.kind == "cuda"

    def to(
        self,
        *args: Any,
        dtype: Any = None,
        device: Any = None,
        non_blocking: bool = False,
        copy: bool = False,
        memory_format: Any = None,
    ) -> Any:
        """The same values in another dtype, on another device, or as another tensor has them."""
        for given in args:
            if isinstance(given, core.Tensor):
                dtype, device = given.dtype, given.device
            elif isinstance(given, Device) or (isinstance(given, str) and given not in DTYPES):
                device = given
            elif not isinstance(given, bool):
                dtype = given
        out: Any = self
        if device is not None and as_device(device) != self.device:
            out = out.to_device(device)
        if dtype is not None and as_type(dtype) is not self.dtype:
            out = out.astype(as_type(dtype))
        return out.clone() if copy and out is self else out

    def numpy(self, *, force: bool = False, copy: bool = False) -> Any:
        """The value as a NumPy array, read-only: a write to it cannot show in the tensor."""
        return core.Tensor.numpy(self, copy=copy)

    def __iter__(self) -> Iterator[Any]:
        return super().__iter__()

    def __reduce__(self) -> Any:
        return super().__reduce__()


register_result_class(Tensor)


class _AnyTensor(type):
    def __instancecheck__(cls, obj: Any) -> bool:
        return isinstance(obj, Tensor)


class PublicTensor(Tensor, metaclass=_AnyTensor):
    """`torch.Tensor`: all tensors of this namespace are one.

    `torch.Tensor(2, 3)` has that shape, `torch.Tensor([1, 2])` these values. It is apart from
    `Tensor`, so that results of op calls are made without a call of Python.
    """

    __slots__ = ()

    def __new__(cls, *given: Any) -> Any:
        if all(isinstance(size, (int, Dim)) for size in given):
            return labelled(creation.zeros(given or 0, dtype="float32"))
        return labelled(creation.asarray(given[0], dtype="float32", copy=True))


class _Data(Tensor):
    """`x.data` and `x.detach()`: a value without history, whose writes are writes to x as well."""

    __slots__ = ("_owner",)
    _owner: Any
    _writes_through = True


def _data_of(tensor: Tensor) -> Tensor:
    made: Tensor = _Data()
    made._data, made._node = core.Tensor.detach(tensor)._data, None
    made._owner = weakref.ref(tensor)  # type: ignore[attr-defined]
    return made


def owner_of(tensor: Any) -> Any:
    """The tensor that a write is meant for: of `x.data` it is x."""
    found = getattr(tensor, "_owner", None) if tensor.__class__ is _Data else None
    owner = None if found is None else found()
    return tensor if owner is None else owner_of(owner)


def _write_through(name: str) -> Callable[..., Any]:
    """A method that writes: first to the owner, if there is one, then here."""

    def write(self: Any, *args: Any, **kwargs: Any) -> Any:
        owner = owner_of(self)
        if owner is self:
            return getattr(Tensor, name)(self, *args, **kwargs)
        with no_grad():
            out = getattr(owner, name)(*args, **kwargs)
            self._data = owner._data
        return self if out is owner else out

    return write


def attach_writers() -> None:
    """Watch all methods that write, and let them do so for `x.data`; called when all are there."""
    for name in dir(Tensor):
        if writer(name):
            setattr(Tensor, name, watched(name, getattr(Tensor, name)))
            setattr(_Data, name, _write_through(name))


def is_tensor(obj: Any) -> bool:
    """Whether it is a tensor."""
    return isinstance(obj, core.Tensor)


def labelled(value: Any) -> Any:
    """Tensors that were just made, in any structure, as those of this namespace."""
    if isinstance(value, core.Tensor):
        if value.__class__ is core.Tensor:
            value.__class__ = Tensor
        return value
    if isinstance(value, (tuple, list, dict)):
        return tree_map(labelled, value)
    return value


def method(*names: str) -> Callable[[F], F]:
    """Make a function a method of tensors, too: under its own name, or under these."""

    def attach(function: F) -> F:
        for name in names or (function.__name__,):
            setattr(Tensor, name, function)
        return function

    return attach
