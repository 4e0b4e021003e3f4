"""What a recording answers where code asks how large a symbolic size is.

A recording with symbolic sizes is made in one call, in which each name has a number: its hint.
Where code asks what depends on a size (`if T > 4`, `T % 2 == 0`, `int(T)`), the hint gives the
answer, and the answer becomes a fact that later calls must agree with. A fact says no more than
what was asked. Facts that follow from earlier ones are not noted again.

>>> T = weft.dim("T")
>>> sizes = weft.base.asked_sizes.AskedSizes({"T": 6})
>>> with weft.base.asked_sizes.asking(sizes):
...     T > 4, T > 2, T % 2 == 0
(True, True, True)
>>> sizes.facts
[T > 4, T%2 == 0]
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from weft.base import dim_algebra
from weft.base.dataclass import dataclass
from weft.base.dim_algebra import Dim, bounds, decide, replaced
from weft.base.dims import dims_in
from weft.base.growing_sizes import MOST, first_of, grows
from weft.base.polynomials import Atom
from weft.base.size_questions import asked

_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


@dataclass(frozen=True)
class SizeFact:
    """A comparison of two sizes that holds for a recording."""

    left: int
    sign: str
    right: int

    def __repr__(self) -> str:
        return f"{self.left} {self.sign} {self.right}"

    @property
    def names(self) -> tuple[str, ...]:
        found = {*getattr(self.left, "names", ()), *getattr(self.right, "names", ())}
        return tuple(sorted(found))

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether it holds for these sizes, which are those of all names in it."""
        return _holds(replaced(self.left - self.right, sizes), self.sign)


class _Known:
    """What is known of the values of one expression."""

    def __init__(self) -> None:
        self.low = -math.inf
        self.high = math.inf
        self.holes: set[int] = set()


class DataSizes(Protocol):
    """What answers for sizes that depend on data.

    infers  whether the question comes from a type rule
    """

    infers: bool

    def tells(self, name: str) -> bool:
        """Whether the number of a name is known in this call."""
        ...

    def number(self, name: str) -> int | None:
        """The number of a name in this call; None where it is not known."""
        ...

    def holds(self, gap: Dim, sign: str) -> bool | None:
        """Whether a size compares to 0 like this, as a question of the recording; None where it
        cannot ask."""
        ...


class NotEmpty:
    """For code that is right for tensors with elements: calls with empty ones are not its own."""

    infers = True

    def tells(self, _name: str) -> bool:
        return False

    def number(self, _name: str) -> int | None:
        return None

    def holds(self, _gap: Dim, _sign: str) -> bool | None:
        return None


class AskedSizes:
    """The hints of one recording, and the facts that came of questions.

    facts       what later calls must agree with, in the order in which it was asked
    relations   names that the answers define: the number or the expression that each stands for.
                The recording is to be made again with them in place of the names
    unsolved    equalities that define no name: min(T,4) == 4. Types that rely on them are not
                equal as they are written
    parts       for those with a quotient or a remainder: what to write for a name, T as 2*T_by_2
    note        is told of each new fact
    data        answers for sizes that depend on data. Its answers are no facts, as no guard can
                check them
    asked_data  the names of such sizes that were asked for as numbers
    """

    def __init__(
        self,
        hints: Mapping[str, int],
        note: Callable[[SizeFact], None] | None = None,
        data: DataSizes | None = None,
    ) -> None:
        self.hints = dict(hints)
        self.facts: list[SizeFact] = []
        self.relations: dict[str, int] = {}
        self.unsolved: list[SizeFact] = []
        self.parts: dict[str, int] = {}
        self.note = note
        self.data = data
        self.asked_data: set[str] = set()
        self._known: dict[int, _Known] = {}

    def hint(self, value: int) -> int | None:
        """The value in this call; None where it depends on data."""
        found = replaced(value, self.hints)
        return None if isinstance(found, Dim) else found

    def compare(self, left: int, right: float, sign: str) -> bool | None:
        """Whether the comparison holds; None where no hint tells."""
        if isinstance(right, float):  # of whole numbers: T < 2.5 is T < 3
            right = math.ceil(right) if sign in ("<", ">=") else math.floor(right)
        gap = self.hint(left - right)
        if gap is None:
            return self._compare_data(left - right, right, sign)
        answer = _holds(gap, sign)
        self._hold(left, right, sign if answer else _OPPOSITE[sign])
        return answer

    def equal(self, left: Dim, right: float) -> bool:
        """Whether two sizes are equal that are not written alike."""
        if isinstance(right, float):
            if not right.is_integer():
                return False
            right = int(right)
        low, high = bounds(left - right)
        if (low is not None and low > 0) or (high is not None and high < 0):
            return False
        return self.compare(left, right, "==") is True

    def number(self, value: Dim) -> int | None:
        """The size as a number: from now on it is this one."""
        found = self.hint(value)
        if found is None:
            return self._of_data(value)
        self._hold(value, found, "==")
        return found

    def _compare_data(self, gap: int, right: float, sign: str) -> bool | None:
        assert isinstance(gap, Dim)
        if self.data is None:
            return None
        with_zero = not isinstance(right, Dim) and right == 0
        if with_zero and sign in ("==", "!=") and self.data.infers:
            return sign == "!="  # whether a tensor is empty is left to the run
        if not all(name in self.hints or self.data.tells(name) for name in gap.names):
            return None  # of the body of a loop
        answer = self.data.holds(gap, "!=" if sign == "==" else sign)
        if sign != "==" and answer is not None:
            return answer
        if answer is not None and (answer or with_zero):
            return not answer
        # Sizes that are equal, but not as they are written, are asked as numbers.
        found = self._of_data(gap)
        return None if found is None else _holds(found, sign)

    def _of_data(self, value: int) -> int | None:
        """The value of an expression with sizes that depend on data; None where it is not known."""
        found: Any = replaced(value, self.hints)
        if self.data is None or found.__class__ is not Dim:
            return None
        numbers = {name: self.data.number(name) for name in found.names}
        known = {name: number for name, number in numbers.items() if number is not None}
        if len(known) < len(numbers):
            return None
        self.asked_data.update(known)
        whole = replaced(found, known)
        return None if isinstance(whole, Dim) else whole

    def _hold(self, left: int, right: int, sign: str) -> None:
        core, constant, factor = _normal(left - right)
        if factor < 0 and sign in _MIRRORED:
            sign = _MIRRORED[sign]
        known = self._known.setdefault(core, _Known())
        if _narrowed(known, -constant / abs(factor) if factor > 0 else constant / -factor, sign):
            fact = SizeFact(left, sign if factor > 0 else _MIRRORED.get(sign, sign), right)
            self.facts.append(fact)
            if self.note is not None:
                self.note(fact)
            if sign == "==":
                self._relate(fact)
            elif known.low == known.high:  # no other size is left
                self._relate(SizeFact(core, "==", int(known.low)))

    def _relate(self, fact: SizeFact) -> None:
        """Note what an equality says of the names in it."""
        gap = replaced(fact.left - fact.right, self.relations)
        if not isinstance(gap, Dim):
            return
        found = _solved(gap)
        if found:
            self.relations = {n: replaced(v, found) for n, v in self.relations.items()} | found
            return
        self.unsolved.append(fact)
        for atom in _atoms(gap):
            over, by = atom.args
            name = over.names[0] if isinstance(over, Dim) and len(over.names) == 1 else ""
            if atom.kind == "max":
                self.compare(over, 0, ">=")
            elif name and not isinstance(by, Dim) and by > 1 and name not in self.parts:
                part = Atom("name", f"{name}_by_{by}", (), 0)
                self.hints[part.text], rest = divmod(self.hints[name], by)
                self.parts[name] = dim_algebra.of_atom(part) * by + rest

    def least(self, size: Dim) -> int:
        """What the answers so far say of the smallest value of an expression."""
        core, constant, factor = _normal(size)
        known = self._known.get(core)
        if known is None or factor < 0 or known.low == -math.inf:
            return 0
        return int(known.low) * factor + constant

    def bounds(self) -> dict[str, tuple[int, int | None]]:
        """The smallest and the largest size for which the answers hold, by name."""
        found: dict[str, tuple[int, int | None]] = {}
        for core, known in self._known.items():
            names = core.names if isinstance(core, Dim) else ()
            if len(names) != 1 or known.low >= known.high or not grows(core, names[0]):
                continue
            (name,) = names
            if (hint := self.hints.get(name)) is None:
                continue
            low, high = found.get(name, (0, None))
            if known.low > -math.inf:
                low = max(low, first_of(core, name, int(known.low), 0, hint))
            if known.high < math.inf:
                beyond = first_of(core, name, int(known.high) + 1, hint, MOST)
                if beyond < MOST:
                    high = beyond - 1 if high is None else min(high, beyond - 1)
            found[name] = low, high
        return {name: ends for name, ends in found.items() if ends[0] != ends[1]}


_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _holds(gap: int, sign: str) -> bool:
    if sign in ("==", "!="):
        return (gap == 0) is (sign == "==")
    if sign in ("<", "<="):
        return gap < 0 if sign == "<" else gap <= 0
    return gap > 0 if sign == ">" else gap >= 0


def _normal(gap: int) -> tuple[int, int, int]:
    """core, constant and factor, with gap = core * factor + constant."""
    assert isinstance(gap, Dim)
    constant = dim_algebra.constant_term(gap)
    rest = gap - constant
    assert isinstance(rest, Dim)
    factors = [k for _, k in rest._terms]
    factor = math.gcd(*factors) * (1 if factors[0] > 0 else -1)
    return rest // factor, constant, factor


def _narrowed(known: _Known, at: float, sign: str) -> bool:
    """Take in that a value is `sign` a number; False if that was known."""
    low: float
    if sign in ("==", "!="):
        if sign == "==":
            if known.low == known.high == at:
                return False
            known.low = known.high = at
            return True
        if at != int(at) or at in known.holes or not known.low <= at <= known.high:
            return False
        known.holes.add(int(at))
        return True
    if sign in (">", ">="):
        low = math.floor(at) + 1 if sign == ">" else math.ceil(at)
        if low <= known.low:
            return False
        known.low = low
        return True
    high = math.ceil(at) - 1 if sign == "<" else math.floor(at)
    if high >= known.high:
        return False
    known.high = high
    return True


def _atoms(size: Dim) -> Iterator[Atom]:
    """The quotients, remainders and maxima in an expression."""
    for monomial, _ in size._terms:
        for atom in monomial:
            if atom.kind != "name":
                yield atom


def _solved(gap: Dim) -> dict[str, int]:
    """A name for which `gap == 0` can be solved, with what it stands for; empty: there is none."""
    found: list[tuple[tuple[int, ...], str, int]] = []
    for monomial, factor in gap._terms:
        if len(monomial) != 1 or monomial[0].kind != "name" or factor not in (1, -1):
            continue
        name = monomial[0].text
        rest = gap - dim_algebra.of_atom(monomial[0]) * factor
        if isinstance(rest, Dim) and name in rest.names:
            continue
        value = -rest if factor == 1 else rest
        terms = value._terms if isinstance(value, Dim) else ()
        rank = (len(terms), sum(k < 0 for _, k in terms))
        found.append((rank, name, value))
    if not found:
        return {}
    # The simplest value; of two names, the later one is replaced.
    best = min(rank for rank, _, _ in found)
    _, name, value = [entry for entry in found if entry[0] == best][-1]
    return {name: value}


def same_size(a: int, b: int) -> bool:
    """Whether two sizes are equal whatever the names stand for. It asks nothing."""
    if a.__class__ is Dim:
        return b.__class__ is Dim and a._terms == b._terms
    return b.__class__ is not Dim and a == b


def same_shape(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether two shapes are equal whatever the names stand for. It asks nothing."""
    if asked.sizes is None:
        return a == b
    return len(a) == len(b) and all(map(same_size, a, b))


def is_less(a: int, b: int) -> bool:
    """Whether a < b, for checks: where it depends on sizes, a recording is asked.

    Elsewhere it is False then, so that the check is left to the run.
    """
    if isinstance(a, Dim) or isinstance(b, Dim):
        found = decide(a, b, "<")
        if found is None and asked.sizes is not None and asked.sizes.hint(b - a) is not None:
            found = asked.sizes.compare(a, b, "<")
        return found is True
    return a < b


def least(size: int) -> int:
    """A number that a length is not below, as far as it is known."""
    low = bounds(size)[0] or 0
    if isinstance(size, Dim) and asked.sizes is not None:
        low = max(low, asked.sizes.least(size))
    return low


def number_of(size: int) -> int | None:
    """A size as a number: from now on it is this one. None where nobody knows it."""
    if not isinstance(size, Dim):
        return size
    return None if asked.sizes is None else asked.sizes.number(size)


def numbers_of(tree: Any) -> Any:
    """A tree of tuples, lists and dicts with numbers in the place of symbolic sizes."""
    if asked.sizes is None or next(dims_in(tree), None) is None:
        return tree
    if isinstance(tree, Dim):
        return operator.index(tree)
    if isinstance(tree, tuple):
        parts = [numbers_of(part) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    if isinstance(tree, list):  # others may hold the list
        tree[:] = [numbers_of(part) for part in tree]
    elif isinstance(tree, dict):
        for key, part in tree.items():
            tree[key] = numbers_of(part)
    return tree


@contextlib.contextmanager
def asking(sizes: AskedSizes | None) -> Iterator[None]:
    """Inside, questions about symbolic sizes are answered by these hints, in this thread."""
    before, asked.sizes = asked.sizes, sizes
    try:
        yield
    finally:
        asked.sizes = before


def active() -> AskedSizes | None:
    """What answers questions in this thread; None where nothing does."""
    return asked.sizes
