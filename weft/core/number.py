"""Python numbers that a graph computes, because a loop carries them or an `if` chooses one.

If recorded code carries a Python number through a loop, or has different numbers on the two sides
of an `if`, a value of the graph represents it. It still behaves as a number: it is weak in ops with
tensors, stays a number in operations with numbers (`int64`, `float64` or `bool` inside), has no
gradient, and is a Python number again when the recorded function returns it.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from weft.base import dtypes
from weft.base.device import Device, as_device
from weft.base.dim_algebra import Dim
from weft.base.dtypes import PYTHON_KINDS, DType, Kind
from weft.base.promotion import promote_weak
from weft.core.bind import bind, new_tensor
from weft.core.symbolic import SymbolicArray
from weft.core.tensor import Tensor, wrap
from weft.ir.op import OPS, Trait

_RANK: dict[str, int] = {"bool": 0, "int": 1, "float": 2, "complex": 3}
#: Whose instances numbers of a kind stand for.
CLASSES: dict[str, type[Any]] = {
    "bool": bool,
    "int": int,
    "float": float,
    "complex": complex,
}
HELD_AS: dict[Kind, DType] = {
    "bool": dtypes.bool,
    "int": dtypes.int64,
    "float": dtypes.float64,
    "complex": dtypes.complex128,
}


class Outside(Protocol):
    """A Python number that each call finds anew, or computes of such, before the graph is run."""

    kind: Kind
    value: Any  # in this call: of Python's, or a scalar of NumPy's

    def know(self) -> Any:
        """The number in this call; that it stays so becomes a guard."""

    def calculate(self, function: Callable[..., Any], operands: Sequence[Any]) -> Any:
        """What a function of Python's gives for numbers that each call knows."""

    def data(self) -> Any:
        """What stands for the number in the graph: one of its inputs."""

    def size(self) -> int:
        """The number as a size, symbolic where a recording can have it so."""


class Number(Tensor):
    """A 0-d value that stands for a Python number.

    bound    an integer is not larger than this, as far as that is known; None: it may be anything
    counts   a loop carries it that began with a number far from int64's limits
    outside  the number of which Python knows the value in each call; None: only the graph does
    ratio    of a size divided by a whole number, n / 2: both; it may not be set
    """

    __slots__ = ("bound", "counts", "held", "outside", "ratio")

    bound: int | None
    counts: bool
    held: Any
    outside: Outside | None
    ratio: tuple[int, int]

    @property
    def kind(self) -> Kind:
        return self.dtype.kind if self.outside is None else self.outside.kind

    @property
    def python_class(self) -> type[Any]:
        return CLASSES[self.kind] if self.outside is None else type(self.outside.value)

    @property
    def _data(self) -> Any:
        if self.held is None and self.outside is not None:
            self.held = self.outside.data()
        return self.held

    @_data.setter
    def _data(self, data: Any) -> None:
        self.held = data

    def _answer(self, question: str) -> Any:
        if self.outside is None:
            return super()._answer(question)
        if question == "bool":
            found = self.outside.calculate(bool, [self])
            return bool(python_number(found) if found.__class__ is Number else found)
        return CLASSES[question](self.outside.know())

    def __index__(self) -> int:
        return super().__index__() if self.outside is None else operator.index(self.outside.know())

    def item(self) -> Any:
        return self

    def __repr__(self) -> str:
        return super().__repr__() if self.outside is None else repr(self.outside.know())

    def __str__(self) -> str:
        return str(python_number(self))

    def __format__(self, spec: str) -> str:
        return format(python_number(self), spec)


def python_number(value: Number) -> Any:
    """The number itself: where it is not known, this asks for it."""
    return CLASSES[value.kind](value) if value.outside is None else value.outside.know()


@functools.cache
def number_attributes(kind: Kind) -> frozenset[str]:
    """What can be asked of Python's numbers of a kind."""
    return frozenset(name for name in dir(CLASSES[kind]) if not name.startswith("__"))


def is_outside(value: Any) -> bool:
    """Whether it is a number that Python knows in each call."""
    return value.__class__ is Number and value.outside is not None


def is_of_numpy(value: Any) -> bool:
    """Whether it stands for a scalar of NumPy's."""
    return is_outside(value) and isinstance(value.outside.value, np.generic)


def is_unknown(value: Any) -> bool:
    """Whether it is a number that only the graph knows."""
    return value.__class__ is Number and value.outside is None


def calculated(function: Callable[..., Any], *operands: Any) -> Any:
    """What a function of Python's gives for numbers of which some are from outside, and all others
    known; NotImplemented where others are among them."""
    first = None
    for value in operands:
        if value.__class__ is Number:
            if value.outside is None:
                return NotImplemented
            first = first or value.outside
        elif value.__class__ not in PYTHON_KINDS and not isinstance(value, np.generic):
            return NotImplemented
    return NotImplemented if first is None else first.calculate(function, operands)


def outside_number(outside: Outside) -> Number:
    """A number that each call finds."""
    made = Number()
    made.held = made._node = None
    made.bound = 1 if outside.kind == "bool" else None
    made.counts = False
    made.outside = outside
    return made


def number(tensor: Tensor, bound: int | None = None, counts: bool = False) -> Number:
    """A 0-d tensor, of the dtype that holds its kind, as a number."""
    made = Number()
    made.held = tensor._data
    made._node = None
    made.outside = None
    made.bound = bound
    made.counts = counts
    return made


def kind_of(value: Any) -> Kind | None:
    """The kind of a number, known or not; None for anything else."""
    if value.__class__ is Number:
        kind: Kind = value.kind
        return kind
    return "int" if value.__class__ is Dim else PYTHON_KINDS.get(value.__class__)


def joint_kind(a: Kind, b: Kind) -> Kind:
    return a if _RANK[a] >= _RANK[b] else b


def as_held(value: Any, dtype: DType, device: Any = None) -> Tensor:
    """A number as an ordinary 0-d tensor of a dtype."""
    if value.__class__ is Number:
        return plain(value).astype(dtype, copy=False)
    if value.__class__ is Dim:
        size: Tensor = bind(OPS["dim_size"], size=value, dtype=dtype, device=as_device(device))
        return size
    return number_tensor(value, dtype, as_device(device))


def plain(value: Number) -> Tensor:
    return wrap(value._data)


def number_tensor(value: Any, dtype: DType, device: Device) -> Tensor:
    """A 0-d tensor of a Python number, which must fit the dtype."""
    if dtype.kind in ("int", "uint"):
        info = np.iinfo(dtype.numpy)
        if not info.min <= value <= info.max:
            raise OverflowError(
                f"Python integer {value} is out of bounds for {dtype.name}; "
                "cast the tensor to a wider dtype first"
            )
    return new_tensor(np.array(value, dtype=dtype.numpy), device)


#: Operators whose result is an integer where booleans meet.
_COUNTING = frozenset({"add", "sub", "mul", "floordiv", "mod", "pow", "lshift", "rshift"})


def _binary(name: str, swapped: bool) -> Callable[[Number, Any], Any]:
    function = getattr(operator, f"{name}_" if name in ("and", "or") else name)

    def method(self: Number, other: Any) -> Any:
        kind = kind_of(other)
        if kind is not None:
            found = calculated(function, *((other, self) if swapped else (self, other)))
            if found is not NotImplemented:
                return found
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
        made = function(b, a) if swapped else function(a, b)
        if together != "int" or made.dtype is not dtype:
            return number(made)
        left, right = (other, self) if swapped else (self, other)
        bound = _bound_of(name, left, right)
        if name in _GROWING and bound is None and not _is_step(name, left, right):
            made = fitting(made, _estimate(name, left, right))
        return number(made, bound)

    method.__name__ = f"__{'r' if swapped else ''}{name}__"
    return method


# --- integers that must fit into int64 -----------------------------------------------------------

_GROWING = frozenset({"add", "sub", "mul", "pow", "lshift"})
#: Results up to this need no check.
_SMALL = 1 << 62
#: Steps of counters: from the limit of checked numbers it takes 2**30 of them to int64's.
_STEP = 1 << 10
#: More iterations than any loop makes: at a nanosecond each, they take a day.
MOST_ITERATIONS = 1 << 46


def fitting(value: Tensor, estimate: Tensor) -> Tensor:
    """An integer that a graph computes; an OverflowError where its estimate, a float, is larger
    than int64 holds."""
    found: Tensor = bind(OPS["fits_int64"], value, estimate)
    return found


def defined(value: Tensor, holds: Tensor, function: str) -> Tensor:
    """A number of which a condition holds: then a function of Python's is defined for it. Where it
    does not, the graph raises what Python raises."""
    found: Tensor = bind(OPS["python_defined"], value, holds, function=function)
    return found


def _largest(value: Any) -> int | None:
    """The largest absolute value that an integer may have, if it is known."""
    if value.__class__ is Number:
        return 1 if value.kind == "bool" else getattr(value, "bound", None)
    if value.__class__ is Dim:
        low, high = value.bounds
        return None if low is None or high is None else max(-low, high)
    return abs(int(value))


def _bound_of(name: str, left: Any, right: Any) -> int | None:
    """The bound of a result, if there is one that int64 holds easily."""
    a, b = _largest(left), _largest(right)
    if name in ("mod", "floordiv"):
        return b if name == "mod" else a
    if a is None or b is None or (name in ("pow", "lshift") and b > 64):
        return None
    if name in ("add", "sub"):
        found = a + b
    elif name == "mul":
        found = a * b
    elif name == "pow":
        found = a**b
    elif name == "lshift":
        found = a << b
    else:
        return None
    return found if found <= _SMALL else None


def _is_step(name: str, left: Any, right: Any) -> bool:
    """Whether a counter makes a step: such a one does not come to an end in any time."""
    if name not in ("add", "sub"):
        return False
    sizes = _largest(left), _largest(right)
    counter, step = (left, sizes[1]) if sizes[0] is None else (right, sizes[0])
    return step is not None and step <= _STEP and may_count(counter)


def may_count(value: Any) -> bool:
    """Whether an integer is so far from int64's limits that counting from it needs no checks."""
    largest = _largest(value)
    if largest is not None:
        return largest <= _SMALL
    if not isinstance(value, Number):
        return True  # a symbolic size
    if value.counts or value._data.__class__ is not SymbolicArray:
        return bool(value.counts)
    node = value._data.value.node
    return node is not None and (node.op.nested or Trait.COUNTS in node.op.traits)


def _estimate(name: str, left: Any, right: Any) -> Tensor:
    """A result in float64."""
    a, b = (as_held(x, dtypes.float64) for x in (left, right))
    if name == "lshift":
        return a * 2.0**b
    found: Tensor = getattr(operator, name)(a, b)
    return found


def _compared(name: str) -> Callable[[Number, Any], Any]:
    return _binary(name, False)


def _unary(name: str) -> Callable[[Number], Any]:
    function = getattr(operator, name)

    def method(self: Number) -> Any:
        found = calculated(function, self)
        if found is not NotImplemented:
            return found
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
