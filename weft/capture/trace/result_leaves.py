"""The leaves of a result: which are constants under the guards, and sizes as numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import BuiltinFunctionType
from typing import Any

import numpy as np

from weft.base.device import Device
from weft.base.dim_algebra import Dim
from weft.base.dtypes import DType
from weft.base.pytree import tree_unflatten
from weft.capture.watch.texts import TextParts, plain_keys
from weft.core.tensor import Tensor
from weft.ir.signature import Given, Made, Signature
from weft.record.control.nested import size_number

__all__ = ["as_result", "is_plain", "result_of", "with_plain_keys"]


def python_number_of(tensor: Tensor) -> Any:
    """The number that the graph has computed, as Python's own."""
    return tensor.numpy().item()


def as_result(value: Any) -> Any:
    """A symbolic size as a Python number that the graph gives; a text that no call knows before
    the graph is run, as it is in this one."""
    if value.__class__ is TextParts and not value.is_known:
        return str(value)
    return size_number(value) if value.__class__ is Dim else value


def with_plain_keys(result: Any) -> Any:
    """A result with strings in place of the texts that are keys in it."""
    if isinstance(result, dict):
        plain_keys(result)
    if isinstance(result, (dict, list, tuple)):
        for part in result.values() if isinstance(result, dict) else result:
            with_plain_keys(part)
    return result


_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...), np.dtype)


def is_plain(value: Any) -> bool:
    """Whether a leaf is a constant under the guards: a number, a string, a class."""
    return isinstance(value, (*_PLAIN, type, DType, Device, BuiltinFunctionType))


def result_of(
    signature: Signature,
    made: Sequence[Any],
    outside: Callable[[int], Any],
    number: Callable[[Tensor], Any] = python_number_of,
) -> Any:
    """What a call returns, of its outputs and of the objects at places outside."""
    leaves: list[Any] = []
    for leaf in signature.leaves:
        if isinstance(leaf, Made):
            leaves.append(number(made[leaf.output]) if leaf.is_number else made[leaf.output])
        else:
            leaves.append(outside(leaf.place) if isinstance(leaf, Given) else leaf.value)
    return tree_unflatten(signature.result, leaves)
