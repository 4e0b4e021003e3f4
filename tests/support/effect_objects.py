"""Objects for runs to write to, and what they hold, to be compared."""

from __future__ import annotations

import collections
import functools
import types
from typing import Any

import numpy as np

import weft


class Box:
    limit = 1

    def __init__(self, value: Any = 1) -> None:
        self.value = value

    def add(self, x: Any) -> None:
        self.value = self.value + x

    @property
    def double(self) -> Any:
        return self.value * 2

    @double.setter
    def double(self, new: Any) -> None:
        self.value = new / 2


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self) -> None:
        self.a = 1


def same(tensor: Any) -> Any:
    return tensor


def state(obj: Any) -> Any:
    """What an object holds, to be compared."""
    if isinstance(obj, np.ndarray):
        return obj.tolist()
    if isinstance(obj, types.MethodType):
        return ("method", obj.__name__, obj.__self__.value)
    if isinstance(obj, functools.partial):
        return ("partial", obj.func, obj.args)
    if isinstance(obj, types.FunctionType):
        return obj
    if isinstance(obj, weft.Tensor):
        return ("tensor", obj.tolist())
    if isinstance(obj, (list, tuple, collections.deque)):
        return [state(part) for part in obj]
    if isinstance(obj, dict):
        return [(key, state(value)) for key, value in obj.items()]
    if isinstance(obj, Slotted):
        return [state(getattr(obj, name, None)) for name in obj.__slots__]
    if hasattr(obj, "__dict__"):
        return [(key, state(value)) for key, value in vars(obj).items()]
    return obj
