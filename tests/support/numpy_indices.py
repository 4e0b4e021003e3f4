"""Indices that NumPy takes, and the array they are applied to."""

from __future__ import annotations

from typing import Any

import numpy as np

X = np.arange(2 * 3 * 4).reshape(2, 3, 4)


I = np.array  # noqa: E741 - as short as the rows below need it


INDICES: list[Any] = [
    0,
    -1,
    (1, 2),
    (1, 2, 3),
    (..., -1),
    (0, ...),
    ...,
    (),
    None,
    (None, 0, None),
    (slice(None), None),
    slice(1, None),
    slice(None, None, -1),
    slice(5, 1),
    (slice(None), slice(None, None, 2), slice(None, None, -2)),
    (slice(-2, None), 1),
    (..., slice(1, 3)),
    I([0, 1, 1]),
    I([[0, -1], [1, 0]]),
    (I([0, 1]), I([2, 0])),
    (I([0, 1]), 2),
    (slice(None), I([0, 2])),
    (I([0, 1]), slice(None), I([0, 3])),
    (0, slice(None), I([0, 3])),
    (slice(None), 0, I([0, 3])),
    (None, I([1, 0]), I([[0], [2]])),
    (..., I([0, 3])),
    (I([1, 0]), ...),
    (I([0]), None, I([1])),
    I(1),
    (I(1), slice(None), I(2)),
    I([], dtype=np.int64),
    X > 7,
    X[:, :, 0] > 3,
    I([True, False]),
    (I([True, False]), slice(1, None)),
    (slice(None), I([True, False, True])),
    (..., I([True, False, True, True])),
    (I([True, True]), I([0, 2])),
    np.zeros((2, 3, 4), dtype=bool),
    True,
    False,
    (True, 0),
    (slice(None), True),
    (..., False),
    I(True),
    np.int32(1),
    [0, 1],
    [True, False],
    (slice(None), [0, 2]),
    I([0, 1], dtype=np.uint8),
]
