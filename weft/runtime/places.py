"""Where lists, arrays and tensors keep what generated code reads of them.

Asking an array for its address from Python costs more than a small kernel. Generated code reads it
from the object, at a place that is found here by looking at objects whose contents are known.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.core.tensor import Tensor

__all__ = ["Places", "list_places", "places"]


@dataclass(frozen=True, slots=True)
class Places:
    """Distances in bytes from the beginning of an object.

    items        of a list: the address of its items
    data, flags  of an array: its address, and NumPy's flags
    count        of any object: the number of references to it
    buffer       of a ctypes array: the address of its elements
    tensor_*     of a Tensor: its slots
    """

    items: int
    data: int
    flags: int
    count: int
    buffer: int
    tensor_data: int
    tensor_node: int
    tensor_grad: int
    tensor_weak: int


@functools.cache
def places() -> Places | None:
    """All of them; None where references are not counted as a single thread would."""
    if sys.implementation.name != "cpython" or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None
    items, data, flags = list_places()
    tensor = Tensor()
    slots: list[Any] = [object(), object(), object()]
    tensor._data, tensor._node, tensor._grad = slots
    weak = weakref.ref(tensor)
    buffer = (ctypes.c_int64 * 2)()
    held = [object()] * 3
    start = id(held[0])
    counted = [at for at in (0, 8, 16) if ctypes.c_size_t.from_address(start + at).value == 3]
    found = (
        _first(buffer, ctypes.addressof(buffer)),
        *[_first(tensor, id(slot)) for slot in slots],
        Tensor.__weakrefoffset__,  # before the beginning, from Python 3.12 on
    )
    if len(counted) != 1 or None in found or _word(tensor, found[-1] or 0) != id(weak):
        return None
    return Places(items, data, flags, counted[0], *found)  # type: ignore[arg-type]


@functools.cache
def list_places() -> tuple[int, int, int]:
    """Where a list keeps the address of its items, an array that of its data, and its flags."""
    items: list[Any] = [np.arange(3), np.arange(12).reshape(3, 4).T]
    at_items = next(
        at
        for at in range(16, 64, 8)
        if _word(items, at) > 4096 and _is_table(_word(items, at), [id(item) for item in items])
    )
    at_data = next(
        at for at in range(16, 64, 8) if all(_word(item, at) == item.ctypes.data for item in items)
    )
    dense, turned = items
    flag = ctypes.c_int32.from_address
    at_flags = next(
        at
        for at in range(at_data + 8, 128, 4)
        if flag(id(dense) + at).value == dense.flags.num
        and flag(id(turned) + at).value == turned.flags.num
    )
    return at_items, at_data, at_flags


def _word(thing: Any, at: int) -> int:
    return ctypes.c_size_t.from_address(id(thing) + at).value


def _first(thing: Any, word: int) -> int | None:
    """Where in an object a word stands."""
    size = type(thing).__basicsize__
    return next((at for at in range(16, size, 8) if _word(thing, at) == word), None)


def _is_table(address: int, wanted: list[int]) -> bool:
    if address % 8:
        return False
    return all(
        ctypes.c_size_t.from_address(address + 8 * i).value == want for i, want in enumerate(wanted)
    )
