"""Files that `torch.save` writes: zip files of a pickle and of storages, read without PyTorch.

Of the pickle, tensors, parameters and plain containers are understood, and nothing is run. Names
that are not in the tables of `weft.interop.torch_names` are refused. A tensor is a strided view of
its storage, which is mapped like any other part of the file.
"""

from __future__ import annotations

import functools
import math
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.base.errors import FileError, SkippedWarning
from weft.base.source import warn_user
from weft.core.tensor import Tensor
from weft.interop.files import MOST_DEPTH, Source
from weft.interop.pickle_reader import Function, read_pickle
from weft.interop.safetensors import dtype_named
from weft.interop.torch_names import DTYPES, FUNCTIONS, STORAGES, TENSOR_CLASSES
from weft.interop.zip_records import Record, read_records

__all__ = ["Skipped", "is_one", "read"]

Array = np.ndarray[Any, Any]

_NEWEST = 10  # the version of the format
_ZIP = b"PK\x03\x04"
#: How files begin that PyTorch wrote before 1.6: with a pickle of a magic number.
_LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_IS_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_DATA = "data.pkl"
#: A tensor that repeats its elements may have many more than its storage; NumPy must count them.
_MOST_ELEMENTS = 1 << 48


class Skipped:
    """Stands for an object that was not loaded: it has only the name of its class."""

    takes_anything = True

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<skipped {self.name}>"


@dataclass(eq=False)
class _Storage:
    """Numbers in the file: of a tensor, or of several."""

    name: str
    dtype: str
    count: int


@dataclass(eq=False)
class _Rebuilt:
    """A tensor, before it is made one."""

    array: Array
    learns: bool


def is_one(source: Source) -> bool:
    """Whether this is a zip file; what else Python or PyTorch may have written is refused."""
    head = source.part(0, min(len(_LEGACY), source.size))
    if head == _LEGACY:
        raise source.error(
            "PyTorch wrote it in the format that it had before version 1.6",
            "load it with PyTorch and save it again: torch.save(torch.load(path), path)",
        )
    if _IS_PICKLE.match(head):
        raise source.error(
            "it is a pickle, which runs code when it is opened",
            "in PyTorch, write it with torch.save(state_dict, path)",
        )
    return head.startswith(_ZIP)


def read(source: Source, make: Callable[[Array], Tensor], strict: bool = True) -> Any:
    """The value that `torch.save` was given, with tensors that `make` makes of arrays."""
    return _File(source, make, strict).value()


class _File:
    def __init__(self, source: Source, make: Callable[[Array], Tensor], strict: bool) -> None:
        self.source = source
        self.make = make
        self.strict = strict
        self.skipped: dict[str, None] = {}
        self.records = read_records(source)
        names = [name for name in self.records if name.endswith("/" + _DATA)]
        if len(names) != 1 or names[0].count("/") != 1:
            raise source.error("it is a zip file, but none that torch.save wrote")
        self.folder = names[0].removesuffix(_DATA)
        self._check()
        self.storages: dict[tuple[str, str], Array] = {}

    def _check(self) -> None:
        if self.folder + "constants.pkl" in self.records:
            raise self.source.error("it is a program of TorchScript, and no file of weights")
        packed = next((name for name, record in self.records.items() if record.is_packed), None)
        if packed is not None:
            raise self.source.error(f"its record {packed!r:.80} is compressed or encrypted")
        version = self._text("version", b"3").strip()
        if not version.isdigit() or not 1 <= int(version[:9]) <= _NEWEST:
            raise self.source.error(f"its format has version {version!r:.20}, which is not known")
        if self._text("byteorder", b"little") != b"little":
            raise self.source.error("its numbers have their highest byte first")

    def _text(self, name: str, default: bytes) -> bytes:
        record = self.records.get(self.folder + name)
        return default if record is None else self._whole(record)

    def _whole(self, record: Record) -> bytes:
        self._check_record(record)
        return self.source.part(record.start, record.end)

    def _check_record(self, record: Record) -> None:
        found = self.source.checksum(record.start, record.end) if record.checksum else 0
        if found != record.checksum:
            raise self.source.error("it is damaged: the checksum of a record is another")

    def value(self) -> Any:
        data = self._whole(self.records[self.folder + _DATA])
        try:
            found = read_pickle(data, self.source.size, self._find, self._stored, self._build)
            value = self._finished(found, {}, 0)
        except FileError as error:
            raise self.source.error(error.message, error.hint) from None
        if self.skipped:
            what = ", ".join(list(self.skipped)[:10])
            warn_user(f"{self.source.name}: skipped {what}", SkippedWarning)
        return value

    # --- names --------------------------------------------------------------------------------

    def _find(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if full in _TENSOR_FUNCTIONS:
            return Function(full, functools.partial(_TENSOR_FUNCTIONS[full], self))
        if full in FUNCTIONS:
            return Function(full, FUNCTIONS[full])
        if full in TENSOR_CLASSES:
            return Function(full)
        if module in ("torch", "torch.storage") and name in STORAGES:
            return Function(full, None, STORAGES[name])
        if module == "torch" and name in DTYPES:
            return Function(full, None, dtype_named(DTYPES[name]))
        self._refused(full)
        return Function(full, lambda *_arguments: Skipped(full))

    def _refused(self, name: str) -> Skipped:
        """What stands for an object that is not loaded; unless that is an error."""
        if self.strict:
            raise FileError(
                f"{name[:120]} is refused: it is neither a tensor nor a plain value",
                op="load",
                hint="strict=False replaces such objects by their names; or save a state_dict",
            )
        self.skipped[name] = None
        return Skipped(name)

    def _build(self, target: Any, state: Any) -> None:
        """Attributes of an object. Only those of a state dict are expected: its `_metadata`, with
        the version of each module."""
        if isinstance(target, OrderedDict) and isinstance(state, dict):
            self._note(state, "_metadata")
        elif not isinstance(target, Skipped):
            raise TypeError(f"a {type(target).__name__} has attributes")

    def _note(self, attributes: Any, *expected: str) -> None:
        """Say that the attributes of an object were passed over."""
        if isinstance(attributes, dict):
            for name in attributes:
                if name not in expected:
                    self.skipped[f"the attribute {name!r:.40}"] = None
        elif attributes:
            self.skipped["attributes of a tensor"] = None

    # --- tensors ------------------------------------------------------------------------------

    def _stored(self, said: Any) -> Any:
        kind, storage, key, _place, count = said
        if kind != "storage" or not isinstance(storage, Function):
            raise ValueError("an id that is none of a storage")
        if storage.value is None:
            return self._refused(storage.name)
        if not isinstance(key, str) or type(count) is not int or count < 0:
            raise ValueError("an id that is none of a storage")
        return _Storage(f"{self.folder}data/{key}", storage.value, count)

    def _elements(self, storage: _Storage, dtype: np.dtype[Any], count: int) -> Array:
        """All elements of a storage."""
        known = self.storages.get((storage.name, dtype.name))
        if known is not None:
            return known
        record = self.records.get(storage.name)
        if record is None or record.end - record.start != count * dtype.itemsize:
            raise FileError(f"the record {storage.name!r:.80} is missing, or cut off", op="load")
        if not self.source.mapped:
            self._check_record(record)
        found = self.source.array(dtype, (count,), record.start)
        self.storages[storage.name, dtype.name] = found
        return found

    def _tensor(
        self,
        storage: Any,
        offset: Any,
        shape: Any,
        strides: Any,
        learns: Any = False,
        hooks: Any = None,
        flags: Any = None,
    ) -> _Rebuilt:
        if not isinstance(storage, _Storage):
            raise TypeError("a tensor without a storage")
        dtype = dtype_named(storage.dtype).numpy
        return self._view(
            storage, dtype, storage.count, offset, shape, strides, learns, hooks, flags
        )

    def _tensor_of_bytes(
        self,
        storage: Any,
        offset: Any,
        shape: Any,
        strides: Any,
        learns: Any,
        hooks: Any,
        dtype: Any,
        flags: Any = None,
    ) -> _Rebuilt:
        if not isinstance(storage, _Storage) or not isinstance(dtype, Function):
            raise TypeError("a tensor without a storage")
        kind = dtype.value.numpy
        count = storage.count // kind.itemsize
        return self._view(storage, kind, count, offset, shape, strides, learns, hooks, flags)

    def _view(
        self,
        storage: _Storage,
        dtype: np.dtype[Any],
        count: int,
        offset: Any,
        shape: Any,
        strides: Any,
        learns: Any,
        hooks: Any,
        flags: Any,
    ) -> _Rebuilt:
        numbers = (offset, *shape, *strides)
        if len(shape) != len(strides) or not all(type(n) is int and n >= 0 for n in numbers):
            raise ValueError("a tensor has a shape or strides that are none")
        self._note(hooks)
        flags = flags or {}
        if not isinstance(flags, dict) or not set(flags) <= {"conj", "neg"}:
            raise ValueError("a tensor has flags that are not known")
        elements = self._elements(storage, dtype, count)
        size = math.prod(shape)
        if not size:
            return _Rebuilt(np.empty(shape, dtype), bool(learns))
        last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
        if last >= count or size >= _MOST_ELEMENTS:
            raise ValueError("a tensor lies beyond the end of its storage")
        part = elements[offset : last + 1]
        steps = tuple(step * dtype.itemsize for step in strides)
        array = part.reshape(shape) if size == last + 1 - offset else part
        if array.shape != shape or array.strides != steps:
            array = np.lib.stride_tricks.as_strided(part, shape, steps, writeable=False)
        if any(flags.values()):
            if size > count:
                raise ValueError("a tensor is larger than its storage")
            array = np.conj(array) if flags.get("conj") else array
            array = np.negative(array) if flags.get("neg") else array
        return _Rebuilt(array, bool(learns))

    def _parameter(self, tensor: Any, learns: Any, hooks: Any, state: Any = None) -> _Rebuilt:
        if not isinstance(tensor, _Rebuilt):
            raise TypeError("a parameter without a tensor")
        self._note(hooks)
        self._note(state)
        return _Rebuilt(tensor.array, bool(learns))

    def _of_type(self, function: Any, kind: Any, arguments: Any, state: Any) -> Any:
        if not isinstance(function, Function) or function.call is None:
            raise TypeError("a tensor that nothing makes")
        if not isinstance(kind, Function):
            raise TypeError("a tensor of a class that is none")
        found = function.call(*arguments)
        if not isinstance(found, _Rebuilt):
            raise TypeError("a tensor that is none")
        self._note(state, "persistent", "_is_buffer", "_is_param")
        return found

    # --- the value ----------------------------------------------------------------------------

    def _finished(self, value: Any, made: dict[int, Any], depth: int) -> Any:
        """A value with tensors in place of what stands for them. `made` has what was met before:
        the original, so that its id stays its own, and what became of it."""
        if isinstance(value, _Rebuilt):
            if id(value) not in made:
                made[id(value)] = value, self._made(value)
            return made[id(value)][1]
        if isinstance(value, Function) and value.value is not None and "Storage" not in value.name:
            return value.value  # a dtype
        if isinstance(value, (Function, _Storage)):
            name = value.name if isinstance(value, Function) else "a storage without a tensor"
            return self._refused(name)
        if not isinstance(value, (list, tuple, dict)):
            return value
        if id(value) in made:
            if made[id(value)] is None:
                raise FileError("a value contains itself", op="load")
            return made[id(value)][1]
        if depth == MOST_DEPTH:
            raise FileError("its values are nested too deeply", op="load")
        made[id(value)] = None
        found: Any
        if isinstance(value, dict):
            found = type(value)()
            for key, part in value.items():
                found[key] = self._finished(part, made, depth + 1)
        else:
            found = type(value)(self._finished(part, made, depth + 1) for part in value)
        made[id(value)] = value, found
        return found

    def _made(self, rebuilt: _Rebuilt) -> Any:
        tensor = self.make(rebuilt.array)
        if rebuilt.learns and isinstance(tensor, Tensor):
            tensor.requires_grad = True
        return tensor


#: What makes tensors.
_TENSOR_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor": _File._tensor,
    "torch._utils._rebuild_tensor_v2": _File._tensor,
    "torch._utils._rebuild_tensor_v3": _File._tensor_of_bytes,
    "torch._utils._rebuild_parameter": _File._parameter,
    "torch._utils._rebuild_parameter_with_state": _File._parameter,
    "torch._tensor._rebuild_from_type_v2": _File._of_type,
}
