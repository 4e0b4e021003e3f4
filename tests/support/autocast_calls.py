"""Calls of PyTorch's samples under `autocast`: in which dtypes their results are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from op_db_calls import array_of, stored_calls

#: Of the floating arguments.
DTYPES = ("float32", "bfloat16")


def calls_of(name: str) -> list[dict[str, Any]]:
    """The stored calls of an op that are with floats."""
    return [call for call in stored_calls()[name] if call["dtype"] == "float64"]


def _value(data: Any, library: Any, dtype: str) -> Any:
    """A stored argument in a library, its floats in a dtype."""
    if isinstance(data, list):
        return [_value(x, library, dtype) for x in data]
    if not isinstance(data, dict):
        return data
    kind, held = next(iter(data.items()))
    if kind == "tensor":
        array = array_of(held).copy()
        tensor = library.tensor(array)
        narrower = {"f": getattr(library, dtype), "c": library.complex64}.get(array.dtype.kind)
        return tensor if narrower is None else tensor.to(narrower)
    return _PLAIN[kind](held, library, dtype)


_PLAIN: dict[str, Callable[[Any, Any, str], Any]] = {
    "tuple": lambda held, *more: tuple([_value(x, *more) for x in held]),
    "slice": lambda held, *more: slice(*[_value(x, *more) for x in held]),
    "float": lambda held, *_: float(held),
    "complex": lambda held, *_: complex(*held),
    "ellipsis": lambda *_: Ellipsis,
    "dtype": lambda held, library, _: getattr(library, held.replace("float64", "float32")),
    "device": lambda *_: "cpu",
}


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [x for part in value for x in _tensors(part)]
    return [value] if hasattr(value, "requires_grad") else []


def results(library: Any, function: Any, call: dict[str, Any], dtype: str) -> list[Any]:
    """What a call gives under autocast to bfloat16."""
    args = [_value(x, library, dtype) for x in call["args"]]
    kwargs = {key: _value(x, library, dtype) for key, x in call["kwargs"].items()}
    with library.autocast("cpu", dtype=library.bfloat16):
        return _tensors(function(*args, **kwargs))


def dtypes_of_results(library: Any, function: Any, call: dict[str, Any], dtype: str) -> Any:
    """The names of the dtypes of the results; None where the call fails."""
    try:
        return [str(x.dtype).split(".")[-1] for x in results(library, function, call, dtype)]
    except (RuntimeError, NotImplementedError, TypeError, ValueError, np.linalg.LinAlgError):
        return None
