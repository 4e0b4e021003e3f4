"""multinomial: weights, the same choices in every mode, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import RangeError, WeftError

WEIGHTS = np.array([[0.0, 3.0, 1.0, 4.0], [2.0, 0.0, 0.0, 1.0]], dtype=np.float32)


def choose(replacement: bool) -> Any:
    def f(weights: weft.Tensor) -> weft.Tensor:
        return weft.multinomial(weights, 2, replacement)

    return f


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("backend", ["native", "interpret"])
def test_the_same_choices_in_every_mode(replacement: bool, backend: str) -> None:
    f = choose(replacement)
    weft.manual_seed(3)
    eager = [f(weft.asarray(WEIGHTS)).numpy() for _ in range(3)]
    weft.manual_seed(3)
    compiled = weft.compile(f, backend=backend)
    for want in eager:
        np.testing.assert_array_equal(compiled(weft.asarray(WEIGHTS)).numpy(), want)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_frequencies_are_the_weights(dtype: Any) -> None:
    weft.manual_seed(0)
    weights = weft.asarray(np.array([1, 2, 0, 3, 4], dtype=dtype))
    found = weft.multinomial(weights, 20_000, replacement=True)
    shares = np.bincount(found.numpy(), minlength=5) / 20_000
    np.testing.assert_allclose(shares, [0.1, 0.2, 0, 0.3, 0.4], atol=0.015)


def test_without_replacement() -> None:
    weft.manual_seed(0)
    weights = np.array([1.0, 2.0, 0.0, 3.0, 4.0])
    rows = weft.multinomial(weft.asarray(np.tile(weights, (20_000, 1))), 2).numpy()
    assert (rows[:, 0] != rows[:, 1]).all()
    share = weights / weights.sum()
    first = np.bincount(rows[:, 0], minlength=5) / len(rows)
    np.testing.assert_allclose(first, share, atol=0.015)
    # the probability that j comes second: the sum over i of p_i · p_j / (1 - p_i)
    pairs = share[:, None] * share / (1 - share[:, None])
    np.fill_diagonal(pairs, 0)
    second = np.bincount(rows[:, 1], minlength=5) / len(rows)
    np.testing.assert_allclose(second, pairs.sum(axis=0), atol=0.015)


def test_rows_are_drawn_apart() -> None:
    weft.manual_seed(0)
    f = weft.vmap(lambda w: weft.multinomial(w, 3, replacement=True))
    found = f(weft.ones((40, 50))).numpy()
    assert len({tuple(row) for row in found}) > 30


@pytest.mark.parametrize("backend", [None, "native"])
@pytest.mark.parametrize("weights", [[-1.0, 2.0], [np.nan, 1.0], [np.inf, 1.0], [0.0, 0.0]])
def test_wrong_weights(weights: Any, backend: str | None) -> None:
    f = choose(True)
    run = f if backend is None else weft.compile(f, backend=backend)
    with pytest.raises(RangeError, match=r"multinomial: .*weight"):
        run(weft.asarray(weights))


def test_wrong_calls() -> None:
    with pytest.raises(RangeError, match="3 positions cannot be chosen from 2"):
        weft.multinomial(weft.ones(2), 3)
    with pytest.raises(RangeError, match="2 of the weights must be above 0"):
        weft.multinomial(weft.asarray([1.0, 0.0]), 2)
    with pytest.raises(WeftError, match="the weights are int64"):
        weft.multinomial(weft.asarray([1, 2]), 1)
