"""`x.at[i].add(v)`: x with some elements changed, as a new tensor, as JAX has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.core.operands import Operand
from weft.core.public import attach_properties
from weft.core.tensor import Tensor
from weft.ir.op import Op
from weft.ops.elementwise import negative, reciprocal
from weft.ops.index_cards import SETITEM
from weft.ops.reduce_at import ADD_AT, MAXIMUM_AT, MINIMUM_AT, MULTIPLY_AT
from weft.ops.scatter import changed_at

__all__: list[str] = []


class At:
    """The places of a tensor: `x.at[i]` names some of them."""

    __slots__ = ("_x",)

    def __init__(self, x: Tensor) -> None:
        self._x = x

    def __getitem__(self, key: Any) -> ArrayPlace:
        return ArrayPlace(self._x, key)

    def __repr__(self) -> str:
        return f"At({self._x!r})"


class ArrayPlace:
    """Some places of a tensor. Each method gives a new tensor; where a place is named twice, sums,
    products and extremes take all values that belong there.

    >>> x = weft.zeros(3)
    >>> x.at[weft.asarray([0, 1, 1])].add(1.0)
    tensor([1., 2., 0.])
    >>> x
    tensor([0., 0., 0.])
    """

    __slots__ = ("_key", "_x")

    def __init__(self, x: Tensor, key: Any) -> None:
        self._x = x
        self._key = key

    def __repr__(self) -> str:
        return f"Place({self._x!r}, {self._key!r})"

    def get(self) -> Tensor:
        """x[i]."""
        part: Tensor = self._x[self._key]
        return part

    def set(self, value: Operand) -> Tensor:
        """x with x[i] = value."""
        return self._changed(value, SETITEM)

    def add(self, value: Operand) -> Tensor:
        """x with x[i] += value."""
        return self._changed(value, ADD_AT)

    def subtract(self, value: Operand) -> Tensor:
        """x with x[i] -= value."""
        return self._changed(negative(value) if isinstance(value, Tensor) else -value, ADD_AT)

    def multiply(self, value: Operand) -> Tensor:
        """x with x[i] *= value."""
        return self._changed(value, MULTIPLY_AT)

    def divide(self, value: Operand) -> Tensor:
        """x with x[i] /= value."""
        inverse = reciprocal(value) if isinstance(value, Tensor) else 1 / value
        return self._changed(inverse, MULTIPLY_AT)

    def min(self, value: Operand) -> Tensor:
        """x with x[i] = minimum(x[i], value)."""
        return self._changed(value, MINIMUM_AT)

    def max(self, value: Operand) -> Tensor:
        """x with x[i] = maximum(x[i], value)."""
        return self._changed(value, MAXIMUM_AT)

    def apply(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """x with x[i] = function(x[i])."""
        return self.set(function(self.get()))

    sub = subtract
    mul = multiply
    div = divide

    def _changed(self, value: Any, card: Op) -> Tensor:
        key = self._key if isinstance(self._key, tuple) else (self._key,)
        return changed_at(self._x, key, value, card)


def _at(self: Tensor) -> At:
    """x.at[i].add(v), .set(v), .multiply(v), .min(v), .max(v): a new tensor, changed there."""
    return At(self)


attach_properties({"at": _at})
