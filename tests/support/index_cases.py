"""Indices with the shapes they are applied to."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft


def ints(*values: Any, dtype: Any = np.int64) -> np.ndarray[Any, Any]:
    return np.array(values, dtype=dtype)


#: (shape of x, index). The indices name some places twice.
INDICES: list[tuple[tuple[int, ...], Any]] = [
    ((), ()),
    ((), ...),
    ((5,), 2),
    ((5,), -1),
    ((5,), slice(1, None, 2)),
    ((5,), slice(None, None, -1)),
    ((5,), slice(3, 3)),
    ((3, 4), (1, slice(2))),
    ((3, 4), (..., 0)),
    ((3, 4), (slice(None), None, slice(1, 3))),
    ((2, 3, 4), (0, ..., slice(None, None, 2))),
    ((5,), ints(4, 0, 0, -1)),
    ((5,), ints([0, 1], [1, 1])),
    ((5,), ints(dtype=np.int64)),
    ((5,), ints(1, 4, 1, dtype=np.uint8)),
    ((3, 4), ints(2, 0, 2)),
    ((3, 4), (slice(None), ints(3, 3, 0))),
    ((2, 3, 4), (slice(None), ints([2, 0], [0, 0]))),
    ((3, 4), (ints(0, 2, 0), ints(1, 1, 1))),
    ((3, 4), (ints([0], [2]), ints(1, -1, 1))),
    ((3, 4), (ints(0, 0), slice(1, 3))),
    ((3, 4), (slice(1, None), ints(0, 0))),
    ((2, 3, 4), (ints(1, 1), slice(None), ints(0, 0))),
    ((2, 3, 4), (1, ints(0, 0, 2))),
    ((2, 3, 4), (ints(0, 1, 1), None, 2)),
    ((2, 3, 4), (..., ints(0, 3, 3))),
    ((3, 4), np.array([True, False, True])),
    ((2, 2), np.array([[True, False], [True, True]])),
    ((3, 4), (slice(None), np.array([True, False, True, False]))),
    ((3,), np.array(True)),
    ((3,), np.array(False)),
]


IDS = [f"{shape}{index!r}".replace("\n", "") for shape, index in INDICES]


def numbers(shape: tuple[int, ...], complex: bool = False, seed: int = 0) -> weft.Tensor:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=shape)
    return weft.asarray(values + 1j * rng.normal(size=shape) if complex else values)
