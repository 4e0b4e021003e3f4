"""Choosing without branches gives what `np.where` gives, bit by bit."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from weft.ops import masks

DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int32, np.int8, np.bool_]
DTYPES += [np.complex64, np.complex128]
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 1.0, -2.5]


def numbers(size: int, dtype: Any, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    drawn = rng.normal(size=size) * 10
    drawn[rng.random(size) < 0.4] = rng.choice(
        SPECIAL[:2] if np.dtype(dtype).kind in "ib" else SPECIAL
    )
    with np.errstate(all="ignore"):
        return drawn.astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("shape", [(), (3,), (1000,), (40, 50), (0, 4)])
def test_where(dtype: Any, shape: tuple[int, ...]) -> None:
    size = int(np.prod(shape))
    mask = (np.random.default_rng(1).random(size) < 0.5).reshape(shape)
    a, b = (numbers(size, dtype, seed).reshape(shape) for seed in (2, 3))
    same(masks.where(mask, a, b), np.where(mask, a, b))
    same(masks.where(mask.T, a.T, b.T), np.where(mask.T, a.T, b.T))
    one = np.ones((), dtype)
    same(masks.where(mask, a, one), np.where(mask, a, one))
    if dtype is not np.bool_:
        same(masks.keep(np, mask, a), np.where(mask, a, np.zeros((), dtype)))


def test_broadcast_masks() -> None:
    a, b = (numbers(2000, np.float32, seed).reshape(40, 50) for seed in (1, 2))
    for mask in (np.arange(50) % 3 == 0, (np.arange(40) % 3 == 0)[:, None], np.array(True)):
        same(masks.where(mask, a, b), np.where(mask, a, b))
        same(masks.keep(np, mask, a), np.where(mask, a, np.float32(0)))


def same(mine: Any, theirs: Any) -> None:
    assert mine.dtype == theirs.dtype
    assert mine.shape == theirs.shape
    assert np.ascontiguousarray(mine).tobytes() == np.ascontiguousarray(theirs).tobytes()
