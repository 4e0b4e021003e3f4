"""From what users pass (tensors, Python numbers, arrays, lists) to tensors of one dtype."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.device import Device, as_device
from weft.base.dim_algebra import Dim
from weft.base.dtypes import PYTHON_KINDS, DType, Kind, dtype_of_numpy
from weft.base.errors import DTypeError, ShapeError
from weft.base.promotion import RANKS, promote_weak, result_dtype
from weft.core.bind import bind, new_tensor, rebind, recorder
from weft.core.grad_mode import mode
from weft.core.number import Number as UnknownNumber
from weft.core.number import as_held, joint_kind, number_tensor
from weft.core.operand_dtypes import CAST, in_dtype
from weft.core.tensor import Tensor, result_class_of
from weft.ir.dispatch import family_of
from weft.ir.op import OPS

Number = builtins.bool | int | float | complex
Operand = Tensor | Number

NUMBERS = frozenset(PYTHON_KINDS)
#: What an operator takes as its other side; for anything else it returns NotImplemented.
OPERANDS = (Tensor, builtins.bool, int, float, complex, np.ndarray, np.generic, Dim)


def number_kind(value: Any) -> Kind | None:
    """The kind of a Python number, NumPy scalar or size; None for anything else."""
    kind = PYTHON_KINDS.get(value.__class__)
    if kind is None and value.__class__ is Dim:
        return "int"
    if kind is None and value.__class__ is UnknownNumber:
        return value.dtype.kind
    if kind is None and isinstance(value, (np.generic, int, float, complex)):
        # NumPy's scalars are weak like the Python numbers they stand for: x * np.sqrt(2)
        # must not turn a float32 model into a float64 one.
        kind = dtype_of_numpy(np.asarray(value).dtype).kind
        return "int" if kind == "uint" else kind
    return kind


def as_number(value: Any, op: str) -> Any:
    """A Python number from one, from a NumPy scalar or from a one-element tensor."""
    if number_kind(value) is not None:
        return value.item() if isinstance(value, np.generic) else value
    if isinstance(value, (Tensor, np.ndarray)):
        return value.item()
    raise DTypeError(f"a number is needed, not {type(value).__name__} {value!r:.60}", op=op)


def constant(value: Any, dtype: DType, device: Device) -> Tensor:
    """A 0-d tensor of a Python number, which must fit the dtype, or of a size."""
    if value.__class__ is Dim:
        return dim_tensor(value, dtype, device)
    if value.__class__ is UnknownNumber:
        return as_held(value, dtype, device)
    return number_tensor(value, dtype, device)


def dim_tensor(size: Dim, dtype: DType, device: Device) -> Tensor:
    """A 0-d tensor of a size that is not known yet."""
    made: Tensor = bind(OPS["dim_size"], size=size, dtype=dtype, device=device)
    return made


def is_strong(value: Any) -> builtins.bool:
    """Whether a value is a tensor that keeps its dtype beside others."""
    return isinstance(value, Tensor) and value.__class__ is not UnknownNumber


#: 0-d tensors of Python numbers that met a NumPy array, by (class, number, dtype), as 2 == 2.0:
#: x * 2 in a loop. Of numbers that met arrays elsewhere, by their device and class too: each would
#: be copied there.
_constants: dict[Any, Tensor] = {}


def paired(tensor: Tensor, number: Any) -> Tensor | None:
    """`number` as a tensor of `tensor`'s dtype; None where the two have to be promoted first."""
    data = tensor._data
    cached = recorder() is None
    key: Any = (number.__class__, number, data.dtype)
    if data.__class__ is not np.ndarray:
        cached = cached and number.__class__ in NUMBERS and not family_of(data).refusal
        key = (*key, tensor.device, data.__class__) if cached else None
    found = _constants.get(key) if cached else None
    if found is None:
        kind = number_kind(number)
        dtype = tensor.dtype
        if kind is None or promote_weak(dtype, kind) is not dtype:
            return None
        found = constant(number, dtype, tensor.device)
        if cached and number:  # 0.0 and -0.0 are one key: keep neither
            if len(_constants) > 1000:
                _constants.clear()
            _constants[key] = found
    return found


def as_tensor(value: Any, op: str, like: Tensor | None = None) -> Tensor:
    """`value` as a tensor; a Python number takes its default dtype."""
    if is_strong(value):
        return value  # type: ignore[no-any-return]
    device = like.device if like is not None else as_device(None)
    kind = number_kind(value)
    if kind is not None:
        return constant(value, dtypes.default_for_kind(kind), device)
    if isinstance(value, np.ndarray):
        dtype = dtype_of_numpy(value.dtype)
        return new_tensor(value.astype(dtype.numpy), device, value)
    raise not_an_operand(value, op)


def not_an_operand(value: Any, op: str) -> DTypeError:
    return DTypeError(
        f"a tensor or a number is needed, not {type(value).__name__} {value!r:.60}",
        op=op,
        hint="make a tensor of it with weft.asarray",
    )


def common(values: Iterable[Any], op: str, *, at_least: str = "") -> list[Tensor]:
    """`values` as tensors of one dtype; Python numbers are weak.

    `at_least="float"`: integers and bools become the default floating dtype.
    """
    given = list(values)
    strong: list[DType] = []
    weak: list[Kind] = []
    device: Device | None = None
    for i, value in enumerate(given):
        kind = None if is_strong(value) else number_kind(value)
        if kind is not None:
            weak.append(kind)
            continue
        tensor = given[i] = as_tensor(value, op)
        strong.append(tensor.dtype)
        device = device or tensor.device
    if len(set(strong)) > 1:
        strong = _of_tensors_with_axes([value for value in given if is_strong(value)])
    dtype = result_dtype(strong, weak)
    if at_least == "float":
        dtype = promote_weak(dtype, "float")
    place = device or as_device(None)
    return [
        cast(value, dtype) if is_strong(value) else constant(value, dtype, place) for value in given
    ]


def _of_tensors_with_axes(tensors: list[Tensor]) -> list[DType]:
    """The dtypes that decide about a result: all, but for classes of tensors whose 0-d ones count
    as numbers where another has axes and is of as high a kind."""
    found = [x.dtype for x in tensors]
    ranks = [RANKS[x.dtype.kind] for x in tensors if x.ndim]
    if not ranks or not result_class_of(tensors)._weak_scalars:
        return found
    return [x.dtype for x in tensors if x.ndim or RANKS[x.dtype.kind] > max(ranks)]


def assign(target: Tensor, value: Tensor, op: str) -> Tensor:
    """Give `target` a new value of its own dtype and shape: what x += y and x[i] = v do."""
    if mode.autocast is not None and target.dtype in CAST:
        (value,) = in_dtype((value,), target.dtype)  # x **= 2, where powers are float32
    if value.dtype is not target.dtype and target._narrows:
        is_kept = RANKS[value.dtype.kind] <= RANKS[target.dtype.kind]
        value = cast(value, target.dtype) if is_kept else value
    if value.dtype is not target.dtype:
        raise DTypeError(
            f"the result is {value.dtype.name}, which x of dtype {target.dtype.name} cannot hold",
            op=op,
            hint="write x = x + y to let the dtype change, or cast y",
        )
    if value.shape != target.shape:
        raise ShapeError(
            f"the result has shape {value.shape}, which x of shape {target.shape} cannot hold",
            op=op,
            hint="write x = x + y to let the shape grow",
        )
    rebind(target, value, op)
    return target


def cast(tensor: Tensor, dtype: DType) -> Tensor:
    """The tensor in another dtype; itself when it already is."""
    return tensor if tensor.dtype is dtype else tensor.astype(dtype)


def holds_unknown_numbers(obj: Any) -> builtins.bool:
    """Whether this is a number that only a graph knows, or nested sequences of such and others."""
    if obj.__class__ is UnknownNumber:
        return True
    if recorder() is None or not isinstance(obj, (list, tuple)):
        return False
    leaves = list(_leaves(obj))
    return any(leaf.__class__ is UnknownNumber for leaf in leaves) and all(
        leaf.__class__ is UnknownNumber or leaf.__class__ in NUMBERS for leaf in leaves
    )


def common_kind(obj: Any) -> Kind:
    """The kind that holds all of the numbers in nested sequences."""
    return functools.reduce(joint_kind, [number_kind(leaf) or "bool" for leaf in _leaves(obj)])


def _leaves(obj: Any) -> Iterator[Any]:
    if isinstance(obj, (list, tuple)):
        for part in obj:
            yield from _leaves(part)
    else:
        yield obj


def array_of(obj: Any, wanted: DType | None, op: str) -> np.ndarray[Any, Any]:
    """A new NumPy array of nested sequences of numbers, arrays and tensors.

    Python numbers become the default dtype of their kind; arrays keep theirs. Where `wanted` is an
    integer dtype, Python integers that do not fit it are an error.
    """
    plain = _plain(obj)
    typed = _typed(obj)
    try:
        array = np.array(plain)
        integers = not typed and array.dtype.kind in "iuO"
        if integers and wanted is not None and wanted.kind in ("int", "uint"):
            array = np.array(plain, dtype=wanted.numpy)  # OverflowError where one is too large
    except ValueError as error:
        raise ShapeError(
            f"the values do not form a rectangular array: {error}",
            op=op,
            hint="all parts along an axis must have one length",
        ) from None
    except TypeError:
        raise _no_tensor_of(obj, op) from None
    try:
        dtype = dtype_of_numpy(array.dtype)
    except DTypeError:
        raise _no_tensor_of(obj, op) from None
    if not typed and wanted is None:
        if dtype.kind == "uint":
            raise OverflowError(
                f"{op}: a Python integer is out of bounds for int64; ask for dtype=weft.uint64"
            )
        dtype = dtypes.default_for_kind(dtype.kind)
    return array.astype(dtype.numpy, copy=False)


def _no_tensor_of(obj: Any, op: str) -> DTypeError:
    return DTypeError(
        f"cannot make a tensor of {type(obj).__name__} {obj!r:.60}",
        op=op,
        hint="give numbers, or nested lists of numbers (integers must fit into 64 bits)",
    )


def _plain(obj: Any) -> Any:
    """Nested sequences with each tensor in them as a NumPy array."""
    if isinstance(obj, Tensor):
        return obj.numpy()
    if isinstance(obj, (list, tuple)):
        return [_plain(part) for part in obj]
    return obj


def _typed(obj: Any) -> builtins.bool:
    """Whether the values come with a dtype of their own: an array, or a sequence of arrays."""
    while isinstance(obj, (list, tuple)) and obj:
        obj = obj[0]
    return not isinstance(obj, (list, tuple)) and type(obj) not in PYTHON_KINDS
