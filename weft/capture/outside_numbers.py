"""Numbers from outside that change from call to call: a counter, a rate, an argument.

The first recording takes numbers as they are, as guards. If a guard fails because of a number, the
next recording reads the number at that place in each call (`ChangingNumbers`): where it meets a
tensor, it is an input of the graph. Python does the arithmetic among such numbers before the graph
is run, exactly as in the function. What Python decides by them becomes a guard on the decision: of
`if step % 100 == 0`, that the remainder is zero, or that it is not.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base.dim_algebra import Dim
from weft.base.dtypes import PYTHON_KINDS, Kind
from weft.capture.watch.guards import Guard
from weft.capture.watch.origin import CALC, Origin, calculation, itself, place_key
from weft.capture.watch.values import same_value, size_of
from weft.core.number import Number, calculated, is_outside, outside_number

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks
    from weft.capture.watch.watch import Watch

NUMBERS = frozenset({int, float})
#: Scalars of NumPy's that stand for such numbers.
_SCALARS = (np.integer, np.floating)
_LINEAR = frozenset({operator.add, operator.sub, operator.mul, operator.neg, operator.pos})
#: The kinds of results that depend on the numbers, not only on their kinds.
_OF_ANY_KIND = frozenset({operator.pow, pow, min, max})
_LIMIT = 1 << 63
_LENGTH, _OBJECT = "length", "object"


class ChangingNumbers:
    """The places of which a function's calls have seen several numbers."""

    def __init__(self) -> None:
        self.places: set[Any] = set()

    def __contains__(self, origin: Origin) -> bool:
        return bool(self.places) and place_key(origin) in self.places

    def grows(self, origin: Origin) -> bool:
        """Whether the calls have seen a container of several lengths there."""
        return bool(self.places) and (_LENGTH, *place_key(origin)) in self.places

    def is_replaced(self, origin: Origin) -> bool:
        """Whether the calls have seen several objects of one class there."""
        return bool(self.places) and (_OBJECT, *place_key(origin)) in self.places

    def learn(self, guards: Iterable[Guard], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note the places where a call has other numbers than a recording."""
        for guard in guards:
            origin, expected = guard.origin, guard.expected
            length, same = guard.kind in ("length", "size"), guard.kind == "identity"
            if not length and not same and (guard.kind != "value" or not is_number(expected)):
                continue
            if origin is None or origin.kind == CALC:
                continue
            try:
                now = origin.evaluate(args, kwargs)
                if length and size_of(now) != expected:
                    self.places.add((_LENGTH, *place_key(origin)))
                if same and now is not expected and type(now) is type(expected):
                    self.places.add((_OBJECT, *place_key(origin)))
            except Exception:
                continue
            if length or same or type(now) is not type(expected):
                continue
            if not same_value(now, expected):
                self.places.add(place_key(origin))


def is_number(value: Any) -> bool:
    """Whether a value may be another one in each call."""
    return type(value) in NUMBERS or (isinstance(value, _SCALARS) and value.itemsize <= 8)


def _kind(value: Any) -> Kind | None:
    found: Kind | None = PYTHON_KINDS.get(type(value))
    if found is None and isinstance(value, (*_SCALARS, np.bool_)) and value.itemsize <= 8:
        found = {"f": "float", "b": "bool"}.get(value.dtype.kind, "int")  # type: ignore[assignment]
    return found


class OutsideNumber:
    """One such number: `value` in this call, at `origin` in any other."""

    __slots__ = ("kind", "made_of", "origin", "value", "watch")

    def __init__(
        self, watch: Watch, origin: Origin, value: Any, made_of: tuple[Any, ...] = ()
    ) -> None:
        self.watch = watch
        self.origin = origin
        self.value = value
        kind = _kind(value)
        assert kind is not None
        self.kind: Kind = kind
        self.made_of = made_of  # of a calculation: the function and its operands

    def know(self) -> Any:
        self.watch.guard("value", self.origin, self.value)
        return self.value

    def calculate(self, function: Callable[..., Any], operands: Sequence[Any]) -> Any:
        found: list[Any] = [x.outside if isinstance(x, Number) else x for x in operands]
        try:
            result = function(*[x.value if isinstance(x, OutsideNumber) else x for x in found])
        except Exception:
            _know_all(found)  # the function may catch it, and go on in another way
            raise
        if _kind(result) in (None, "complex"):
            _know_all(found)
            return result
        places = tuple([x.origin if isinstance(x, OutsideNumber) else x for x in found])
        origin = calculation(function, places)
        if function in _OF_ANY_KIND:
            self.watch.guard("class", origin, type(result))
        return stands_for(self.watch, origin, result, (function, *found))

    def data(self) -> Any:
        assert self.watch.tensors is not None
        return self.watch.tensors.number(self.origin, self.value)._data

    def size(self) -> int:
        """The number as a size, symbolic where a recording can have it so. Of sums and multiples,
        the parts are symbolic, so that the distance of i and i + 4 is known."""
        assert self.watch.tensors is not None
        function, *operands = self.made_of or (None,)
        if function in _LINEAR and all(map(_is_whole, operands)):
            found = [x.size() if isinstance(x, OutsideNumber) else int(x) for x in operands]
            if function is not operator.mul or not all(isinstance(x, Dim) for x in found):
                made: int = function(*found)
                return made
        numpy = isinstance(self.value, np.generic)
        origin = calculation(int, (self.origin,)) if numpy else self.origin
        size = self.watch.tensors.size(origin, int(self.value))
        return int(self.know()) if size is None else size

    @property
    def given(self) -> Origin:
        """Where a call finds the number as Python's own: inputs of the graph are tensors."""
        return calculation(itself, (self.origin,))


def _is_whole(x: Any) -> bool:
    """Whether a part of a number is an int that is a size itself, or only told by such."""
    if isinstance(x, OutsideNumber):
        return x.kind == "int" and (bool(x.made_of) or x.value >= 0)
    return type(x) is int or isinstance(x, np.integer)


def _know_all(operands: Iterable[Any]) -> None:
    for x in operands:
        if isinstance(x, OutsideNumber):
            x.know()


def stands_for(watch: Watch, origin: Origin, value: Any, made_of: tuple[Any, ...] = ()) -> Any:
    """A number that each call finds at a place; one that no graph holds becomes a guard."""
    found = OutsideNumber(watch, origin, value, made_of)
    if found.kind == "int" and not -_LIMIT <= int(value) < _LIMIT:
        return found.know()
    return outside_number(found)


# --- functions of Python's ------------------------------------------------------------------------


def pure(function: Any) -> Callable[..., Any]:
    """A function that only computes: of numbers from outside, its result is one, too."""

    def handle(hooks: Hooks, *args: Any, **kwargs: Any) -> Any:
        return NotImplemented if kwargs else calculated(function, *args)

    return handle


#: Functions of numbers alone, of which each call computes the result before the graph is run.
FUNCTIONS = frozenset(
    {
        *(abs, round, min, max, pow, int, float),
        *(f for n, f in vars(math).items() if not n.startswith("_") and callable(f)),
        *(np.clip, np.round),
    }
) - {math.fsum, math.prod, math.frexp, math.modf, math.dist}


def of_numbers(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a function of numbers; NotImplemented where there is none from outside."""
    if kwargs or not any(map(is_outside, args)):
        return NotImplemented
    of_numpy = isinstance(function, np.ufunc) and function.nout == 1
    if not of_numpy and function not in FUNCTIONS:
        return NotImplemented
    return calculated(function, *args)
