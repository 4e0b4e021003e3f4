"""Operators by Python's rules, with methods of user classes followed like any call.

For builtin types and tensors the operator itself runs. If a user's class defines the method, the
look-up of the interpreter is done here, so that the method is watched.
"""

from __future__ import annotations

import math
import operator
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base.asked_sizes import numbers_of
from weft.base.dim_algebra import Dim
from weft.capture.watch import stores
from weft.capture.watch.attributes import class_attribute
from weft.capture.watch.follow import FOLLOW, policy
from weft.capture.watch.origin import MISSING, static_lookup
from weft.capture.watch.settled_numbers import settled
from weft.capture.watch.texts import written
from weft.capture.watch.values import CONTAINERS
from weft.core.number import calculated, is_of_numpy, is_outside, is_unknown
from weft.core.tensor import Tensor
from weft.record.control.nested import size_number

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks

#: symbol -> (function, in-place function, method, reflected method, in-place method)
BINARY: dict[str, tuple[Callable[..., Any], Callable[..., Any], str]] = {
    "+": (operator.add, operator.iadd, "add"),
    "-": (operator.sub, operator.isub, "sub"),
    "*": (operator.mul, operator.imul, "mul"),
    "/": (operator.truediv, operator.itruediv, "truediv"),
    "//": (operator.floordiv, operator.ifloordiv, "floordiv"),
    "%": (operator.mod, operator.imod, "mod"),
    "**": (operator.pow, operator.ipow, "pow"),
    "@": (operator.matmul, operator.imatmul, "matmul"),
    "<<": (operator.lshift, operator.ilshift, "lshift"),
    ">>": (operator.rshift, operator.irshift, "rshift"),
    "&": (operator.and_, operator.iand, "and"),
    "|": (operator.or_, operator.ior, "or"),
    "^": (operator.xor, operator.ixor, "xor"),
}
UNARY: dict[str, tuple[Callable[[Any], Any], str]] = {
    "-": (operator.neg, "__neg__"),
    "+": (operator.pos, "__pos__"),
    "~": (operator.invert, "__invert__"),
}
#: symbol -> (function, method, method of the other side)
COMPARE: dict[str, tuple[Callable[[Any, Any], Any], str, str]] = {
    "==": (operator.eq, "__eq__", "__eq__"),
    "!=": (operator.ne, "__ne__", "__ne__"),
    "<": (operator.lt, "__lt__", "__gt__"),
    "<=": (operator.le, "__le__", "__ge__"),
    ">": (operator.gt, "__gt__", "__lt__"),
    ">=": (operator.ge, "__ge__", "__le__"),
}

COMPARING = tuple(dict.fromkeys(name for _, *names in COMPARE.values() for name in names))
SIMPLE = frozenset({type(None), bool, int, float, complex, str, bytes, Tensor, range, slice})


def special(cls: type, name: str) -> types.FunctionType | None:
    """A method of a user class that must be followed; None if the interpreter can call it."""
    if cls in SIMPLE:
        return None
    found = static_lookup(cls, name)
    if isinstance(found, types.FunctionType) and policy(found.__code__.co_filename) == FOLLOW:
        return found if found.__code__.co_filename != "<string>" else None
    return None


def _call(hooks: Hooks, cls: type, name: str, function: Any, *args: Any) -> Any:
    if isinstance(function, types.FunctionType):
        class_attribute(hooks.watch, cls, name, function)
        return hooks.call(function, *args)
    return function(*args)


def call_special(hooks: Hooks, obj: Any, name: str, *args: Any) -> Any:
    """Call a special method of a user's class, watched."""
    cls = type(obj)
    return _call(hooks, cls, name, _method(cls, name), obj, *args)


def _method(cls: type, name: str) -> Any:
    """A special method as the interpreter finds it: on the class, in Python or in C."""
    found = static_lookup(cls, name)
    return None if found is MISSING or found is None else getattr(cls, name)


def binary(hooks: Hooks, symbol: str, a: Any, b: Any) -> Any:
    function, _, name = BINARY[symbol]
    ta, tb = type(a), type(b)
    if symbol == "%" and ta is str and not hooks.flow.depth:
        text = written(function, a, b)
        if text is not NotImplemented:
            return text
    if ta in SIMPLE and tb in SIMPLE:
        if symbol == "%" and ta is str:
            hooks.deep(b, "%")
        return function(a, b)
    if is_outside(a) or is_outside(b):
        found = calculated(function, a, b)
        if found is not NotImplemented:
            return found
        if is_unknown(a) or is_unknown(b) or np.ndarray in (ta, tb):
            a, b = (settled(x) if is_of_numpy(x) else x for x in (a, b))
    numpy = isinstance(a, np.generic) or isinstance(b, np.generic)
    if numpy and not hooks.flow.depth and (is_unknown(a) or is_unknown(b)):
        a, b = settled(a), settled(b)  # NumPy's results are no Python numbers
    forward, reflected = f"__{name}__", f"__r{name}__"
    if special(ta, forward) is None and special(tb, reflected) is None:
        if symbol == "%" and isinstance(a, (str, bytes)):
            hooks.deep(b, "%")
        if ta is Dim and tb is int and symbol in (">>", "<<", "&"):
            return size_bits(symbol, a, b)
        if (ta is Dim or tb is Dim) and (symbol == "/" or float in (ta, tb)) and hooks.records():
            if symbol == "/" and tb is Dim and ta in (int, float, Dim) and not b:
                raise ZeroDivisionError("division by zero")
            ratio = size_ratio(symbol, a, b)
            a, b = (size_number(x) if isinstance(x, Dim) else x for x in (a, b))
            made = function(hooks.operand(a, b), hooks.operand(b, a))
            if ratio is not None:
                made.ratio = ratio
            return made
        return function(hooks.operand(a, b), hooks.operand(b, a))
    first = (ta, forward, a, b)
    second = (tb, reflected, b, a)
    order = [first, second] if ta is not tb else [first]
    if ta is not tb and issubclass(tb, ta) and _method(tb, reflected) is not _method(ta, reflected):
        order = [second, first]
    result = _first_answer(hooks, order)
    if result is not NotImplemented:
        return result
    shown = "** or pow()" if symbol == "**" else symbol
    raise TypeError(f"unsupported operand type(s) for {shown}: '{ta.__name__}' and '{tb.__name__}'")


def size_bits(symbol: str, size: int, by: int) -> int:
    """n >> 1, n << 1 and n & 1; other bits are those of the number itself."""
    if symbol == "&":
        mask = by > 0 and not by & (by + 1)
        return size % (by + 1) if mask else operator.index(size) & by
    factor: int = 1 << by
    return size // factor if symbol == ">>" else size * factor


def size_ratio(symbol: str, a: Any, b: Any) -> tuple[int, int] | None:
    """The whole numbers of which n / 2 or n * 0.5 is the quotient, for a size n."""
    if symbol == "/" and type(b) is int and b > 0:
        return a, b
    factor = a if type(a) is float else b
    if symbol != "*" or type(factor) is not float or not math.isfinite(factor):
        return None
    above, below = factor.as_integer_ratio()
    return ((b if a is factor else a) * above, below) if 0 < above < 1 << 20 else None


def inplace(hooks: Hooks, symbol: str, a: Any, b: Any) -> Any:
    _, function, name = BINARY[symbol]
    ta = type(a)
    if ta in SIMPLE and type(b) in SIMPLE:
        return function(a, b) if ta is not str else binary(hooks, symbol, a, b)
    method = f"__i{name}__"
    if special(ta, method) is not None:
        result = call_special(hooks, a, method, b)
        return binary(hooks, symbol, a, b) if result is NotImplemented else result
    known = hooks.watch.known(a)
    if known is not None and hasattr(ta, method):
        if isinstance(a, CONTAINERS):
            return hooks.call(getattr(a, method), b)
        if isinstance(a, np.ndarray):
            return hooks.write_array(known, lambda: function(a, hooks.operand(b, a)), f"{symbol}=")
    if _method(ta, method) is None:
        return binary(hooks, symbol, a, b)
    if isinstance(a, CONTAINERS):
        b = hooks.shallow(b)
    elif isinstance(a, np.ndarray):
        return hooks.write_view(a, lambda: function(a, hooks.operand(b, a)))
    return function(a, hooks.operand(b, a))


def unary(hooks: Hooks, symbol: str, a: Any) -> Any:
    function, name = UNARY[symbol]
    if special(type(a), name) is not None:
        return call_special(hooks, a, name)
    return function(hooks.operand(a, a))


def compare(hooks: Hooks, symbol: str, a: Any, b: Any) -> Any:
    if symbol in ("in", "not in"):
        found = contains(hooks, b, a)
        return found if symbol == "in" else not found
    function, name, swapped = COMPARE[symbol]
    ta, tb = type(a), type(b)
    if ta in SIMPLE and tb in SIMPLE:
        return function(a, b)
    if is_unknown(a) or is_unknown(b):
        a, b = (float(x) if type(x) is np.float64 else x for x in (a, b))
    if not any(map(special, (ta, ta, tb, tb), (name, "__eq__", swapped, "__eq__"))):
        if (
            isinstance(a, CONTAINERS)
            or isinstance(b, CONTAINERS)
            or isinstance(static_lookup(ta, name), types.FunctionType)
        ):
            hooks.deep(a, symbol, COMPARING)
            hooks.deep(b, symbol, COMPARING)
        return function(hooks.operand(a, b), hooks.operand(b, a))
    first, second = (ta, name, a, b), (tb, swapped, b, a)
    order = [second, first] if ta is not tb and issubclass(tb, ta) else [first, second]
    result = _first_answer(hooks, order)
    if result is not NotImplemented:
        return result
    if symbol in ("==", "!="):
        return (a is b) if symbol == "==" else (a is not b)
    raise TypeError(
        f"'{symbol}' not supported between instances of '{ta.__name__}' and '{tb.__name__}'"
    )


def _first_answer(hooks: Hooks, order: list[tuple[type, str, Any, Any]]) -> Any:
    """What the first of some methods gives that does not leave it to the others."""
    for cls, method, left, right in order:
        negates = method == "__ne__" and special(cls, "__ne__") is None
        if negates and special(cls, "__eq__") is not None:
            result = call_special(hooks, left, "__eq__", right)
            result = result if result is NotImplemented else not truth(hooks, result)
        else:
            found = _method(cls, method)
            if found is None:
                continue
            result = _call(hooks, cls, method, found, left, right)
        if result is not NotImplemented:
            return result
    return NotImplemented


def contains(hooks: Hooks, container: Any, value: Any) -> bool:
    cls = type(container)
    if special(cls, "__contains__") is not None:
        return truth(hooks, call_special(hooks, container, "__contains__", value))
    if _method(cls, "__contains__") is None and (
        special(cls, "__iter__") is not None or special(cls, "__getitem__") is not None
    ):
        return any(
            item is value or truth(hooks, compare(hooks, "==", item, value))
            for item in iterate(hooks, container)
        )
    known = hooks.watch.known(container)
    if isinstance(container, (dict, set, frozenset)):
        value = settled(numbers_of(value))
    if isinstance(container, dict):
        hooks.key(value)
        if known is not None:
            stores.read_presence(hooks.watch, known, value)
        return dict.__contains__(container, value)
    if isinstance(container, (set, frozenset)) and known is not None:
        hooks.key(value)
        stores.read_member(hooks.watch, known, value)
    elif isinstance(container, CONTAINERS):
        hooks.deep(container, "in", COMPARING)
        hooks.deep(value, "in", COMPARING)
    elif known is not None and isinstance(container, np.ndarray):
        hooks.watch.content(known)
    return value in container


def truth(hooks: Hooks, value: Any) -> bool:
    """The truth of a value, as `if` asks for it."""
    cls = type(value)
    if cls in SIMPLE:
        return bool(value)
    if special(cls, "__bool__") is not None:
        result = call_special(hooks, value, "__bool__")
        if type(result) is not bool:
            raise TypeError(f"__bool__ should return bool, returned {type(result).__name__}")
        return result
    if _method(cls, "__bool__") is None and special(cls, "__len__") is not None:
        return bool(length(hooks, value) != 0)
    known = hooks.watch.known(value)
    if known is not None:
        if isinstance(value, CONTAINERS):
            return bool(stores.length(hooks.watch, known))
        if isinstance(value, np.ndarray):
            hooks.watch.content(known)
    return bool(value)


def length(hooks: Hooks, value: Any) -> Any:
    cls = type(value)
    if special(cls, "__len__") is not None:
        result = call_special(hooks, value, "__len__")
        if is_outside(result) and result >= 0:
            return result
        return len(range(result)) if isinstance(result, int) and result >= 0 else len(value)
    known = hooks.watch.known(value)
    if known is not None and isinstance(value, CONTAINERS):
        return stores.length(hooks.watch, known)
    return len(value)


def iterate(hooks: Hooks, value: Any) -> Any:
    """What a loop iterates over: the value itself, or an iterator whose steps are watched."""
    cls = type(value)
    if cls in SIMPLE:
        return value
    if special(cls, "__iter__") is not None:
        made = call_special(hooks, value, "__iter__")
        return _watched_steps(hooks, made)
    if special(cls, "__next__") is not None:
        return _watched_steps(hooks, value)
    if _method(cls, "__iter__") is None and special(cls, "__getitem__") is not None:
        return _indexed(hooks, value)
    known = hooks.watch.known(value)
    if known is None:
        return value
    if isinstance(value, dict):
        stores.read_keys(hooks.watch, known)
    elif isinstance(value, CONTAINERS):
        return stores.elements(hooks.watch, known)
    elif isinstance(value, np.ndarray):
        hooks.watch.content(known)
    elif hasattr(cls, "__next__"):
        hooks.watch.refuse(f"the iterator {known.origin.text} from outside is advanced")
    else:
        hooks.deep(value, "iteration")
    return value


def _watched_steps(hooks: Hooks, iterator: Any) -> Any:
    cls = type(iterator)
    if special(cls, "__next__") is None:
        return iterate(hooks, iterator) if special(cls, "__iter__") is None else iterator
    return _steps(hooks, iterator)


def _steps(hooks: Hooks, iterator: Any) -> Iterator[Any]:
    while True:
        try:
            value = call_special(hooks, iterator, "__next__")
        except StopIteration:
            return
        yield value


def _indexed(hooks: Hooks, value: Any) -> Iterator[Any]:
    index = 0
    while True:
        try:
            part = hooks.item(value, index)
        except IndexError:
            return
        yield part
        index += 1
