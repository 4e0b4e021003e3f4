"""Orthogonal polynomials by their recurrences: Chebyshev, Hermite, Laguerre, Legendre.

They are made of other ops, in float64, so that they have derivatives and compile. The degree is a
number; a tensor of degrees is read, and each of its elements picks its polynomial.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable
from typing import Any

from weft.base import dtypes
from weft.base.errors import DTypeError
from weft.base.promotion import result_dtype
from weft.core.operands import Operand, as_tensor, cast
from weft.core.public import public
from weft.core.tensor import Tensor
from weft.ops.cast import astype
from weft.ops.creation import full_like, ones_like
from weft.ops.reduce import max
from weft.ops.select import where
from weft.ops.shape import broadcast_to

__all__ = [
    *("chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v"),
    *("chebyshev_polynomial_w", "hermite_polynomial_h", "hermite_polynomial_he"),
    *("laguerre_polynomial_l", "legendre_polynomial_p", "shifted_chebyshev_polynomial_t"),
    *("shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v"),
    "shifted_chebyshev_polynomial_w",
]

#: (k, x, the polynomial of degree k, that of degree k - 1) -> that of degree k + 1
Step = Callable[[int, Any, Any, Any], Any]
Polynomial = Callable[[Operand, int | Tensor], Tensor]


def _polynomial(name: str, doc: str, first: Callable[[Any], Any], step: Step) -> Polynomial:
    """A public function (x, n). `first` is the polynomial of degree 1; that of degree 0 is 1."""

    def function(x: Operand, n: int | Tensor, /) -> Tensor:
        point = as_tensor(x, name)
        kind = point.dtype.kind
        if kind == "complex":
            raise DTypeError("x is real", op=name, operands=[point.type])
        degrees = astype(n, dtypes.int64, copy=False) if isinstance(n, Tensor) else None
        dtype = result_dtype([point.dtype], ["float"])
        if isinstance(n, Tensor) and n.dtype.kind == "float":
            dtype = result_dtype([dtype, n.dtype], [])
        top = operator.index(n) if degrees is None else int(max(degrees)) if degrees.size else 0
        wide = cast(point, dtypes.float64)
        if degrees is not None:
            wide = wide + cast(degrees, dtypes.float64) * 0  # of the shape of both
            degrees = broadcast_to(degrees, wide.shape)
        before, now = ones_like(wide), first(wide)
        if degrees is None:
            if top < 1:
                return cast(before if top == 0 else before * 0, dtype)
            for k in range(1, top):
                before, now = now, step(k, wide, now, before)
            return cast(now, dtype)
        out = where(degrees == 0, before, full_like(wide, 0.0))
        for k in range(1, builtins.max(top, 0) + 1):
            out = where(degrees == k, now, out)
            before, now = now, step(k, wide, now, before)
        return cast(out, dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    function.__module__ = __name__
    return public(namespace="special")(function)


def _chebyshev(k: int, x: Any, now: Any, before: Any) -> Any:
    return 2.0 * x * now - before


def _shifted(k: int, x: Any, now: Any, before: Any) -> Any:
    return (4.0 * x - 2.0) * now - before


_FIRST: dict[str, Callable[[Any], Any]] = {
    "t": lambda x: x * 1.0,
    "u": lambda x: 2.0 * x,
    "v": lambda x: 2.0 * x - 1.0,
    "w": lambda x: 2.0 * x + 1.0,
}
_KINDS = {"t": "first", "u": "second", "v": "third", "w": "fourth"}


def _chebyshev_pair(letter: str) -> tuple[Polynomial, Polynomial]:
    first, kind = _FIRST[letter], _KINDS[letter]
    name = f"chebyshev_polynomial_{letter}"
    plain = _polynomial(
        name, f"Chebyshev's polynomial of the {kind} kind and of degree n.", first, _chebyshev
    )
    shifted = _polynomial(
        f"shifted_{name}",
        f"Chebyshev's polynomial of the {kind} kind at 2 x - 1, for x from 0 to 1.",
        lambda x: first(2.0 * x - 1.0),
        _shifted,
    )
    return plain, shifted


chebyshev_polynomial_t, shifted_chebyshev_polynomial_t = _chebyshev_pair("t")
chebyshev_polynomial_u, shifted_chebyshev_polynomial_u = _chebyshev_pair("u")
chebyshev_polynomial_v, shifted_chebyshev_polynomial_v = _chebyshev_pair("v")
chebyshev_polynomial_w, shifted_chebyshev_polynomial_w = _chebyshev_pair("w")
hermite_polynomial_h = _polynomial(
    "hermite_polynomial_h",
    "Hermite's polynomial of degree n, as physicists have it.",
    lambda x: 2.0 * x,
    lambda k, x, now, before: 2.0 * (x * now - k * before),
)
hermite_polynomial_he = _polynomial(
    "hermite_polynomial_he",
    "Hermite's polynomial of degree n, as in probability theory.",
    lambda x: x * 1.0,
    lambda k, x, now, before: x * now - k * before,
)
laguerre_polynomial_l = _polynomial(
    "laguerre_polynomial_l",
    "Laguerre's polynomial of degree n.",
    lambda x: 1.0 - x,
    lambda k, x, now, before: ((2 * k + 1 - x) * now - k * before) / (k + 1),
)
legendre_polynomial_p = _polynomial(
    "legendre_polynomial_p",
    """Legendre's polynomial of degree n.

    >>> weft.special.legendre_polynomial_p(weft.asarray([0.0, 0.5, 1.0]), 2)
    tensor([-0.5  , -0.125,  1.   ])
    """,
    lambda x: x * 1.0,
    lambda k, x, now, before: ((2 * k + 1) * x * now - k * before) / (k + 1),
)
