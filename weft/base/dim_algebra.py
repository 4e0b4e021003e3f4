"""Sizes that are not known yet: integer expressions over named dimensions.

A `Dim` is a polynomial with integer coefficients over atoms. An atom is a name, or a quotient,
remainder, maximum or minimum that could not be simplified. Each expression has one normal form, so
equality and hash are structural. Equal Dims have the same value for all sizes. Dims that are not
equal may still have the same value, if the algebra here cannot prove it. A result that is constant
is a plain int.

`weft.base.dims` has the functions to create, print, parse, solve and substitute them.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable, Iterator, Mapping
from numbers import Integral
from typing import TYPE_CHECKING, Any

from weft.base import polynomials
from weft.base.errors import ShapeError, UnknownSizeError
from weft.base.polynomials import Atom, Bound, Term, Terms, order, product
from weft.base.size_questions import asked, undecided

if TYPE_CHECKING:
    # For type checkers a Dim is an int, so arithmetic on sizes is written once for both, and
    # `Shape` stays a tuple of ints. At run time it must not be one: C code would read its value.
    Integer = int
else:
    Integer = object


_WHOLE: Any  # what Dims compute with; Any, because all of these are ints to type checkers
_NUMBERS: Any  # what Dims are compared with


class Dim(Integer):
    """An integer expression over named dimensions. Make one with `weft.dim`.

    Arithmetic gives a Dim, or an int if the result is constant. Comparisons use the bounds of the
    names, and raise an error if the answer depends on the sizes. Equality compares names, not
    bounds: the bounds belong to the object, and are used to simplify and to compare.

    >>> B = weft.dim("B")
    >>> 2 * B + 1, (2 * B) // 2, B - B, (B + 3) // 2
    (2*B+1, B, 0, (B+3)//2)
    """

    __slots__ = ("_hash", "_terms", "_text")
    __array_ufunc__ = None  # NumPy's numbers leave `number + dim` to us

    _terms: tuple[Term, ...]  # in order, without zeros
    _hash: int
    _text: str

    def __init__(self, terms: tuple[Term, ...]) -> None:
        self._terms = terms
        self._hash = hash(terms)
        self._text = ""  # printed when asked for

    # --- equality and text --------------------------------------------------------------------

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object, /) -> bool:
        if self is other:
            return True
        if isinstance(other, Dim):
            if self._hash == other._hash and self._terms == other._terms:
                return True
        elif not isinstance(other, _NUMBERS):
            return NotImplemented
        return asked.sizes is not None and asked.sizes.equal(self, other)

    def __repr__(self) -> str:
        if not self._text:
            self._text = _printed(self)
        return self._text

    __str__ = __repr__

    def __format__(self, spec: str, /) -> str:
        return format(repr(self), spec)

    def __reduce__(self) -> Any:
        return Dim, (self._terms,)

    # --- arithmetic ---------------------------------------------------------------------------

    def __add__(self, other: int, /) -> int:
        if not isinstance(other, _WHOLE):
            return self._with(other, operator.add)
        terms = dict(self._terms)
        for monomial, coefficient in _terms_of(other):
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return sum_of(terms)

    def __mul__(self, other: int, /) -> int:
        if not isinstance(other, _WHOLE):
            return self._with(other, operator.mul)
        terms: Terms = {}
        for first, a in self._terms:
            for second, b in _terms_of(other):
                monomial = product(first, second)
                terms[monomial] = terms.get(monomial, 0) + a * b
        return sum_of(terms)

    def __neg__(self) -> int:
        return Dim(tuple((monomial, -coefficient) for monomial, coefficient in self._terms))

    def __sub__(self, other: int, /) -> int:
        return self + -other if isinstance(other, _WHOLE) else self._with(other, operator.sub)

    def __rsub__(self, other: int, /) -> int:
        return -self + other if isinstance(other, _WHOLE) else self._with(other, operator.sub, True)

    __radd__ = __add__
    __rmul__ = __mul__

    def __pos__(self) -> int:
        return self

    def __abs__(self) -> int:
        return dim_max(self, -self)

    def __pow__(self, power: int, modulo: None = None, /) -> int:  # type: ignore[override]
        return math.prod([self] * power) if isinstance(power, _WHOLE) else NotImplemented

    def __floordiv__(self, other: int, /) -> int:
        return (
            _quotient(self, other)
            if isinstance(other, _WHOLE)
            else self._with(other, operator.floordiv)
        )

    def __rfloordiv__(self, other: int, /) -> int:
        return (
            _quotient(other, self)
            if isinstance(other, _WHOLE)
            else self._with(other, operator.floordiv, True)
        )

    def __mod__(self, other: int, /) -> int:
        return (
            _remainder(self, other)
            if isinstance(other, _WHOLE)
            else self._with(other, operator.mod)
        )

    def __rmod__(self, other: int, /) -> int:
        return (
            _remainder(other, self)
            if isinstance(other, _WHOLE)
            else self._with(other, operator.mod, True)
        )

    def __divmod__(self, other: int, /) -> tuple[int, int]:
        return self // other, self % other

    def __truediv__(self, other: Any, /) -> Any:
        return self._number() / other if isinstance(other, _NUMBERS) else NotImplemented

    def __rtruediv__(self, other: Any, /) -> Any:
        return other / self._number() if isinstance(other, _NUMBERS) else NotImplemented

    # --- what depends on the size -------------------------------------------------------------

    def __lt__(self, other: int, /) -> bool:
        return self._compare(other, "<")

    def __le__(self, other: int, /) -> bool:
        return self._compare(other, "<=")

    def __gt__(self, other: int, /) -> bool:
        return self._compare(other, ">")

    def __ge__(self, other: int, /) -> bool:
        return self._compare(other, ">=")

    def _compare(self, other: Any, sign: str) -> bool:
        if not isinstance(other, _NUMBERS):
            unknown: bool = NotImplemented
            return unknown
        decided = decide(self, other, sign)
        if decided is None:
            decided = None if asked.sizes is None else asked.sizes.compare(self, other, sign)
        if decided is None:
            raise undecided(f"whether {self} {sign} {other}", self.names)
        return decided

    def __bool__(self) -> bool:
        low, high = bounds(self)
        if (low is None or low <= 0) and (high is None or high >= 0):
            decided = None if asked.sizes is None else asked.sizes.compare(self, 0, "!=")
            if decided is None:
                raise undecided(f"whether {self} is 0", self.names)
            return decided
        return True

    def __index__(self) -> int:
        return self._number()

    __int__ = __index__

    def __float__(self) -> float:
        return float(self._number())

    def _with(self, other: Any, operation: Any, swapped: bool = False) -> int:
        """Of a float and the size as a number; other operands, such as tensors, compute by
        themselves."""
        if not isinstance(other, float):
            unknown: int = NotImplemented
            return unknown
        mine = self._number()
        made: int = operation(other, mine) if swapped else operation(mine, other)
        return made

    def _number(self) -> int:
        """The size as a number, where a recording answers."""
        found = None if asked.sizes is None else asked.sizes.number(self)
        if found is not None:
            return found
        raise UnknownSizeError(
            f"the size {self} is not known as a number before the graph runs",
            hint=f"use it in shapes, with + - * // %, or with tensors (x / {self} works), "
            "or give the axis a fixed size",
        )

    # --- what it is made of -------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        """The names in it, sorted."""
        return tuple(sorted({atom.text for atom in names_of(self)}))

    @property
    def bounds(self) -> tuple[Bound, Bound]:
        """The smallest and largest possible value; None for an unknown bound."""
        return bounds(self)

    def evaluate(self, bindings: Mapping[str, int]) -> int:
        """Its value for these sizes of the names, which may be symbolic themselves."""
        value = replaced(self, bindings)
        if isinstance(value, Dim):
            missing = ", ".join(name for name in self.names if name not in bindings)
            if missing:
                raise ShapeError(f"{self} has no value: the size of {missing} is not given")
        return value


_WHOLE = (int, Dim, Integral)
_NUMBERS = (int, Dim, Integral, float)


def names_of(value: int) -> Iterator[Atom]:
    """The atoms of the names in a size, some of them more than once."""
    if isinstance(value, Dim):
        for monomial, _ in value._terms:
            for atom in monomial:
                if atom.kind == "name":
                    yield atom
                for arg in atom.args:
                    yield from names_of(arg)


# --- polynomials -------------------------------------------------------------------------------


def _terms_of(value: int) -> Iterable[Term]:
    if isinstance(value, Dim):
        return value._terms
    return (((), int(value)),)


def sum_of(terms: Terms) -> int:
    """The sum of these terms: a Dim, or an int if it is constant."""
    kept = [(monomial, k) for monomial, k in terms.items() if k]
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    kept.sort(key=lambda term: order(term[0]))
    return Dim(tuple(kept))


def of_atom(atom: Atom) -> Dim:
    return Dim((((atom,), 1),))


def constant_term(value: int) -> int:
    """The constant term, which is the last."""
    if isinstance(value, Dim):
        monomial, k = value._terms[-1]
        return 0 if monomial else k
    return value


def _divided_by(a: int, b: Dim) -> tuple[int, int]:
    """Expressions q and r with a = b * q + r and as few terms in r as possible."""
    whole, rest = polynomials.divide(_terms_of(a), b._terms)
    return sum_of(whole), sum_of(rest)


def _lone_atom(value: Dim) -> Atom | None:
    """The atom of `atom + constant`."""
    (monomial, k), *rest = value._terms
    alone = k == 1 and len(monomial) == 1 and all(not m for m, _ in rest)
    return monomial[0] if alone else None


# --- quotients and remainders ------------------------------------------------------------------


def _quotient(a: int, b: int) -> int:
    if not isinstance(b, Dim):
        return _quotient_by(a, int(b))
    _check_divisor(b)
    whole, rest = _divided_by(a, b)
    if not isinstance(rest, Dim) and rest == 0:
        return whole
    if decide(rest, 0, ">=") and decide(rest, b, "<"):
        return whole
    return whole + of_atom(_divided("//", rest, b))


def _check_divisor(b: Dim) -> None:
    """A recording is asked whether the divisor is 0; elsewhere it is taken for granted that not."""
    if asked.sizes is not None and not b:
        raise ZeroDivisionError("integer division or modulo by zero")


def _quotient_by(a: int, c: int) -> int:
    """a // c for an int c; terms that c divides are moved out of the quotient."""
    if c < 0:
        a, c = -a, -c
    if c <= 1 or not isinstance(a, Dim):
        return a if c == 1 else a // c  # by 0: Python's own error
    whole: Terms = {}
    rest: Terms = {}
    for monomial, k in a._terms:
        whole[monomial] = k // c if k >= 0 or not monomial else -(-k // c)
        rest[monomial] = k - whole[monomial] * c
    out = sum_of(whole)
    inner = sum_of(rest)
    if not isinstance(inner, Dim):
        return out  # rest is from 0 to c - 1
    if inner._terms[0][1] < 0:
        return out - _quotient_by(-inner + (c - 1), c)
    shared = math.gcd(c, *(k for monomial, k in inner._terms if monomial))
    if shared > 1:
        scaled = {monomial: k // shared for monomial, k in inner._terms}
        return out + _quotient_by(sum_of(scaled), c // shared)
    if c == 2 and constant_term(inner) == 1:  # so that (a + 1) // 2 + a // 2 simplifies to a
        return out + (inner - 1) - _quotient_by(inner - 1, 2)
    atom = _lone_atom(inner)
    if atom is not None and atom.kind == "//" and not isinstance(atom.args[1], Dim):
        below, d = atom.args
        return out + _quotient_by(below + constant_term(inner) * d, d * c)
    low, high = bounds(inner)
    if low is not None and high is not None and low // c == high // c:
        return out + low // c
    return out + of_atom(_divided("//", inner, c))


def _remainder(a: int, b: int) -> int:
    if isinstance(b, Dim):
        _check_divisor(b)
        _, rest = _divided_by(a, b)
        if not isinstance(rest, Dim) and rest == 0:
            return 0
        if decide(rest, 0, ">=") and decide(rest, b, "<"):
            return rest
        return of_atom(_divided("%", rest, b))
    c = int(b)
    if c < 0:
        return -_remainder(-a, -c)
    if not isinstance(a, Dim) or c == 0:
        return constant_term(a) % c  # by 0: Python's own error
    inner = sum_of({monomial: k % c for monomial, k in a._terms})
    if not isinstance(inner, Dim):
        return inner
    shared = math.gcd(c, *(k for _, k in inner._terms))
    if shared > 1:
        scaled = sum_of({monomial: k // shared for monomial, k in inner._terms})
        return _remainder(scaled, c // shared) * shared
    low, high = bounds(inner)
    if low is not None and high is not None and low >= 0 and high < c:
        return inner
    return of_atom(_divided("%", inner, c))


def _divided(kind: str, a: int, b: int) -> Atom:
    low, high = bounds(a)
    least, most = bounds(b)
    text = f"{_factor(a)}{kind}{_factor(b)}"
    if least is None or least < 0:  # the sign is unknown: no bound
        return Atom(kind, text, (a, b))
    least = max(least, 1)  # a divisor is never 0
    if kind == "%":
        top = None if most is None else most - 1
        if low is not None and low >= 0 and high is not None:
            top = high if top is None else min(top, high)
        return Atom(kind, text, (a, b), 0, top)
    if least == most:
        under = None if low is None else low // least
        above = None if high is None else high // least
    elif low is not None and low >= 0:
        under = 0
        above = None if high is None else high // least
    else:
        under = above = None
    return Atom(kind, text, (a, b), under, above)


# --- maximum and minimum -----------------------------------------------------------------------
# Both are written with one atom, max(d, 0), so that max(B, 3) + min(B, 3) simplifies to B + 3.


def dim_max(first: int, second: int) -> int:
    """The larger of two sizes, each an int or a Dim."""
    if first.__class__ is int and second.__class__ is int:
        return first if first >= second else second
    gap = first - second
    return second + _above_0(gap) if _leads(gap) else first + _above_0(-gap)


def dim_min(first: int, second: int) -> int:
    """The smaller of two sizes, each an int or a Dim."""
    if first.__class__ is int and second.__class__ is int:
        return first if first <= second else second
    gap = first - second
    return first - _above_0(gap) if _leads(gap) else second - _above_0(-gap)


def _leads(gap: int) -> bool:
    """Of d and -d, the normal form uses the one whose first coefficient is positive"""
    return gap._terms[0][1] > 0 if isinstance(gap, Dim) else gap > 0


def _above_0(gap: int) -> int:
    """max(gap, 0)"""
    low, high = bounds(gap)
    if low is not None and low >= 0:
        return gap
    if not isinstance(gap, Dim) or (high is not None and high <= 0):
        return 0
    shared = math.gcd(*(k for _, k in gap._terms))
    inner = sum_of({monomial: k // shared for monomial, k in gap._terms})
    top = None if high is None else high // shared
    return of_atom(Atom("max", f"max({inner},0)", (inner, 0), 0, top)) * shared


# --- bounds and comparisons --------------------------------------------------------------------


def decide(a: Any, b: Any, sign: str) -> bool | None:
    """Whether a < b, a <= b, …; None if it depends on the sizes."""
    if isinstance(b, float):
        if math.isinf(b):
            return (b > 0) == (sign in ("<", "<="))
        low, high = bounds(a)
        gap_low = -math.inf if low is None else low - b
        gap_high = math.inf if high is None else high - b
    else:
        low, high = bounds(a - b)
        gap_low = -math.inf if low is None else low
        gap_high = math.inf if high is None else high
    if sign in (">", ">="):
        gap_low, gap_high = -gap_high, -gap_low
    if sign in ("<", ">"):
        return True if gap_high < 0 else False if gap_low >= 0 else None
    return True if gap_high <= 0 else False if gap_low > 0 else None


def bounds(value: int, depth: int = 3) -> tuple[Bound, Bound]:
    """The smallest and largest possible value; None for an unknown bound.

    It uses the bounds of the atoms, and how quotients and maxima relate to their arguments:
    c * (a // c) is a minus at most c - 1; a maximum equals one of its arguments, and is not below
    any of them.
    """
    if not isinstance(value, Dim):
        return value, value
    low, high = polynomials.bounds(value._terms)
    # Each level looks at the sum without each of its atoms: of long sums, one level is enough.
    depth = min(depth, 3 if len(value._terms) <= 8 else 1 if len(value._terms) <= 40 else 0)
    if not depth:
        return low, high
    for monomial, k in value._terms:
        atom = monomial[0] if len(monomial) == 1 else None
        if atom is None or atom.kind in ("name", "%"):
            continue
        rest = sum_of({m: c for m, c in value._terms if m != monomial})
        if any(atom in m for m, _ in _terms_of(rest)):
            continue
        a, c = atom.args
        if atom.kind == "max":
            parts = bounds(rest + a * k, depth - 1), bounds(rest, depth - 1)
            found = _of_larger(*parts) if k > 0 else _negated(_of_larger(*map(_negated, parts)))
        elif isinstance(c, Dim):
            continue
        else:
            left = of_atom(Atom("%", f"({a})%{c}", (), 0, c - 1))
            under, above = bounds(rest * c + (a - left) * k, depth - 1)
            found = (
                None if under is None else -(-under // c),
                None if above is None else above // c,
            )
        low = found[0] if low is None else low if found[0] is None else max(low, found[0])
        high = found[1] if high is None else high if found[1] is None else min(high, found[1])
    return low, high


def _of_larger(first: tuple[Bound, Bound], second: tuple[Bound, Bound]) -> tuple[Bound, Bound]:
    """The bounds of the larger of two values."""
    lows = [bound for bound in (first[0], second[0]) if bound is not None]
    highs = [bound for bound in (first[1], second[1]) if bound is not None]
    return max(lows, default=None), max(highs) if len(highs) == 2 else None


def _negated(of: tuple[Bound, Bound]) -> tuple[Bound, Bound]:
    low, high = of
    return None if high is None else -high, None if low is None else -low


def known_less(a: int, b: int) -> bool:
    """Whether a < b for all sizes; False if it depends on them."""
    if isinstance(a, Dim) or isinstance(b, Dim):
        return decide(a, b, "<") is True
    return a < b


# --- values and text ---------------------------------------------------------------------------


def replaced(value: int, bindings: Mapping[str, int]) -> int:
    """The expression with these names replaced; other names stay."""
    if not isinstance(value, Dim):
        return value
    total = 0
    for monomial, k in value._terms:
        value_of_term = k
        for atom in monomial:
            value_of_term = value_of_term * _value_of(atom, bindings)
        total = total + value_of_term
    return total


def _value_of(atom: Atom, bindings: Mapping[str, int]) -> int:
    if atom.kind == "name":
        found = bindings.get(atom.text)
        return of_atom(atom) if found is None else found
    first, second = (replaced(arg, bindings) for arg in atom.args)
    if atom.kind == "//":
        return first // second
    return first % second if atom.kind == "%" else dim_max(first, second)


def _factor(value: int) -> str:
    """The text of an operand of // and %, in brackets where needed."""
    text = str(value)
    plain = text.isidentifier() or text.isdecimal() or re.fullmatch(r"(max|min)\([^()]*\)", text)
    return text if plain else f"({text})"


def _printed(value: Dim) -> str:
    """The text of a sum. Constants are moved into quotients and maxima, where people write them."""
    maxima = [(m, k) for m, k in value._terms if any(atom.kind == "max" for atom in m)]
    if len(maxima) == 1 and len(maxima[0][0]) == 1 and abs(maxima[0][1]) == 1:
        monomial, k = maxima[0]
        rest = sum_of({m: c for m, c in value._terms if m != monomial})
        parts = sorted((rest, rest + monomial[0].args[0] * k), key=_argument_order)
        return f"{'max' if k > 0 else 'min'}({','.join(map(str, parts))})"
    quotients = [(m, k) for m, k in value._terms if any(atom.kind == "//" for atom in m)]
    if len(quotients) == 1 and len(quotients[0][0]) == 1:
        (atom,), k = quotients[0]
        below, c = atom.args
        rest = sum_of({m: c for m, c in value._terms if m != (atom,)})
        if k == 1 and not isinstance(rest, Dim) and not isinstance(c, Dim):
            return f"{_factor(below + rest * c)}//{c}"
        shift = rest - below
        if k == -1 and not isinstance(shift, Dim) and c == 2:
            return f"{_factor(below + 1 + 2 * shift)}//2"
    text = ""
    for monomial, k in value._terms:
        factors = [f"({part.text})" if part.kind in ("//", "%") else part.text for part in monomial]
        if len(factors) == 1 and k == 1:
            factors = [monomial[0].text]  # a quotient needs no brackets in a sum
        if abs(k) != 1 or not factors:
            factors.insert(0, str(abs(k)))
        text += ("-" if k < 0 else "+" if text else "") + "*".join(factors)
    return text


def _argument_order(value: int) -> Any:
    return not isinstance(value, Dim), str(value)
