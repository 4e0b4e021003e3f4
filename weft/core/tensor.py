"""Tensor: a value with a dtype and a shape, and a name to hold it by.

A Tensor holds an array that is never written while anyone else can see it. `x[i] = v` and
`x += y` give *this* Tensor a new value; where nobody else holds the array (its reference count
says so, and every view keeps its owner alive) the array is reused, so that a loop of writes costs
what the writes cost.

Array methods and operators are attached by `weft.ops`, from the cards; their types are in the
generated stub `weft/core/methods.pyi`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from weft.base.device import CPU, Device, as_device
from weft.base.dtypes import DTYPES, DType, default_for_kind, dtype_of_numpy
from weft.base.errors import DTypeError, GradientError, ShapeError
from weft.base.shapes import Shape, size_of
from weft.core.ownership import alone_in_tensor, proven
from weft.core.parts import Parts
from weft.ir.dispatch import family_for, family_of
from weft.ir.types import DENSE, TensorType

if TYPE_CHECKING:
    from weft.core.methods import TensorMethods
else:
    TensorMethods = object

__all__ = ["Tensor"]

NumpyArray = np.ndarray[Any, Any]
Labelled = TypeVar("Labelled")


#: Stands for "nobody asked": the answer is the tensor's own.
UNASKED: Any = object()


class Witness:
    """Who answers where Python asks a tensor for its value: the recorder, while there is one."""

    ask: Callable[[Tensor, str], Any] | None = None


witness = Witness()


class Tensor(TensorMethods):
    """An n-dimensional array with value semantics. Make one with `weft.asarray`."""

    __slots__ = ("__weakref__", "_data", "_grad", "_node")
    __hash__ = object.__hash__  # by identity: == compares elements

    _data: Any  # the array
    _node: Any  # what made it, for `backward`; None when no gradient is asked for
    _grad: Tensor | None  # unset until there is one
    #: Of which class the results of op calls on such a tensor are: see `register_result_class`.
    _result_class: ClassVar[type[Tensor]]
    #: Whether its 0-d tensors count as numbers where dtypes are promoted.
    _weak_scalars: ClassVar[bool] = False
    #: Whether `x += y` casts a result to the dtype of x, of the same kind or a higher one.
    _narrows: ClassVar[bool] = False
    #: Whether a write to it is a write to a tensor that others hold.
    _writes_through: ClassVar[bool] = False

    if not TYPE_CHECKING:  # a Tensor has no __init__: making one is the hot path of every op

        def __getattr__(self, name: str) -> Any:
            if name == "_data":
                raise DTypeError(
                    "Tensor() makes no tensor", hint="use weft.asarray(values), weft.zeros(shape)"
                )
            base = name.removesuffix("_")
            instead = f"; say x = x.{base}(...)" if base != name and hasattr(Tensor, base) else ""
            raise AttributeError(f"Tensor has no attribute {name!r}{instead}", name=name, obj=self)

    # --- what it is ---------------------------------------------------------------------------

    @property
    def shape(self) -> Shape:
        """Sizes of the axes."""
        shape: Shape = self._data.shape
        return shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return dtype_of_numpy(self._data.dtype)

    @property
    def device(self) -> Device:
        """Where the elements lie."""
        return family_of(self._data).device_of(self._data)

    @property
    def layout(self) -> str:
        """How the elements lie: "dense", or a layout of your own."""
        return family_of(self._data).layout

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._data.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return size_of(self._data.shape)

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return size_of(self.shape) * self.itemsize

    @property
    def type(self) -> TensorType:
        """All of the above in one value; prints as `f32[2,3]`."""
        return type_of(self)

    # --- out of Weft --------------------------------------------------------------------------

    def numpy(self, *, copy: bool = False) -> NumpyArray:
        """The value as a NumPy array: read-only and sharing memory, or a copy of your own."""
        answer = UNASKED if witness.ask is None else witness.ask(self, "numpy")
        array = family_of(self._data).to_numpy(self._data) if answer is UNASKED else answer
        if copy:
            return array.copy()
        view = array.view()
        view.flags.writeable = False
        return view

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NumpyArray:
        array = self.numpy()
        if copy or (dtype is not None and array.dtype != dtype):
            if copy is False:
                raise ValueError(f"a copy is needed to make {dtype} of {self.dtype.name}")
            return array.astype(dtype or array.dtype)
        return array

    def item(self) -> Any:
        """The value of a one-element tensor as a Python number."""
        self._single("item")
        return self._answer("item")

    def _answer(self, question: str) -> Any:
        """Of a one-element tensor: its "item", or "bool", "int", "float", "complex" of that."""
        if witness.ask is not None:
            answer = witness.ask(self, question)
            if answer is not UNASKED:
                return answer
        number = family_of(self._data).to_numpy(self._data).item()
        return number if question == "item" else _QUESTIONS[question](number)

    def _single(self, op: str) -> None:
        if size_of(self.shape) != 1:
            raise ShapeError(
                f"a tensor of {size_of(self.shape)} elements has no single value",
                op=op,
                operands=[self.type],
                hint="index one element first, or use tolist()",
            )

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers."""
        return self.numpy().tolist()

    def __bool__(self) -> bool:
        if size_of(self.shape) != 1:
            raise ShapeError(
                f"the truth of a tensor of {size_of(self.shape)} elements is ambiguous",
                op="bool",
                operands=[self.type],
                hint="say any(x) or all(x)",
            )
        answer: bool = self._answer("bool")
        return answer

    def __int__(self) -> int:
        self._single("int")
        answer: int = self._answer("int")
        return answer

    def __float__(self) -> float:
        self._single("float")
        answer: float = self._answer("float")
        return answer

    def __complex__(self) -> complex:
        self._single("complex")
        answer: complex = self._answer("complex")
        return answer

    def __index__(self) -> int:
        if self.ndim != 0 or self.dtype.kind not in ("int", "uint"):
            raise DTypeError(
                f"only a 0-d integer tensor can be an index, not {self.type}", op="index"
            )
        answer: int = self._answer("int")
        return answer

    def __len__(self) -> int:
        if not self.ndim:
            raise DTypeError("a 0-d tensor has no length", op="len", hint="use x.size")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.ndim:
            raise DTypeError(
                "a 0-d tensor cannot be iterated over", op="iter", hint="use x.item() or x[None]"
            )
        return (self[i] for i in range(self.shape[0]))

    def __reversed__(self) -> Iterator[Tensor]:
        return (self[i] for i in reversed(range(len(self))))

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and self.ndim == 0 else format(str(self), spec)

    def __str__(self) -> str:
        """A single number as NumPy prints it, so that f"{loss}" reads well; else the repr."""
        array = None if self.ndim else self._shown()
        return repr(self) if array is None else str(array[()])

    def _shown(self) -> Any:
        """The array to print; None where there is none, in a graph."""
        answer = UNASKED if witness.ask is None else witness.ask(self, "repr")
        if answer is UNASKED and family_of(self._data).refusal:
            return None
        array = self.numpy() if answer is UNASKED else answer
        if self.dtype.kind == "float" and array.dtype.kind != "f":
            return array.astype(np.float32)  # NumPy prints bfloat16 as objects
        return array

    def __repr__(self) -> str:
        array = self._shown()
        if array is None:
            return f"tensor({self._data!r})"
        body = np.array2string(array, separator=", ", prefix="tensor(")
        notes = []
        if self.dtype.kind == "uint" or self.dtype is not default_for_kind(self.dtype.kind):
            notes.append(f"dtype={self.dtype.name}")
        if not size_of(self.shape):
            notes.append(f"shape={self.shape}")
        if self.device != CPU:
            notes.append(f"device='{self.device}'")
        if self.layout != DENSE:
            notes.append(f"layout='{self.layout}'")
        if self.grad_fn is not None:
            notes.append(f"grad_fn={self.grad_fn!r}")
        elif self.requires_grad:
            notes.append("requires_grad=True")
        return f"tensor({', '.join([body, *notes])})"

    # --- the Array API and copies -------------------------------------------------------------

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        weft = sys.modules["weft"]
        if api_version not in (None, *weft.ARRAY_API_VERSIONS):
            raise ValueError(f"Weft has no Array API version {api_version!r}")
        return weft

    def to_layout(self, layout: str, /) -> Tensor:
        """The same value in another layout of the same device."""
        if layout == self.layout:
            return self.clone()
        family = family_for(self.device, layout)
        array = family_of(self._data).to_numpy(self._data)
        return wrap(family.from_numpy(array, self.device), self)

    def to(
        self, *targets: Any, dtype: Any = None, device: Any = None, non_blocking: bool = False
    ) -> Tensor:
        """The same values in another dtype or on another device, or both, as the targets name them.

        A tensor names its own. `non_blocking` changes nothing: copies are ordered before what uses
        them, and copies to the CPU are waited for.
        """
        for target in targets:
            if isinstance(target, Tensor):
                dtype, device = target.dtype, target.device
            elif isinstance(target, Device) or (isinstance(target, str) and target not in DTYPES):
                device = target
            elif not isinstance(target, bool):  # PyTorch's third one is non_blocking
                dtype = target
        out: Tensor = self if dtype is None else self.astype(dtype, copy=False)
        return out if device is None else out.to_device(device)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[Any, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The value for another library.

        It is shared read-only with libraries that know what that means (DLPack 1.0) and copied
        for others. `copy=False` shares it with those too: then their writes show in this tensor,
        and in no other.
        """
        if type(self._data) is not np.ndarray:
            if copy is False:
                return own(self).__dlpack__(stream=stream)
            return self._data.copy().__dlpack__(stream=stream)
        if self.dtype.numpy.kind == "V":
            raise BufferError(f"NumPy cannot export {self.dtype.name}; cast it to float32 first")
        knows_read_only = max_version is not None and tuple(max_version) >= (1, 0)
        if copy or (copy is None and not knows_read_only):
            array = self.numpy(copy=True)
        else:
            array = self.numpy() if knows_read_only else own(self)
        return array.__dlpack__(
            stream=stream, max_version=max_version, dl_device=dl_device, copy=None
        )

    def __dlpack_device__(self) -> tuple[Any, int]:
        device: tuple[Any, int] = self._data.__dlpack_device__()
        return device

    def __copy__(self) -> Tensor:
        """A leaf of its own, or a computed tensor with the same history."""
        return self.clone() if not self.is_leaf else self._leaf_copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if not self.is_leaf:
            raise GradientError(
                "only leaves can be copied deeply; this tensor was computed",
                op="deepcopy",
                operands=[self.type],
                hint="copy x.detach(), or use x.clone()",
            )
        copied = memo[id(self)] = self._leaf_copy()
        if self.grad is not None:
            copied.grad = self.grad.detach()
        return copied

    def _leaf_copy(self) -> Tensor:
        # Arrays are shared until someone writes: the copy itself costs nothing.
        copied = self.__class__()
        copied._data = self.detach()._data
        copied._node = None
        if self._node is not None:
            copied.requires_grad = True
        return copied

    def __reduce__(self) -> Any:
        array = np.ascontiguousarray(self.numpy()).reshape(self.shape)
        wants_grad = self.requires_grad and self.is_leaf
        return _unpickle, (self.__class__, array, str(self.device), wants_grad)


#: What Python makes of the one number of a tensor.
_QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "bool": bool,
    "int": int,
    "float": float,
    "complex": complex,
}


class StateTensor(Tensor):
    """A tensor that lives as long as its owner and holds its state, as a random generator's.

    A recorded function that meets it reads and writes this very object in every call.
    """

    __slots__ = ()


Tensor._result_class = Tensor


def result_class_of(tensors: Iterable[Tensor]) -> type[Tensor]:
    """Of which class the results of an op call are: that of the first operand that names one."""
    for tensor in tensors:
        if tensor._result_class is not Tensor:
            return tensor._result_class
    return Tensor


def class_among(values: Iterable[Any]) -> type[Tensor]:
    """The class of results for values of which some are tensors."""
    return result_class_of(value for value in values if isinstance(value, Tensor))


def labelled(out: Labelled, cls: type[Tensor]) -> Labelled:
    """Let results that were just made be of a class of tensors. Nobody else holds them yet."""
    if cls is not Tensor:
        for part in out if isinstance(out, (tuple, list)) else (out,):
            if part.__class__ is Tensor:
                part.__class__ = cls
    return out


def wrap(array: Any, like: Tensor | None = None) -> Tensor:
    """A Tensor around an array of a registered class, which is not to be written from now on.

    With `like` it is of the class that results of that tensor are of.
    """
    tensor = Tensor() if like is None else like._result_class()
    tensor._data = array
    tensor._node = None
    return tensor


Parts.wrap = staticmethod(wrap)


def type_of(tensor: Tensor) -> TensorType:
    data = tensor._data
    family = family_of(data)
    place = family.device_of(data)
    cuts = data.cuts if data.__class__ is Parts else None
    return TensorType(dtype_of_numpy(data.dtype), tuple(data.shape), place, family.layout, cuts)


def _unpickle(kind: type[Tensor], array: NumpyArray, device: str, wants_grad: bool) -> Tensor:
    target = as_device(device)
    tensor = kind()
    tensor._data = family_for(target).from_numpy(array, target)
    tensor._node = None
    if wants_grad:
        tensor.requires_grad = True
    return tensor


def own(tensor: Tensor) -> Any:
    """The tensor's array, made its own first if anyone else may see it. Only then write to it."""
    data = tensor._data
    if type(data) is np.ndarray and (data.base is not None or not data.flags.writeable):
        tensor._data = data.copy()
    elif type(data) is not np.ndarray and getattr(data, "base", None) is not None:
        tensor._data = data.copy()  # a view of an array on another device
    else:
        del data
        if not (_owns and alone_in_tensor(tensor)):
            tensor._data = tensor._data.copy()
    return tensor._data


def _kept_its_array(others: int) -> bool:
    """Whether `own` leaves a tensor its array, which so many others hold."""
    tensor = wrap(np.empty(1))
    held, before = [tensor._data] * others, id(tensor._data)
    own(tensor)
    del held
    return id(tensor._data) == before


_owns = True
_owns = proven(_kept_its_array)
