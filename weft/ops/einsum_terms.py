"""The notation of einsum: subscripts read into one tuple of labels for each operand.

A label is a letter, or a number for the axes that "..." stands for: they are counted from the last
one, as in broadcasting, from 0 down to -1, -2….
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from weft.base.errors import ShapeError

__all__ = ["Labels", "read_sublists", "read_terms"]

Label = str | int
Labels = tuple[Label, ...]

_HINT = "as in 'ij,jk->ik': a letter for each axis, and ... for any others"


@lru_cache(maxsize=1024)
def read_terms(subscripts: str, ndims: tuple[int, ...]) -> tuple[list[Labels], Labels]:
    """The labels of the operands and of the result, from text such as "ij,jk->ik"."""
    text = subscripts.replace(" ", "")
    if text.count("->") > 1 or set(text.replace("->", "")) & set("->"):
        raise ShapeError(f"{subscripts!r} has more than one result", op="einsum", hint=_HINT)
    inputs, arrow, result = text.partition("->")
    terms = [_split(term, subscripts) for term in inputs.split(",")]
    return _numbered(terms, _split(result, subscripts) if arrow else None, ndims, subscripts)


def _split(term: str, subscripts: str) -> list[Any]:
    """Letters, and Ellipsis."""
    parts: list[Any] = []
    before, dots, behind = term.partition("...")
    for text in (before, behind):
        for letter in text:
            if not (letter.isascii() and letter.isalpha()):
                raise ShapeError(
                    f"{letter!r} in {subscripts!r} is not a letter", op="einsum", hint=_HINT
                )
        parts.extend(text)
        if dots and text is before and ... not in parts:
            parts.append(...)
    if dots and ... not in parts:
        parts.append(...)
    return parts


def read_sublists(args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The operands and the terms of einsum(x, [0, 1], y, [1, 2], [0, 2]): labels are numbers.

    The result's labels, if they are given, come last in the terms.
    """
    operands, lists = list(args[::2]), list(args[1::2])
    if len(operands) > len(lists):
        lists.append(operands.pop())
    return operands, [[_letter(part) for part in term] for term in lists]


def _letter(part: Any) -> Any:
    if part is ...:
        return part
    if isinstance(part, int) and 0 <= part < 52:
        return chr(ord("A") + part) if part < 26 else chr(ord("a") + part - 26)
    raise ShapeError(f"{part!r} is no label: use the numbers 0 to 51", op="einsum")


def numbered(
    terms: list[list[Any]], result: list[Any] | None, ndims: Sequence[int]
) -> tuple[list[Labels], Labels]:
    """Labels from sublists."""
    return _numbered(terms, result, ndims, "the sublists")


def _numbered(
    terms: list[list[Any]], result: list[Any] | None, ndims: Sequence[int], said: str
) -> tuple[list[Labels], Labels]:
    if len(terms) != len(ndims):
        raise ShapeError(
            f"{said!r} has {len(terms)} terms, and there are {len(ndims)} operands",
            op="einsum",
            hint=_HINT,
        )
    inputs = [
        _filled(term, ndim, number, said)
        for number, (term, ndim) in enumerate(zip(terms, ndims, strict=True))
    ]
    more = sorted({label for term in inputs for label in term if isinstance(label, int)})
    if result is None:
        letters = [label for term in inputs for label in term if isinstance(label, str)]
        once = sorted(letter for letter in set(letters) if letters.count(letter) == 1)
        return inputs, (*more, *once)
    labels: list[Label] = []
    for label in result:
        labels.extend(more if label is ... else [label])
    known = {label for term in inputs for label in term}
    for label in labels:
        if label not in known:
            raise ShapeError(
                f"{label!r} of the result is in no operand of {said!r}", op="einsum", hint=_HINT
            )
        if labels.count(label) > 1:
            raise ShapeError(f"{label!r} is twice in the result of {said!r}", op="einsum")
    return inputs, tuple(labels)


def _filled(term: list[Any], ndim: int, number: int, said: str) -> Labels:
    """A term with numbers for its "..."."""
    rest = ndim - sum(label is not ... for label in term)
    if rest < 0 or (rest and ... not in term):
        raise ShapeError(
            f"operand {number} has {ndim} axes, and {said!r} names "
            f"{sum(label is not ... for label in term)}",
            op="einsum",
            hint="write ... for axes without a name",
        )
    labels: list[Label] = []
    for label in term:
        labels.extend(range(-rest, 0) if label is ... else [label])
    return tuple(labels)
