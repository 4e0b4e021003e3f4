"""Random numbers are distributed as promised. The seeds are fixed: these tests cannot flicker."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from random_reference import doubles, generator

import weft
from weft.base.dtypes import DType


def kolmogorov_smirnov(values: np.ndarray[Any, Any], cdf: np.ndarray[Any, Any]) -> float:
    """The largest distance of the empirical distribution from `cdf`, times sqrt(n)."""
    order = np.argsort(values)
    n = values.size
    steps = np.arange(n)
    above, below = (steps + 1) / n - cdf[order], cdf[order] - steps / n
    return float(max(above.max(), below.max()) * math.sqrt(n))


KS_LIMIT = 1.95  # exceeded once in 1,000 seeds


@pytest.mark.parametrize("dtype", [weft.float32, weft.float64])
@pytest.mark.parametrize("seed", [0, 1, 2**63])
def test_uniform_distribution(dtype: DType, seed: int) -> None:
    x = doubles(weft.rand(50_000, dtype=dtype, generator=generator(seed)))
    assert kolmogorov_smirnov(x, x) < KS_LIMIT
    assert abs(x.mean() - 0.5) < 4 / math.sqrt(12 * x.size)
    assert abs(x.var() - 1 / 12) < 4 / math.sqrt(180 * x.size)


@pytest.mark.parametrize("dtype", [weft.float32, weft.float64])
@pytest.mark.parametrize("seed", [0, 1, 2**63])
def test_normal_distribution(dtype: DType, seed: int) -> None:
    x = doubles(weft.randn(50_000, dtype=dtype, generator=generator(seed)))
    cdf = np.array([0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x])
    assert kolmogorov_smirnov(x, cdf) < KS_LIMIT
    n = x.size
    z = (x - x.mean()) / x.std()
    assert abs(x.mean()) < 4 / math.sqrt(n)
    assert abs(x.var() - 1) < 4 * math.sqrt(2 / n)
    assert abs((z**3).mean()) < 4 * math.sqrt(6 / n)
    assert abs((z**4).mean() - 3) < 4 * math.sqrt(24 / n)


def test_normal_tails() -> None:
    x = np.abs(doubles(weft.randn(1_000_000, generator=generator(4))))
    for limit in (1.0, 2.0, 3.0, 4.0):
        expected = math.erfc(limit / math.sqrt(2)) * x.size
        assert abs((x > limit).sum() - expected) < 4 * math.sqrt(expected)
    assert x.max() < 6.8


def test_complex_normal_distribution() -> None:
    x = doubles(weft.randn(50_000, dtype=weft.complex64, generator=generator()))
    assert abs((np.abs(x) ** 2).mean() - 1) < 4 / math.sqrt(x.size)
    assert abs((x**2).mean()) < 4 / math.sqrt(x.size)
    assert abs(x.real.var() - 0.5) < 4 / math.sqrt(2 * x.size)


def chi_square(counts: np.ndarray[Any, Any]) -> float:
    """The statistic in standard deviations from its mean."""
    expected = counts.sum() / counts.size
    free = counts.size - 1
    return float((((counts - expected) ** 2 / expected).sum() - free) / math.sqrt(2 * free))


@pytest.mark.parametrize(("low", "high"), [(0, 2), (-3, 4), (0, 100), (0, 1000)])
def test_randint_distribution(low: int, high: int) -> None:
    x = weft.randint(low, high, (100_000,), generator=generator(6)).numpy()
    assert x.min() == low
    assert x.max() == high - 1
    assert abs(chi_square(np.bincount(x - low, minlength=high - low))) < 4


@pytest.mark.parametrize("p", [0.5, 0.01, 0.999, 1e-4])
def test_bernoulli_distribution(p: float) -> None:
    x = weft.bernoulli(p, (200_000,), generator=generator(1)).numpy()
    assert abs(x.sum() - p * x.size) < 4 * math.sqrt(p * (1 - p) * x.size)


def test_permutation_distribution() -> None:
    g = generator(2)
    counts = np.zeros((4,) * 4, dtype=int)
    for _ in range(2400):
        counts[tuple(weft.permutation(4, generator=g).tolist())] += 1
    seen = counts[counts > 0]
    assert seen.size == 24
    assert abs(chi_square(seen)) < 4


def test_neighbours_are_independent() -> None:
    n = 20_000
    rows = [doubles(weft.randn(n, generator=generator(seed))) for seed in range(8)]
    g = generator(0)
    rows += [doubles(weft.randn(n, generator=g)) for _ in range(3)][1:]
    rows += [doubles(weft.randn(n, generator=generator(2**32))), rows[0] ** 2 - 1]
    correlations = np.corrcoef(rows) - np.eye(len(rows))
    assert np.abs(correlations).max() < 4.5 / math.sqrt(n)
    for lag in (1, 2, 3, 4, 5, 8):
        for row in (rows[0], np.abs(rows[0]) - math.sqrt(2 / math.pi)):
            assert abs((row[lag:] * row[:-lag]).mean()) < 4 / math.sqrt(n)
