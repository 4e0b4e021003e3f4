"""Writes: which methods do, and the warning where PyTorch would change another tensor, too.

In Weft a write to one tensor never changes another. In PyTorch a write to a view shows in what it
is a view of. Programs that rely on that are told.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import getrefcount
from typing import Any

import numpy as np

from weft.base.errors import LostWriteWarning
from weft.base.source import warn_user
from weft.core.symbolic import SymbolicArray
from weft.core.temporaries import (
    ITEM_OF_TEMPORARY,
    METHOD_OF_TEMPORARY,
    lost_item,
    lost_method,
)
from weft.ir.op import Trait

_IN_PLACE = frozenset(
    f"__i{name}__"
    for name in [
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "and",
        "or",
        "xor",
        "lshift",
        "rshift",
        "matmul",
    ]
)
_NO_WRITES = frozenset({"requires_grad_", "detach_", "retain_grad_", "share_memory_"})
_SET_ITEM = "__setitem__"


def writer(name: str) -> bool:
    """Whether a method of this name gives its tensor another value."""
    if name in _IN_PLACE or name == _SET_ITEM:
        return True
    return name.endswith("_") and not name.endswith("__") and name not in _NO_WRITES


def _references(array: np.ndarray[Any, Any]) -> int:
    """How many hold what an array is a view of."""
    base: Any = array.base
    while isinstance(base.base, np.ndarray):
        base = base.base
    return getrefcount(base)


def _alone() -> int:
    """What `_references` says where nobody but the view holds it."""
    return _references(np.empty(2)[:1])


_ALONE = _alone()


class _Probe:
    """Counts the references to itself as an operator in place sees them."""

    def __init__(self, seen: list[int]) -> None:
        self.seen = seen

    def __getitem__(self, key: int) -> _Probe:
        return _Probe(self.seen)

    def __setitem__(self, key: int, value: Any) -> None:
        pass

    def __iadd__(self, *args: int) -> _Probe:
        self.seen.append(getrefcount(self))
        return self


def _operator_of_temporary() -> int:
    """What `getrefcount(self)` says at most in `__iadd__` for `x[0] += 1`."""
    alone: list[int] = []
    probe = _Probe(alone)
    for _ in range(40):  # the interpreter replaces code that runs often by faster code
        probe[0] += 1
    return max(alone)


_OPERATOR_OF_TEMPORARY = _operator_of_temporary()


def _shares_memory(data: Any, of_operator: bool) -> bool:
    """Whether another tensor has the elements of this one, as far as is known.

    A recording cannot tell `y += 1` from `x[0] += 1`, which puts the result back.
    """
    if data.__class__ is np.ndarray:
        return isinstance(data.base, np.ndarray) and _references(data) > _ALONE
    return data.__class__ is SymbolicArray and not of_operator and _is_view_of_input(data)


def _is_view_of_input(data: SymbolicArray) -> bool:
    """Whether a value of a recording is a view of an input, which the caller holds."""
    if not hasattr(data.recorder, "watch"):  # inside of a loop or branch nobody knows
        return False
    value = data.value
    while value.node is not None:
        traits = value.node.op.traits
        if Trait.VIEW not in traits or Trait.ALIAS in traits:
            return False
        value = value.node.inputs[0]
    return value is not data.value


def watched(name: str, write: Callable[..., Any]) -> Callable[..., Any]:
    """A method that writes, and warns where the write would show elsewhere in PyTorch."""
    of_item, of_operator = name == _SET_ITEM, name in _IN_PLACE
    temporary = ITEM_OF_TEMPORARY if of_item else METHOD_OF_TEMPORARY
    temporary = _OPERATOR_OF_TEMPORARY if of_operator else temporary

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if getrefcount(self) <= temporary:  # no name holds it
            out = write(self, *args, **kwargs)
            if of_item:
                lost_item()
            elif not of_operator:  # x[0] += 1 puts the result back
                lost_method()
            return out
        if _shares_memory(self._data, of_operator):
            warn_user(
                f"this tensor ({self.type}) shares memory with another, of which it is a view or a "
                "part: in PyTorch the write would show there, here it does not\n"
                "  to fix: write to the whole, x[i] = ..., or work on a copy, x[i].clone()",
                LostWriteWarning,
            )
        return write(self, *args, **kwargs)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = write.__doc__
    return method
