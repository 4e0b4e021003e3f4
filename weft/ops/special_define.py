"""How special functions are made: formulas in float64, for every floating dtype.

A formula is written once, against the namespace `xp`. Eagerly it runs on NumPy arrays; for machine
code the same formula is recorded and fused. It computes in float64, so that results in float32 and
narrower are correctly rounded but for rare ties.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base import dtypes
from weft.base.dtypes import as_dtype
from weft.ir.op import OPS, DerivativeRule, Trait
from weft.ops.define import BinaryFunction, UnaryFunction, binary, unary
from weft.ops.rules import apply

__all__ = ["binary_special", "call", "chebyshev", "fraction", "horner", "special", "wide"]

Fraction = tuple[Sequence[float], Sequence[float]]


def horner(coefficients: Sequence[float], x: Any) -> Any:
    """A polynomial; the constant coefficient comes first."""
    out = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        out = out * x + coefficient
    return out


def fraction(coefficients: Fraction, x: Any) -> Any:
    """A polynomial divided by another."""
    return horner(coefficients[0], x) / horner(coefficients[1], x)


def chebyshev(coefficients: Sequence[float], t: Any) -> Any:
    """A sum of Chebyshev polynomials of t, which lies from -1 to 1."""
    twice = 2.0 * t
    after: Any = 0.0
    out: Any = coefficients[-1]
    for coefficient in reversed(coefficients[1:-1]):
        out, after = twice * out - after + coefficient, out
    return t * out - after + coefficients[0]


def call(name: str, *values: Any, **attrs: Any) -> Any:
    """A card, by its name, in a derivative rule."""
    return apply(OPS[name], *values, **attrs)


def wide(formula: Callable[..., Any]) -> Callable[..., Any]:
    """An evaluation rule that computes in float64 and rounds the result to the operands' dtype."""

    def evaluate(xp: Any, *operands: Any, **attrs: Any) -> Any:
        given = [xp.astype(x, dtypes.float64.numpy, copy=False) for x in operands]
        out = formula(xp, *given, **attrs)
        return xp.astype(out, as_dtype(operands[0].dtype).numpy, copy=False)

    return evaluate


def special(
    name: str,
    doc: str,
    formula: Callable[..., Any],
    *methods: str,
    vjp: DerivativeRule,
    namespace: str = "special",
    cycles: float = 100.0,
    **facts: Any,
) -> UnaryFunction:
    """The card of a special function and its public function."""
    return unary(
        name,
        doc,
        *methods,
        kinds="real floating",
        evaluate=wide(formula),
        vjp=vjp,
        traits=Trait.COMPOSITE,
        namespace=namespace,
        cycles=cycles,
        **facts,
    )


def binary_special(
    name: str,
    doc: str,
    formula: Callable[..., Any],
    *methods: str,
    vjp: tuple[DerivativeRule, DerivativeRule],
    namespace: str = "special",
    cycles: float = 100.0,
    **facts: Any,
) -> BinaryFunction:
    """The same for a function of two operands."""
    return binary(
        name,
        doc,
        *methods,
        kinds="real floating",
        evaluate=wide(formula),
        vjp=vjp,
        namespace=namespace,
        cycles=cycles,
        **{"traits": Trait.COMPOSITE, **facts},
    )
