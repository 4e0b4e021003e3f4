"""Numbers that Python takes from tensors: `loss.item()`, `float(loss)`.

They are numbers of the graph: at its end, the call converts those that are returned, kept or
printed to Python's. So `item()` splits no graph. Python asks for the value only where it needs it:
as a shape, as a key, in code that is not followed.

Where Python raises an error that no graph op raises (a division by zero, `math.log(0.0)`), the
graph checks for it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.base.dim_algebra import Dim, bounds
from weft.base.dims import ceil_div
from weft.base.shapes import size_of
from weft.capture.watch.settled_numbers import settled
from weft.core.number import (
    HELD_AS,
    Number,
    as_held,
    defined,
    is_outside,
    is_unknown,
    kind_of,
)
from weft.core.tensor import Tensor
from weft.ops import transcendental
from weft.ops.elementwise import (
    equal,
    greater,
    greater_equal,
    isfinite,
    isinf,
    isnan,
    less,
    logical_and,
    logical_or,
    not_equal,
    sqrt,
    trunc,
)
from weft.ops.identity import detached
from weft.ops.shape import reshape
from weft.record.control.nested import graph_recorder, known_number, size_number

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks


def of_tensor(hooks: Hooks, x: Any) -> Any:
    """`x.item()` as a number of the graph; NotImplemented where Python itself is to be asked."""
    if x.__class__ is Number:
        return NotImplemented if is_outside(x) else x
    if not isinstance(x, Tensor) or not hooks.watch.active or graph_recorder() is None:
        return NotImplemented
    if not all(size.__class__ is int for size in x.shape) or size_of(x.shape) != 1:
        return NotImplemented
    hooks.watch.numbers = True
    kind = "int" if x.dtype.kind == "uint" else x.dtype.kind
    if kind not in HELD_AS or (x.dtype.kind == "uint" and x.dtype.bits == 64):
        return NotImplemented
    value = detached(x)
    if x.ndim:
        value = reshape(value, ())
    return known_number(value.astype(HELD_AS[kind], copy=False))


def may_catch(hooks: Hooks) -> bool:
    """Whether the function may catch what arithmetic raises: then Python does it, on the values."""
    return hooks.flow.tries > 0 and not hooks.flow.depth


# --- errors that Python raises -------------------------------------------------------------------

_DIVISIONS = {"/": operator.truediv, "//": operator.floordiv, "%": operator.mod}


def arithmetic(hooks: Hooks, symbol: str, a: Any, b: Any) -> tuple[Any, Any]:
    """The operands of `a symbol b`, of which one is a number of the graph. Where Python would raise
    an error, or go over to another kind of number, the graph raises one."""
    if symbol in _DIVISIONS and b.__class__ is Dim:
        b = size_number(b)
    kinds = kind_of(a), kind_of(b)
    if None in kinds or "complex" in kinds or not (is_unknown(a) or is_unknown(b)):
        return a, b  # a tensor's own rule, or Python's
    if may_catch(hooks):
        return settled(a), settled(b)
    if symbol == "**":
        return _powers(a, b, "float" in kinds)
    if symbol in _DIVISIONS:
        if is_unknown(b):
            held = as_held(b, HELD_AS["int" if b.kind == "bool" else b.kind])
            return a, known_number(defined(held, not_equal(held, 0), symbol))
        if not b:
            _DIVISIONS[symbol](1.0 if "float" in kinds else 1, 0)  # raises Python's error
    return a, b


def _powers(base: Any, power: Any, floats: bool) -> tuple[Any, Any]:
    """2 ** -1 is a float, (-8.0) ** 0.5 is complex, and 0.0 ** -1 an error."""
    if type(power) is int and power >= 0:
        return base, power
    if not floats:
        held = as_held(power, HELD_AS["int"])
        return base, known_number(defined(held, greater_equal(held, 0), "2 ** -1"))
    if type(base) is not float or base <= 0:
        held, other = as_held(base, HELD_AS["float"]), as_held(power, HELD_AS["float"])
        right = logical_or(greater(held, 0), logical_or(isnan(held), _is_whole(other, held)))
        return known_number(defined(held, right, "(-8.0) ** 0.5")), power
    return base, power


def _is_whole(power: Tensor, base: Tensor) -> Tensor:
    """Whether a power of a number that is not above 0 is a real number."""
    whole = logical_or(equal(trunc(power), power), isnan(power))
    return logical_or(
        logical_and(equal(base, 0), greater_equal(power, 0)),
        logical_and(less(base, 0), whole),
    )


def number_of(hooks: Hooks, value: Any, *_op: Any) -> Any:
    """as_number(value, op): an option that is a number, or a tensor of one."""
    return value if value.__class__ is Number else of_tensor(hooks, value)


# --- functions of `math` -------------------------------------------------------------------------

#: Tests of one float.
_TESTS: dict[Any, Any] = {math.isfinite: isfinite, math.isnan: isnan, math.isinf: isinf}
#: Functions of one float. Python raises an error where the result is NaN or infinite, and the
#: operand is not.
_FUNCTIONS: dict[Any, Any] = {
    math.sqrt: sqrt,
    math.exp: transcendental.exp,
    math.expm1: transcendental.expm1,
    math.log: transcendental.log,
    math.log2: transcendental.log2,
    math.log10: transcendental.log10,
    math.log1p: transcendental.log1p,
    math.sin: transcendental.sin,
    math.cos: transcendental.cos,
    math.tan: transcendental.tan,
    math.sinh: transcendental.sinh,
    math.cosh: transcendental.cosh,
    math.tanh: transcendental.tanh,
}


def math_function(function: Any) -> Callable[..., Any]:
    """A function of `math` on a number of the graph."""

    def handle(hooks: Hooks, *args: Any, **kwargs: Any) -> Any:
        x = args[0] if len(args) == 1 and not kwargs else None
        if x.__class__ is Dim and hooks.watch.active and hooks.records() and not may_catch(hooks):
            x = size_number(x)
        if x.__class__ is not Number or x.kind == "complex" or graph_recorder() is None:
            return NotImplemented
        if may_catch(hooks):
            return function(settled(x))
        held = as_held(x, HELD_AS["float"])
        if function in _TESTS:
            return known_number(_TESTS[function](held))
        found = _FUNCTIONS[function](held)
        infinite = logical_and(isinf(held), isinf(found))
        right = logical_or(isfinite(found), logical_or(isnan(held), infinite))
        return known_number(_FUNCTIONS[function](defined(held, right, function.__name__)))

    return handle


def rounded(function: Callable[[Any], int]) -> Callable[..., Any]:
    """math.floor, ceil or trunc of a size divided by a number: a size."""

    def handle(hooks: Hooks, x: Any) -> Any:
        if x.__class__ is Dim:
            return x
        found = getattr(x, "ratio", None) if x.__class__ is Number else None
        low = None if found is None else bounds(found[0])[0]
        if found is None or low is None or low < 0:
            return NotImplemented
        above, below = found
        return ceil_div(above, below) if function is math.ceil else above // below

    return handle


def div_mod(hooks: Hooks, a: Any, b: Any) -> Any:
    """divmod(a, b)"""
    if Dim in (a.__class__, b.__class__) and {a.__class__, b.__class__} <= {Dim, int}:
        return a // b, a % b
    if Number not in (a.__class__, b.__class__) or kind_of(a) is None or kind_of(b) is None:
        return NotImplemented
    return hooks.binary("//", a, b), hooks.binary("%", a, b)


MATH: dict[Any, Any] = {
    divmod: div_mod,
    **{function: math_function(function) for function in (*_TESTS, *_FUNCTIONS)},
    **{function: rounded(function) for function in (math.floor, math.ceil, math.trunc)},
}
