"""The memory layout of lists, arrays and tensors, for generated code.

Asking an array for its address in Python costs more than a small kernel. Generated code reads the
address from the object, at an offset that is found here by searching objects with known contents.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.core.ownership import is_known
from weft.core.tensor import Tensor

__all__ = ["Places", "places"]


@dataclass(frozen=True, slots=True)
class Places:
    """Offsets in bytes from the start of an object.

    items        list: the address of its items
    data, flags  array: the address of its data, and NumPy's flags
    ndim, shape  array: the number of its axes (i32), and the address of their sizes
    count, kind  any object: its reference count, and its class
    buffer       ctypes array: the address of its elements
    tensor_*     Tensor: its slots
    """

    items: int
    data: int
    flags: int
    ndim: int
    shape: int
    count: int
    kind: int
    buffer: int
    tensor_data: int
    tensor_node: int
    tensor_grad: int
    tensor_weak: int


@functools.cache
def places() -> Places | None:
    """All offsets; None if one is not found, or if fields may change while they are read."""
    if not is_known():
        return None
    tensor = Tensor()
    slots: list[Any] = [object(), object(), object()]
    tensor._data, tensor._node, tensor._grad = slots
    weak = weakref.ref(tensor)
    buffer = (ctypes.c_int64 * 2)()
    found = (
        *_list_and_array(),
        *_head(),
        _first(buffer, ctypes.addressof(buffer)),
        *[_first(tensor, id(slot)) for slot in slots],
        Tensor.__weakrefoffset__,  # before the start of the object, since Python 3.12
    )
    if None in found or _word(tensor, found[-1] or 0) != id(weak):
        return None
    return Places(*found)  # type: ignore[arg-type]


def _list_and_array() -> tuple[int | None, ...]:
    """The offsets of a list's items, and of an array's data, flags, number of axes and shape."""
    items: list[Any] = [np.arange(3), np.arange(12).reshape(3, 4).T, np.zeros((5, 1, 7, 2))]
    size = list.__basicsize__
    at_items = _only(
        at
        for at in range(16, size, 8)
        if _word(items, at) > 4096 and _is_table(_word(items, at), [id(item) for item in items])
    )
    end = np.ndarray.__basicsize__
    at_data = _only(
        at for at in range(16, end, 8) if all(_word(item, at) == item.ctypes.data for item in items)
    )
    flag = ctypes.c_int32.from_address

    def number(wanted: Callable[[Any], int]) -> int | None:
        return _only(
            at
            for at in range(16, end, 4)
            if all(flag(id(item) + at).value == wanted(item) for item in items)
        )

    # The strides follow the shape, in the object as in memory. No other word is used as an address.
    at_shape = _only(
        at
        for at in range(16, end - 8, 8)
        if all(_word(item, at + 8) == _word(item, at) + 8 * item.ndim for item in items)
        and all(_is_table(_word(item, at), [*item.shape, *item.strides]) for item in items)
    )
    return (
        at_items,
        at_data,
        number(lambda item: item.flags.num),
        number(lambda item: item.ndim),
        at_shape,
    )


def _head() -> tuple[int | None, int | None]:
    """The offsets of the reference count and the class of any object."""
    things: list[Any] = [np.empty(1) for _ in range(3)]
    held = [things[i] for i in range(3) for _ in range(i)]
    starts = [id(things[i]) for i in range(3)]
    word = ctypes.c_size_t.from_address
    count = _only(
        at for at in (0, 8, 16) if [word(start + at).value for start in starts] == [1, 2, 3]
    )
    kind = _only(at for at in (0, 8, 16, 24) if word(starts[0] + at).value == id(np.ndarray))
    del held
    return count, kind


def _word(thing: Any, at: int) -> int:
    return ctypes.c_size_t.from_address(id(thing) + at).value


def _first(thing: Any, word: int) -> int | None:
    """The first offset of a word in an object."""
    size = type(thing).__basicsize__
    return next((at for at in range(16, size, 8) if _word(thing, at) == word), None)


def _only(found: Iterable[int]) -> int | None:
    """The offset, if exactly one was found; else None."""
    places = [*found]
    return places[0] if len(places) == 1 else None


def _is_table(address: int, wanted: list[int]) -> bool:
    if address % 8:
        return False
    return all(
        ctypes.c_size_t.from_address(address + 8 * i).value == want for i, want in enumerate(wanted)
    )
