"""Python numbers of which only the kind is known: what loops and branches make of them.

Where recorded code carries a Python number through a loop, or has one number on one side of an `if`
and another on the other, a value of the graph stands for it. It goes on behaving as a number: it is
weak beside tensors, stays a number beside numbers (`int64`, `float64` or `bool` inside), has no
gradient, and is a Python number again where the recorded function returns it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from weft.base import dtypes
from weft.base.device import as_device
from weft.base.dtypes import PYTHON_KINDS, DType, Kind
from weft.base.promotion import promote_weak
from weft.core.tensor import Tensor, wrap

_RANK: dict[str, int] = {"bool": 0, "int": 1, "float": 2, "complex": 3}
HELD_AS: dict[Kind, DType] = {
    "bool": dtypes.bool,
    "int": dtypes.int64,
    "float": dtypes.float64,
    "complex": dtypes.complex128,
}


class Number(Tensor):
    """A 0-d value that stands for a Python number."""

    __slots__ = ()

    @property
    def kind(self) -> Kind:
        return self.dtype.kind

    def item(self) -> Any:
        return self


def number(tensor: Tensor) -> Number:
    """A 0-d tensor, of the dtype that holds its kind, as a number."""
    made = Number()
    made._data = tensor._data
    made._node = None
    return made


def kind_of(value: Any) -> Kind | None:
    """The kind of a number, known or not; None for anything else."""
    if value.__class__ is Number:
        kind: Kind = value.kind
        return kind
    return PYTHON_KINDS.get(value.__class__)


def joint_kind(a: Kind, b: Kind) -> Kind:
    return a if _RANK[a] >= _RANK[b] else b


def as_held(value: Any, dtype: DType, device: Any = None) -> Tensor:
    """A number as an ordinary 0-d tensor of a dtype."""
    if value.__class__ is Number:
        return plain(value).astype(dtype, copy=False)
    made: Tensor = _constant(value, dtype, as_device(device))
    return made


def plain(value: Number) -> Tensor:
    return wrap(value._data)


def _no_constant(value: Any, dtype: DType, device: Any) -> Tensor:
    raise NotImplementedError


_constant: Callable[[Any, DType, Any], Tensor] = _no_constant


def use_constant(make: Callable[[Any, DType, Any], Tensor]) -> None:
    """How to make a 0-d tensor of a Python number: set by `weft.core.operands`."""
    global _constant
    _constant = make


#: Operators whose result is an integer where booleans meet.
_COUNTING = frozenset({"add", "sub", "mul", "floordiv", "mod", "pow", "lshift", "rshift"})


def _binary(name: str, swapped: bool) -> Callable[[Number, Any], Any]:
    function = getattr(operator, f"{name}_" if name in ("and", "or") else name)

    def method(self: Number, other: Any) -> Any:
        kind = kind_of(other)
        if kind is None:
            if not isinstance(other, Tensor):
                return NotImplemented
            mine = as_held(self, promote_weak(other.dtype, self.kind), other.device)
            return function(other, mine) if swapped else function(mine, other)
        together = joint_kind(self.kind, kind)
        if name == "truediv":
            together = joint_kind(together, "float")
        elif name in _COUNTING:
            together = joint_kind(together, "int")
        dtype = HELD_AS[together]
        a, b = as_held(self, dtype, self.device), as_held(other, dtype, self.device)
        return number(function(b, a) if swapped else function(a, b))

    method.__name__ = f"__{'r' if swapped else ''}{name}__"
    return method


def _compared(name: str) -> Callable[[Number, Any], Any]:
    return _binary(name, False)


def _unary(name: str) -> Callable[[Number], Any]:
    function = getattr(operator, name)

    def method(self: Number) -> Any:
        dtype = HELD_AS[joint_kind(self.kind, "int")]
        return number(function(as_held(self, dtype, self.device)))

    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor"):
    setattr(Number, f"__{_name}__", _binary(_name, False))
    setattr(Number, f"__r{_name}__", _binary(_name, True))
for _name in ("lshift", "rshift"):
    setattr(Number, f"__{_name}__", _binary(_name, False))
    setattr(Number, f"__r{_name}__", _binary(_name, True))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Number, f"__{_name}__", _compared(_name))
for _name in ("neg", "pos", "abs", "invert"):
    setattr(Number, f"__{_name}__", _unary(_name))
setattr(Number, "__divmod__", lambda self, other: (self // other, self % other))  # noqa: B010
setattr(Number, "__rdivmod__", lambda self, other: (other // self, other % self))  # noqa: B010
# A name that holds a number is bound to a new one by `n += 1`, as with any number.
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor"):
    setattr(Number, f"__i{_name}__", getattr(Number, f"__{_name}__"))
setattr(Number, "__hash__", Tensor.__hash__)  # noqa: B010
