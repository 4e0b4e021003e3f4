"""Sizes that grow with a name: what a bound of such an expression says of the name.

>>> T = weft.dim("T")
>>> size = (T + 1) // 2 - 2
>>> grow = weft.base.growing_sizes
>>> grow.grows(size, "T"), grow.first_of(size, "T", 3, 0, 100)
(True, 9)
"""

from __future__ import annotations

import math

from weft.base.dim_algebra import Dim, replaced

__all__ = ["MOST", "first_of", "grows"]

#: Sizes are below this, where a bound is looked for.
MOST = 1 << 40


def grows(size: int, name: str) -> bool:
    """Whether an expression of one name never falls where the name grows, as is easily seen."""
    least = 0  # by how much it grows with the name, at least
    for monomial, factor in size._terms if isinstance(size, Dim) else ():
        if not monomial:
            continue
        if len(monomial) != 1:
            return False
        (atom,) = monomial
        if atom.kind == "name":
            least += factor
            continue
        over, by = atom.args
        if factor > 0 and atom.kind in ("//", "max") and not isinstance(by, Dim):
            if not grows(over, name):
                return False
        elif atom.kind == "//" and _slope(over) <= by:
            least += factor  # it grows by 1 at most
        else:
            return False
    return least >= 0


def _slope(size: int) -> float:
    """The factor of the only name in a sum; infinite where the expression is not of that form."""
    terms = [(m, k) for m, k in size._terms if m] if isinstance(size, Dim) else []
    if len(terms) != 1 or len(terms[0][0]) != 1 or terms[0][0][0].kind != "name":
        return math.inf
    return terms[0][1] if terms[0][1] > 0 else math.inf


def first_of(size: int, name: str, least: int, low: int, high: int) -> int:
    """The first number of the name from `low` to `high` for which an expression that grows with it
    is at least `least`; `high` if there is none before that."""
    while low < high:
        middle = (low + high) // 2
        if replaced(size, {name: middle}) >= least:
            high = middle
        else:
            low = middle + 1
    return low
