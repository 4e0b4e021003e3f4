"""Polynomials with integer coefficients: the representation of symbolic dimensions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Bound = int | None  # None: there is none


class Atom:
    """A variable of a polynomial. Atoms with equal text are equal."""

    __slots__ = ("args", "high", "kind", "low", "text")

    def __init__(
        self,
        kind: str,
        text: str,
        args: tuple[int, ...] = (),
        low: Bound = None,
        high: Bound = None,
    ) -> None:
        self.kind = kind  # "name", "//", "%", or "max": of its first argument and 0
        self.text = text
        self.args = args
        self.low, self.high = low, high

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Atom) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __reduce__(self) -> Any:
        return Atom, (self.kind, self.text, self.args, self.low, self.high)


Monomial = tuple[Atom, ...]  # a product of atoms, sorted by text; () is 1
Term = tuple[Monomial, int]
Terms = dict[Monomial, int]  # monomials and their coefficients


def _text_of(atom: Atom) -> str:
    return atom.text


def order(monomial: Monomial) -> Any:
    """The sort key of a monomial: higher degrees first, then by name, the constant last."""
    return -len(monomial), [atom.text for atom in monomial]


def product(first: Monomial, second: Monomial) -> Monomial:
    if first and second:
        return tuple(sorted(first + second, key=_text_of))
    return first or second


def divide(a: Iterable[Term], b: Sequence[Term]) -> tuple[Terms, Terms]:
    """Polynomials q and r with a = b * q + r and as few terms in r as possible; b is sorted."""
    lead, k = b[0]
    left = dict(a)
    whole: Terms = {}
    rest: Terms = {}
    while left:
        monomial = min(left, key=order)
        coefficient = left.pop(monomial)
        factor = list(monomial)
        for atom in lead:
            if atom in factor:
                factor.remove(atom)
        if len(factor) != len(monomial) - len(lead) or coefficient % k:
            rest[monomial] = coefficient
            continue
        times = coefficient // k
        whole[tuple(factor)] = times
        for other, c in b[1:]:
            key = product(tuple(factor), other)
            left[key] = left.get(key, 0) - times * c
            if not left[key]:
                del left[key]
    return whole, rest


def bounds(terms: Iterable[Term]) -> tuple[Bound, Bound]:
    """The smallest and largest value that the bounds of the atoms allow."""
    shifted: Terms = {(): 0}
    for monomial, k in terms:  # write each atom as its minimum plus a value >= 0
        expanded: Terms = {(): k}
        for atom in monomial:
            grown = {product(m, (atom,)): c for m, c in expanded.items()}
            if atom.low:
                for m, c in expanded.items():
                    grown[m] = grown.get(m, 0) + c * atom.low
            expanded = grown
        for m, c in expanded.items():
            shifted[m] = shifted.get(m, 0) + c
    low: Bound = shifted.pop(())
    high: Bound = low
    for monomial, k in shifted.items():
        if not k:
            continue
        most: Bound = k  # the value of the term at the far end
        for atom in monomial:
            if atom.low is None:
                return None, None
            most = None if most is None or atom.high is None else most * (atom.high - atom.low)
        if k > 0:
            high = None if high is None or most is None else high + most
        else:
            low = None if low is None or most is None else low + most
    return low, high
