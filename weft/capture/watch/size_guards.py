"""Guards on symbolic sizes: comparisons of expressions, as text for the generated check."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, NamedTuple

import numpy as np

from weft.base.asked_sizes import SizeFact
from weft.base.dataclass import dataclass
from weft.base.dim_algebra import Dim, constant_term
from weft.capture.watch.origin import Origin
from weft.core.tensor import Tensor, wrap

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


class SizePlace(NamedTuple):
    """An axis of a tensor from outside; `size` is what it is in the recording."""

    origin: Origin
    axis: int
    size: Dim

    @property
    def text(self) -> str:
        """The place, as a user reads it."""
        if self.origin.key is rows_of:  # a number
            return self.origin.text
        return f"axis {self.axis} of {self.origin.text}"


def rows_of(count: int) -> Tensor:
    """A tensor of so many empty rows: as an input of a graph, it tells a number that is a size."""
    return wrap(np.empty((count, 0), np.int8))


Find = Callable[[str], SizePlace | None]


@dataclass(frozen=True)
class SizeGuard:
    """A fact about sizes.

    failing   Python text that is true where it does not hold; {0.shape[1]} stands for a size
    says      the fact, as a user reads it
    names     of the names in it: the text of its number, and where it is found
    fact      the fact itself; None for what is said of one axis
    """

    failing: str
    says: str
    names: tuple[tuple[str, str, str], ...]
    fact: SizeFact | None = field(default=None, compare=False)

    @classmethod
    def of_fact(cls, fact: SizeFact, find: Find) -> tuple[SizeGuard, tuple[Origin, ...]] | None:
        """None where some name is not found."""
        texts = _Texts(find)
        left, right = texts.of(fact.left), texts.of(fact.right)
        if left is None or right is None:
            return None
        failing = f"{left} {_OPPOSITE[fact.sign]} {right}"
        return cls(failing, str(fact), texts.names(), fact), texts.origins

    @classmethod
    def of_axis(
        cls, place: SizePlace, tells: bool, find: Find
    ) -> tuple[SizeGuard, tuple[Origin, ...]] | None:
        """That an axis has a size. Where it tells the size's name, the name is in its bounds; None
        where that holds of any size."""
        size, texts = place.size, _Texts(find)
        at = texts.size(place)
        where = place.text
        if not tells:
            wanted = texts.of(size)
            if wanted is None:
                return None
            says = f"{where} is {size}"
            names = (*texts.names(), (where, at, ""))
            return cls(f"{at} != {wanted}", says, names), texts.origins
        factor, constant = _linear(size)
        atom = size._terms[0][0][0]
        name = texts.of(Dim((((atom,), 1),)))
        tests: list[str] = []
        if factor != 1:
            tests.append(f"({at}{-constant:+d}) % {factor}" if constant else f"{at} % {factor}")
        if atom.low is not None and (atom.low > 0 or constant > 0 or factor != 1):
            tests.append(f"{name} < {atom.low}")
        if atom.high is not None:
            tests.append(f"{name} > {atom.high}")
        if not tests:
            return None
        bounds = "" if atom.high is None else f" and {atom.text} <= {atom.high}"
        says = f"{where} is {size}, {atom.text} >= {atom.low}{bounds}"
        return cls(" or ".join(tests), says, texts.names()), texts.origins

    def found(self, tensors: Sequence[Any]) -> str:
        """After a failure: the fact, and the sizes now."""
        shapes = {f"_{i}": tensor for i, tensor in enumerate(tensors)}
        now: list[str] = []
        for name, text, where in self.names:
            try:
                number = eval(_inserted(text, lambda i: f"_{i}._data"), {}, dict(shapes))
            except Exception:
                continue
            now.append(f"{name} is {number}" + (f" ({where})" if where else ""))
        return f"{self.says} does not hold: {', '.join(dict.fromkeys(now))}"

    def test(self, others: Sequence[str]) -> str:
        return _inserted(self.failing, lambda i: f"{others[i]}._data")


_PLACE = re.compile(r"\{(\d+)\}")


def _inserted(text: str, place: Callable[[int], str]) -> str:
    return _PLACE.sub(lambda found: place(int(found[1])), text)


def _linear(size: Dim) -> tuple[int, int]:
    return size._terms[0][1], constant_term(size)


class _Texts:
    """Python text for expressions of sizes, with places for the tensors that tell them."""

    def __init__(self, find: Find) -> None:
        self.find = find
        self.origins: tuple[Origin, ...] = ()
        self._known: dict[str, tuple[str, str]] = {}

    def size(self, place: SizePlace) -> str:
        if not any(place.origin is origin for origin in self.origins):
            self.origins = (*self.origins, place.origin)
        number = next(i for i, origin in enumerate(self.origins) if origin is place.origin)
        return f"{{{number}}}.shape[{place.axis}]"

    def name(self, name: str) -> str | None:
        if name not in self._known:
            place = self.find(name)
            if place is None:
                return None
            factor, constant = _linear(place.size)
            text = self.size(place)
            if constant:
                text = f"({text}{-constant:+d})"
            if factor != 1:
                text = f"({text}//{factor})"
            self._known[name] = text, place.text
        return self._known[name][0]

    def of(self, size: int) -> str | None:
        if not isinstance(size, Dim):
            return str(size)
        texts = {name: self.name(name) for name in size.names}
        if None in texts.values():
            return None
        plain = str(size).isidentifier()
        text = _NAME.sub(lambda found: texts.get(found[0]) or found[0], str(size))
        return text if plain else f"({text})"

    def names(self) -> tuple[tuple[str, str, str], ...]:
        return tuple([(name, text, where) for name, (text, where) in self._known.items()])
