"""Stacks that outlive a run: values that a loop saved for a later backward.

The cells stay where the run created them (`weft.codegen.control.stacks`). An owner frees their
memory when nobody needs it any more. The interpreter can pop them, too.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.errors import IndexError
from weft.codegen.contract import ELEMENT, PAYLOAD, SUM, ZEROS
from weft.core.tensor import Tensor, wrap
from weft.ir.types import StackType, TensorType, Type
from weft.ops.cards import FULL
from weft.ops.stacks import Sum, is_stack

__all__ = ["NativeStack", "Owner", "any_interpreted", "class_of"]


class Owner:
    """The memory of a run; it is freed with the last stack in it.

    others   owners of the run's input stacks, because its own stacks may be pushed on top of those
    """

    def __init__(
        self, chunk: int, give_back: Callable[[int], None], library: Any, others: Sequence[Owner]
    ) -> None:
        self._chunk = chunk
        self._give_back = give_back
        self._library = library  # the code of `give_back`
        self._others = others
        library.hold()

    def __del__(self) -> None:
        if self._chunk:
            self._give_back(self._chunk)
        self._library.release()


class NativeStack:
    """A stack of a native run; `_data` holds the address of its top cell."""

    __slots__ = ("_data", "owner", "type")

    def __init__(self, data: Any, kind: StackType, owner: Owner) -> None:
        self._data = data
        self.type = kind
        self.owner = owner

    @property
    def summands(self) -> Sum | None:
        """The two stacks whose sum this is."""
        cell = int(self._data[0])
        kind, a, b = _words(cell) if cell else (ELEMENT, 0, 0)
        return Sum(self._stack(a), self._stack(b)) if kind == SUM else None

    def popped(self, run: Any) -> tuple[Any, Any]:
        """The stack below the top, and the top, for the interpreter."""
        cell = int(self._data[0])
        if not cell:
            raise IndexError("the stack is empty", op="stack_pop")
        kind, a, b = _words(cell)
        if kind == ELEMENT:
            return self._stack(a), self._element(cell + PAYLOAD)
        if kind == ZEROS:
            return self, self._zero(run)
        if kind == SUM:
            return Sum(self._stack(a), self._stack(b)).popped(run)
        if b == 0:  # the one element among zeros; `a` is its address
            return _ZerosOf(self.type), self._element(a)
        return _Only(self, b - 1, a), self._zero(run)

    def _stack(self, cell: int) -> NativeStack:
        return NativeStack(np.array([cell], np.uint64), self.type, self.owner)

    def _element(self, address: int) -> Any:
        kind = self.type.element
        if isinstance(kind, StackType):
            cell = ctypes.c_size_t.from_address(address).value
            return NativeStack(np.array([cell], np.uint64), kind, self.owner)
        array = np.empty(kind.shape, kind.dtype.numpy)
        ctypes.memmove(array.ctypes.data, address, array.nbytes)
        return wrap(array)

    def _zero(self, run: Any) -> Any:
        return _zero_of(self.type, run)


def _words(cell: int) -> tuple[int, int, int]:
    kind, a, b = (ctypes.c_size_t.from_address(cell + 8 * i).value for i in range(3))
    return kind, a, b


class _ZerosOf:
    """A stack whose elements are all zeros."""

    def __init__(self, kind: StackType) -> None:
        self.type = kind

    def popped(self, run: Any) -> tuple[Any, Any]:
        return self, _zero_of(self.type, run)


class _Only:
    """A stack of zeros with one other element, `place` cells below the top."""

    def __init__(self, stack: NativeStack, place: int, address: int) -> None:
        self.stack = stack
        self.place = place
        self.address = address

    def popped(self, run: Any) -> tuple[Any, Any]:
        if self.place == 0:
            return _ZerosOf(self.stack.type), self.stack._element(self.address)
        return _Only(self.stack, self.place - 1, self.address), self.stack._zero(run)


def _zero_of(kind: StackType, run: Any) -> Any:
    element = kind.element
    if isinstance(element, StackType):
        return _ZerosOf(element)
    assert isinstance(element, TensorType)
    made = {"shape": element.shape, "value": 0, "dtype": element.dtype}
    return run.call(FULL, **made, device=element.device)


def class_of(kind: Type) -> type:
    """The class of an input of a native run."""
    return NativeStack if isinstance(kind, StackType) else Tensor


def any_interpreted(inputs: Any, places: Sequence[int]) -> bool:
    """Whether one of the inputs with these numbers is a stack of the interpreter."""
    return inputs.__class__ is list and any(
        is_stack(x) and not isinstance(x, NativeStack)
        for x in [inputs[i] for i in places if i < len(inputs)]
    )
