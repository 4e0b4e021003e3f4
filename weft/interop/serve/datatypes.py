"""The datatypes of the Open Inference Protocol, and arrays as lists of JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.base import dtypes
from weft.base.dtypes import DType

__all__ = ["DATATYPES", "NAMES", "BadRequest", "array_of", "json_of"]

Array = NDArray[Any]

#: Those of the protocol but BYTES, which is text: no program takes any.
DATATYPES: dict[str, DType] = {
    "BOOL": dtypes.bool,
    "UINT8": dtypes.uint8,
    "UINT16": dtypes.uint16,
    "UINT32": dtypes.uint32,
    "UINT64": dtypes.uint64,
    "INT8": dtypes.int8,
    "INT16": dtypes.int16,
    "INT32": dtypes.int32,
    "INT64": dtypes.int64,
    "FP16": dtypes.float16,
    "FP32": dtypes.float32,
    "FP64": dtypes.float64,
    "BF16": dtypes.bfloat16,
}
NAMES = {dtype: name for name, dtype in DATATYPES.items()}

#: What JSON says of an element, by the kind of its dtype.
_SAID: dict[str, tuple[frozenset[type], str]] = {
    "bool": (frozenset({bool}), "true or false"),
    "int": (frozenset({int}), "an integer"),
    "uint": (frozenset({int}), "an integer"),
    "float": (frozenset({int, float}), "a number"),
}


class BadRequest(Exception):
    """A request that is answered with an error: `status` is that of HTTP."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def array_of(data: Any, shape: tuple[int, ...], dtype: DType, name: str) -> Array:
    """The array that a JSON list says: flat in row-major order, or nested as the shape is."""
    flat = _flat(data, shape, name)
    kinds, expected = _SAID[dtype.kind]
    if not kinds.issuperset(map(type, flat)):
        number = next(i for i, x in enumerate(flat) if type(x) not in kinds)
        raise BadRequest(
            f"input {name}: element {number} is {flat[number]!r:.40}, where {NAMES[dtype]} is "
            f"{expected}"
        )
    if dtype.kind in ("int", "uint"):
        _check_range(flat, dtype, name)
    try:
        if dtype.kind != "float":
            return np.array(flat, dtype=dtype.numpy).reshape(shape)
        wide = np.array(flat, dtype=np.float64)
    except OverflowError:  # an int beyond float64
        wide = np.array([math.inf])
    with np.errstate(over="ignore"):
        made = wide.astype(dtype.numpy)
    if not np.isfinite(made).all():  # JSON has no infinity: the text was 1e999
        raise BadRequest(f"input {name}: a number is out of range of {NAMES[dtype]}")
    return made.reshape(shape)


def _flat(data: Any, shape: tuple[int, ...], name: str) -> list[Any]:
    if type(data) is not list:
        raise BadRequest(f"input {name}: its data is {data!r:.40}, where a list is expected")
    count = math.prod(shape)
    if not data or type(data[0]) is not list:
        if len(data) != count and not (len(shape) > 1 and not data and not count):
            raise BadRequest(
                f"input {name}: {len(data)} elements, where its shape {list(shape)} has {count}"
            )
        return data
    flat: list[Any] = [data]
    for size in shape:
        if any(type(part) is not list or len(part) != size for part in flat):
            raise BadRequest(
                f"input {name}: its lists are not nested as its shape {list(shape)} says"
            )
        flat = list(chain.from_iterable(flat))
    return flat


def _check_range(flat: Sequence[int], dtype: DType, name: str) -> None:
    if not flat:
        return
    limits = np.iinfo(dtype.numpy)
    for found in (min(flat), max(flat)):
        if not limits.min <= found <= limits.max:
            shown = str(found) if found.bit_length() < 100 else f"{found.bit_length()} bits long"
            raise BadRequest(f"input {name}: an element is {shown}, out of range of {NAMES[dtype]}")


def json_of(array: Array, dtype: DType, name: str) -> list[Any]:
    """The elements in row-major order, for JSON, which has neither NaN nor infinities."""
    if dtype.kind == "float":
        if not np.isfinite(array).all():
            raise BadRequest(
                f"output {name} has NaN or infinite elements, which JSON cannot say: ask for it "
                'with the parameter "binary_data": true',
                406,
            )
        if dtype is dtypes.bfloat16:
            array = array.astype(np.float32)
    found: list[Any] = array.ravel().tolist()
    return found
