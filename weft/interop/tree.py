"""Trees of tensors and plain values as JSON and a table of arrays, and back.

What is plain in JSON stands as it is: None, bools, text, floats and integers. All else is a table
with one key that says what it is:

    {"tensor": name}              with "learns": true if it wants a gradient; and "parts": what
                                  cuts each of its axes, if ranks have parts of it
    {"array": name}               an array of NumPy
    {"list": [...]}               also "tuple", "set" and "frozenset"
    {"dict": [[key, value], ...]}
    {"float": "nan"}              also "inf" and "-inf"
    {"int": "0x..."}              one that needs more than 64 bits
    {"complex": [re, im]}  {"bytes": base64}  {"dtype": "float32"}

Where the format of the file has no name for the dtype of a tensor, the entry says its "dtype": its
elements are stored with one more axis at the end, complex128 as pairs of float64, others as bytes.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from weft.base.dtypes import DTYPES, DType, as_dtype, complex128, dtype_of_numpy
from weft.base.errors import DistributedError, DTypeError, FileError, WeftError
from weft.core.parts import Parts
from weft.core.tensor import Tensor
from weft.interop.files import MOST_DEPTH
from weft.interop.safetensors import METADATA, is_native

__all__ = ["Packed", "unpacked"]

Array = np.ndarray[Any, Any]

_SEQUENCES: dict[str, type] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
_IS_INFINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_KEYS = (str, int, float, bool, type(None), bytes, complex)


class Packed:
    """A tree as JSON, and its arrays by name.

    The arrays are those of now: no later change of a tensor reaches them, as arrays that others
    hold are not written. With `copies` that holds for arrays of NumPy, too.
    """

    def __init__(self, obj: Any, copies: bool = False) -> None:
        self.arrays: dict[str, Array] = {}
        #: The arrays that are parts of this rank of a whole.
        self.parts: dict[str, Parts] = {}
        self._copies = copies
        #: By id: the name of each tensor and array, and the object itself, so that it lives on.
        self._known: dict[int, tuple[str, Any]] = {}
        self._path: list[int] = []
        self.tree = self._packed(obj, "")

    def flat_names(self) -> list[str] | None:
        """The names of a dict of tensors, if names and tensors are all that there is to say."""
        pairs = self.tree["dict"] if isinstance(self.tree, dict) and "dict" in self.tree else None
        if not pairs or any(value != {"tensor": key} for key, value in pairs):
            return None
        return [key for key, _ in pairs]

    def _packed(self, obj: Any, name: str) -> Any:
        if isinstance(obj, Tensor):
            return self._tensor(obj, name)
        if isinstance(obj, np.ndarray):
            return self._array(obj, name)
        found = _plain(obj.item() if isinstance(obj, np.generic) else obj)
        if found is not None:
            return found[0]
        kind = next((kind for kind, cls in _SEQUENCES.items() if isinstance(obj, cls)), None)
        if kind is None and not isinstance(obj, dict):
            raise DTypeError(
                f"{name or 'the object'} is a {type(obj).__name__}: only tensors, arrays, numbers "
                "and text in dicts, lists, tuples and sets are saved",
                op="save",
                hint="save model.state_dict(), optimizer.state_dict() and your numbers",
            )
        if len(self._path) == MOST_DEPTH:
            inside = "contains itself" if id(obj) in self._path else "is nested too deeply"
            raise FileError(f"{name[:80]}… {inside}", op="save")
        self._path.append(id(obj))
        if kind is None:
            parts = [[_key(k, name), self._packed(v, _joined(name, k))] for k, v in obj.items()]
        else:
            parts = [self._packed(v, _joined(name, i)) for i, v in enumerate(obj)]
        self._path.pop()
        return {kind or "dict": parts}

    def _tensor(self, tensor: Tensor, name: str) -> Any:
        dtype, data = tensor.dtype, tensor._data
        if id(tensor) not in self._known:
            # A view of the tensor's own array: as long as it lives, that is not written.
            whole = data.__class__ is not Parts
            array = Tensor.numpy(Tensor.detach(tensor)) if whole else data.own
            self._known[id(tensor)] = self._stored(array, name or "tensor"), tensor
            if not whole:
                if data.cuts.terms:
                    raise DistributedError(f"{name} is a sum whose terms lie on ranks", op="save")
                self.parts[self._known[id(tensor)][0]] = data
        entry: dict[str, Any] = {"tensor": self._known[id(tensor)][0]}
        if not is_native(dtype.numpy):
            entry["dtype"] = dtype.name
        if tensor.requires_grad and tensor.is_leaf:
            entry["learns"] = True
        if data.__class__ is Parts:
            entry["parts"] = [list(names) for names in data.cuts.axes]
        return entry

    def _array(self, array: Array, name: str) -> Any:
        dtype = dtype_of_numpy(array.dtype)  # others are refused
        if id(array) not in self._known:
            kept = array.astype(dtype.numpy, copy=self._copies)
            self._known[id(array)] = self._stored(kept, name or "array"), array
        entry: dict[str, Any] = {"array": self._known[id(array)][0]}
        return entry if is_native(dtype.numpy) else {**entry, "dtype": dtype.name}

    def _stored(self, array: Array, name: str) -> str:
        """Put an array aside, under a name that is free."""
        if not is_native(array.dtype):
            like = np.float64 if array.dtype == complex128.numpy else np.uint8
            array = np.ascontiguousarray(array).reshape((*array.shape, 1)).view(like)
        name = name.encode("utf-8", "replace").decode()  # JSON has no halves of surrogates
        while name in self.arrays or name == METADATA:
            name += "_"
        self.arrays[name] = array
        return name


def _joined(name: str, key: Any) -> str:
    return f"{name}.{key}" if name else str(key)


def _plain(value: Any) -> tuple[Any] | None:
    """A value that is no container, in JSON; None for all others."""
    if value is None or isinstance(value, (bool, str)):
        return (str(value) if isinstance(value, str) else value,)
    if isinstance(value, int):
        return (int(value) if -(1 << 63) <= value < 1 << 64 else {"int": hex(value)},)
    if isinstance(value, float):
        return (float(value) if math.isfinite(value) else {"float": repr(float(value))},)
    if isinstance(value, complex):
        return ({"complex": [_plain(part)[0] for part in (value.real, value.imag)]},)  # type: ignore[index]
    if isinstance(value, (bytes, bytearray)):
        return ({"bytes": base64.b64encode(value).decode()},)
    if isinstance(value, DType):
        return ({"dtype": value.name},)
    return None


def _key(key: Any, name: str) -> Any:
    if isinstance(key, np.generic):
        key = key.item()
    if type(key) is tuple:
        return {"tuple": [_key(part, name) for part in key]}
    found = _plain(key) if isinstance(key, _KEYS) else None
    if found is None:
        raise DTypeError(
            f"a key of {name or 'the dict'} is a {type(key).__name__}: keys are numbers and text",
            op="save",
        )
    return found[0]


# --- and back ------------------------------------------------------------------------------------


#: A tensor of which this rank has a part, if it has: name, what cuts its axes, how its array is
#: made of what is stored.
MakeParts = Callable[[str, list[list[str]], Callable[[Array], Array]], Tensor | None]


class _Unpacked:
    def __init__(
        self,
        arrays: Mapping[str, Array],
        make: Callable[[Array], Tensor],
        make_parts: MakeParts | None,
    ) -> None:
        self.arrays = arrays
        self.make = make
        self.make_parts = make_parts
        self.made: dict[str, Any] = {}
        self.depth = 0

    def value(self, tree: Any) -> Any:
        if not isinstance(tree, dict):
            if isinstance(tree, list):
                raise ValueError("a list without a kind")
            return tree
        kind = next(iter(tree))
        given = tree[kind]
        if kind in ("tensor", "array"):
            return self.leaf(kind, given, tree)
        if kind in _VALUES:
            return _VALUES[kind](given)
        if self.depth == MOST_DEPTH:
            raise ValueError("nested too deeply")
        self.depth += 1
        if kind == "dict":
            found: Any = {self.value(key): self.value(part) for key, part in given}
            if len(found) != len(given):
                raise ValueError("a key stands twice in a dict")
        else:
            found = _SEQUENCES[kind]([self.value(part) for part in given])
        self.depth -= 1
        return found

    def leaf(self, kind: str, name: str, tree: dict[str, Any]) -> Any:
        if name in self.made:
            return self.made[name]

        def typed(array: Array) -> Array:
            if "dtype" not in tree:
                return array
            array = np.ascontiguousarray(array).view(_registered(tree["dtype"]).numpy)[..., 0]
            return array if array.flags.aligned else array.copy()

        if kind == "array":
            self.made[name] = typed(self.arrays[name]).copy()
            return self.made[name]
        tensor = None
        if "parts" in tree and self.make_parts is not None:
            tensor = self.make_parts(name, tree["parts"], typed)
        if tensor is None:
            tensor = self.make(typed(self.arrays[name]))
        self.made[name] = tensor
        if tree.get("learns"):
            tensor.requires_grad = True
        return tensor


def _registered(name: Any) -> DType:
    if not isinstance(name, str) or name not in DTYPES:
        raise FileError(
            f"it has a tensor of dtype {name!r:.40}, which is not known here",
            op="load",
            hint="register the dtype first: weft.register_dtype",
        )
    return DTYPES[name]


def _float(value: Any) -> float:
    return _IS_INFINITE[value["float"]] if isinstance(value, dict) else float(value)


_VALUES: dict[str, Callable[[Any], Any]] = {
    "float": _IS_INFINITE.__getitem__,
    "int": lambda digits: int(digits, 16),
    "complex": lambda parts: complex(*map(_float, parts)),
    "bytes": lambda text: base64.b64decode(text, validate=True),
    "dtype": lambda name: as_dtype(str(name)),
}


def unpacked(
    tree: Any,
    arrays: Mapping[str, Array],
    make: Callable[[Array], Tensor],
    make_parts: MakeParts | None = None,
) -> tuple[Any, list[str]]:
    """The value of a tree, and the names of arrays that it does not use."""
    reader = _Unpacked(arrays, make, make_parts)
    try:
        value = reader.value(tree)
    except FileError:
        raise
    except (WeftError, LookupError, TypeError, ValueError, OverflowError, StopIteration) as error:
        raise FileError(
            f"its structure cannot be read ({type(error).__name__}: {str(error)[:80]})", op="load"
        ) from None
    return value, [name for name in arrays if name not in reader.made]
