"""Numbers for named sizes, where an example of the arguments is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from weft.base.asked_sizes import SizeFact
from weft.base.dim_algebra import Dim, replaced
from weft.ir.types import TensorType

__all__ = ["ATTEMPTS", "example_sizes", "names_in", "replaced_shape"]
__all__ += ["sizes_of_attempt"]

#: Of each attempt to record: the smallest number, and how far apart they are at least. Code may
#: write the number that a size happens to have in one attempt. It needs the numbers of all of them
#: only if it turns the size into a number.
_TABLES = ((5, 1), (37, 14), (19, 22))
ATTEMPTS = range(len(_TABLES))


def example_sizes(types: Sequence[TensorType], facts: Sequence[SizeFact] = ()) -> dict[str, int]:
    """A number for each name of a size: different ones, within its bounds, for which what the
    function asked holds."""
    found = [sizes_of_attempt(types, attempt) for attempt in ATTEMPTS]
    fits = (s for s in found if all(f.holds(s) for f in facts if s.keys() >= {*f.names}))
    return next(fits, found[0])


def sizes_of_attempt(types: Sequence[TensorType], attempt: int) -> dict[str, int]:
    """The numbers of an attempt to record a function."""
    sizes: dict[str, int] = {}
    free = _primes(*_TABLES[attempt])
    for kind in types:
        for size in kind.shape:
            for name, low, high in names_in(size):
                if name not in sizes:
                    found = max(next(free), low)
                    if high is not None and found > high:
                        found = max(low, high - attempt)
                    sizes[name] = found
    return sizes


def _primes(start: int, gap: int) -> Iterator[int]:
    last = start - gap
    for n in range(start, 10**6):
        if n >= last + gap and all(n % k for k in range(2, int(n**0.5) + 1)):
            yield (last := n)


def replaced_shape(shape: Sequence[int], sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple([replaced(size, sizes) for size in shape])


def names_in(size: int) -> list[tuple[str, int, int | None]]:
    """The names in a size, with their bounds."""
    found: list[tuple[str, int, int | None]] = []
    if isinstance(size, Dim):
        for monomial, _ in size._terms:
            for atom in monomial:
                if atom.kind == "name":
                    found.append((atom.text, atom.low or 0, atom.high))
                for part in atom.args:
                    found += names_in(part)
    return found
