"""Guards on symbolic sizes: comparisons of expressions, as text for the generated check."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.base.asked_sizes import SizeFact
from weft.base.dim_algebra import Dim, constant_term, of_atom
from weft.base.dims import dim
from weft.capture.watch.origin import Origin
from weft.core.tensor import Tensor, wrap

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
#: The size of the axis that a guard is about, as a name beside those of symbolic sizes.
_AXIS = dim("_axis")


class SizePlace(NamedTuple):
    """An axis of a tensor from outside; `size` is what it is in the recording, a * name + b."""

    origin: Origin
    axis: int
    size: Dim

    @property
    def text(self) -> str:
        """The place, as a user reads it."""
        if self.origin.key is rows_of:  # a number
            return self.origin.text
        return f"axis {self.axis} of {self.origin.text}"

    def number(self, tensor: Any) -> int:
        """The number of the name."""
        found: int = (tensor._data.shape[self.axis] - constant_term(self.size)) // _factor(
            self.size
        )
        return found

    def number_text(self, tensor: str) -> str:
        """The same as Python text."""
        text = f"{tensor}._data.shape[{self.axis}]"
        constant, factor = constant_term(self.size), _factor(self.size)
        if constant:
            text = f"({text}{-constant:+d})"
        return text if factor == 1 else f"({text}//{factor})"


def _factor(size: Dim) -> int:
    return size._terms[0][1]


def rows_of(count: int) -> Tensor:
    """A tensor of so many empty rows: as an input of a graph, it tells a number that is a size."""
    return wrap(np.empty((count, 0), np.int8))


class SizeGuard(NamedTuple):
    """What holds of sizes.

    facts   comparisons, all of which hold
    says    the same, as a user reads it
    places  of each name in them: where its number is found
    fact    what the code has asked; None for what is said of one axis
    """

    facts: tuple[SizeFact, ...]
    says: str
    places: dict[str, SizePlace]
    fact: SizeFact | None = None

    @property
    def origins(self) -> tuple[Origin, ...]:
        """Those of the tensors that tell the names."""
        return tuple(dict.fromkeys(place.origin for place in self.places.values()))

    def test(self, others: Sequence[str]) -> str:
        """Python text that is true where it does not hold, of the texts of those tensors."""
        tensors = dict(zip(self.origins, others, strict=True))
        texts = {n: place.number_text(tensors[place.origin]) for n, place in self.places.items()}

        def text(size: int) -> str:
            made = _NAME.sub(lambda found: texts.get(found[0], found[0]), str(size))
            return f"({made})" if isinstance(size, Dim) else made

        return " or ".join(
            f"{text(fact.left)} {_OPPOSITE[fact.sign]} {text(fact.right)}" for fact in self.facts
        )

    def found(self, tensors: Sequence[Any]) -> str:
        """After a failure: the fact, and the sizes now."""
        at, now = dict(zip(self.origins, tensors, strict=True)), []
        for name, place in self.places.items():
            try:
                number = place.number(at[place.origin])
            except Exception:
                continue
            is_axis = place.size is _AXIS
            told = f"{place.text} is {number}" if is_axis else f"{name} is {number} ({place.text})"
            now.append(told)
        return f"{self.says} does not hold: {', '.join(now)}"


Find = Callable[[str], SizePlace | None]


def of_fact(fact: SizeFact, find: Find) -> SizeGuard | None:
    """The guard for what the code has asked; None where some name is not found."""
    return _made((fact,), str(fact), find, fact)


def of_axis(place: SizePlace, tells: bool, find: Find) -> SizeGuard | None:
    """That an axis has its size. Where it tells the size's name, the name is in its bounds; None
    where that holds of any size."""
    size = place.size
    here = place._replace(size=_AXIS)
    says = f"{place.text} is {size}"
    facts = [SizeFact(_AXIS, "==", size)]
    if tells:
        (atom,), factor = size._terms[0]
        constant, name = constant_term(size), of_atom(atom)
        low, high = atom.low or 0, atom.high
        facts = []
        if factor != 1:
            facts.append(SizeFact((_AXIS - constant) % factor, "==", 0))
        if low > 0 or constant > 0 or factor != 1:
            facts.append(SizeFact(name, ">=", low))
        if high is not None:
            facts.append(SizeFact(name, "<=", high))
        says += f", {atom.text} >= {low}" + ("" if high is None else f" and {atom.text} <= {high}")
    return _made(tuple(facts), says, lambda name: here if name in _AXIS.names else find(name))


def _made(
    facts: tuple[SizeFact, ...], says: str, find: Find, asked: SizeFact | None = None
) -> SizeGuard | None:
    named = dict.fromkeys(name for fact in facts for name in fact.names)
    names = sorted(named, key=_AXIS.names.__contains__)  # the axis comes last
    places = {name: place for name in names if (place := find(name)) is not None}
    return SizeGuard(facts, says, places, asked) if facts and len(places) == len(names) else None
