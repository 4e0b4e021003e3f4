"""Rows of einsum."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from samples.table import Row, Sample, call, values
from weft.base.dtypes import DType

SIZES = {"i": 2, "j": 3, "k": 4, "l": 2, "m": 3, "b": 2}
#: Products, sums, diagonals, traces, outer products, axes without a name, several operands.
CALLS = [
    *("ij,jk->ik", "ij,jk", "ij,jk,kl", "ii", "ii->i", "iij->ji", "ij->ji", "ij->", "ji", "i,i"),
    *("i,j->ji", "ij,ij->ij", "ij,ij->", "bij,bjk->bik", "ijkl,lj->ik", "i,ij,j", "iji->j"),
    *("...ij,...jk->...ik", "...i->...", "i...,i...->...", "k...i,i->...k", "ij,kl->kjil"),
    *("bij,jk,bkl,lm->bim", "ij, jk -> i"),
]


def shape(term: str) -> tuple[int, ...]:
    before, dots, behind = term.partition("...")
    sizes = [SIZES[letter] for letter in before]
    return (*sizes, *((2, 3) if dots else ()), *(SIZES[letter] for letter in behind))


def samples(dtype: DType) -> Iterable[Sample]:
    for subscripts in CALLS:
        terms = subscripts.replace(" ", "").split("->")[0].split(",")
        yield call(
            subscripts, *(values(shape(t), dtype, -2, 2, seed=n) for n, t in enumerate(terms))
        )
    x, y = values((2, 3), dtype, -2, 2), values((3, 4), dtype, -2, 2)
    yield call(x, [0, 1], y, [1, 2], [2, 0])
    yield call(x, [..., 1], y, [1, 2])
    yield call("ij,jk->ik", values((2, 1), dtype, -2, 2), y)  # axes of size 1 broadcast
    yield call("...i,...i->...", values((2, 1, 3), dtype, -2, 2), values((4, 3), dtype, -2, 2))
    yield call("ij,jk->ik", values((2, 0), dtype), values((0, 4), dtype))
    yield call("ij,jk,kl->il", x, y, values((4, 2), dtype, -2, 2), optimize=False)


def reference(*args: Any, optimize: Any = True) -> Any:
    if isinstance(args[0], str):
        inputs = args[0].replace(" ", "").split("->")[0].split(",")
        if args[1].shape == (2, 1) and inputs[0] == "ij":  # NumPy broadcasts no named axes
            return np.einsum(args[0], np.repeat(args[1], 3, axis=1), args[2])
    return np.einsum(*args)


ROWS = [Row("einsum", reference, samples, "numeric", rtol=64)]
