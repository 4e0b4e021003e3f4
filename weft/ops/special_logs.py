"""Products with logarithms that are 0 where their factor is 0."""

from __future__ import annotations

from typing import Any

from weft.ops.special_define import binary_special, special

__all__ = ["entr", "xlog1py", "xlogy"]


def _xlogy(xp: Any, x: Any, y: Any) -> Any:
    return xp.where((x == 0) & ~xp.isnan(y), 0.0, x * xp.log(y))


def _xlog1py(xp: Any, x: Any, y: Any) -> Any:
    return xp.where((x == 0) & ~xp.isnan(y), 0.0, x * xp.log1p(y))


def _entr(xp: Any, x: Any) -> Any:
    some = -x * xp.log(xp.where(x > 0, x, 1.0))
    return xp.where(x < 0, -xp.inf, xp.where(x == 0, 0.0, some))


def _entr_vjp(xp: Any, g: Any, _out: Any, x: Any) -> Any:
    return g * (-xp.log(x) - 1)


def _ratio(xp: Any, g: Any, x: Any, below: Any) -> Any:
    """g x / below, and 0 where x is 0."""
    zero = x == 0
    return xp.where(zero & (below == 0), 0, g * x) / xp.where(zero & (below == 0), 1, below)


xlogy = binary_special(
    "xlogy",
    """x1 log(x2), and 0 where x1 is 0, unless x2 is NaN.

    >>> weft.xlogy(weft.asarray([0.0, 2.0]), weft.asarray([0.0, 1.0]))
    tensor([0., 0.])
    """,
    _xlogy,
    "xlogy",
    vjp=(
        lambda xp, g, _out, x1, x2: xp.where((x1 == 0) & (x2 <= 0), 0, g * xp.log(x2)),
        lambda xp, g, _out, x1, x2: _ratio(xp, g, x1, x2),
    ),
    namespace="",
    cycles=20.0,
)
xlog1py = binary_special(
    "xlog1py",
    """x1 log(1 + x2), and 0 where x1 is 0, unless x2 is NaN.

    >>> weft.special.xlog1py(weft.asarray([0.0, 2.0]), weft.asarray([-1.0, 0.0]))
    tensor([0., 0.])
    """,
    _xlog1py,
    vjp=(
        lambda xp, g, _out, x1, x2: xp.where((x1 == 0) & (x2 <= -1), 0, g * xp.log1p(x2)),
        lambda xp, g, _out, x1, x2: _ratio(xp, g, x1, 1 + x2),
    ),
    cycles=20.0,
)
entr = special(
    "entr",
    """-x log(x), 0 at 0 and -inf below: the terms of an entropy.

    >>> weft.special.entr(weft.asarray([0.0, 0.5]))
    tensor([0.       , 0.3465736])
    """,
    _entr,
    vjp=_entr_vjp,
    cycles=20.0,
)
