"""Draws of `weft.random`: their distributions, the same numbers in every mode, derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special as special
import scipy.stats as stats

import weft

R = weft.random
COUNT = 4000

#: Each draw of COUNT numbers, and the distribution it should have.
DRAWS: dict[str, tuple[Any, Any]] = {
    "exponential": (lambda **g: R.exponential(2.0, (COUNT,), **g), stats.expon(scale=0.5)),
    "laplace": (lambda **g: R.laplace(1.0, 2.0, (COUNT,), **g), stats.laplace(1, 2)),
    "gumbel": (lambda **g: R.gumbel(1.0, 2.0, (COUNT,), **g), stats.gumbel_r(1, 2)),
    "cauchy": (lambda **g: R.cauchy(1.0, 2.0, (COUNT,), **g), stats.cauchy(1, 2)),
    "log_normal": (lambda **g: R.log_normal(1.0, 0.5, (COUNT,), **g), stats.lognorm(0.5, 0, np.e)),
    "truncated": (
        lambda **g: R.truncated_normal(0.0, 1.0, 1.0, 6.0, (COUNT,), **g),
        stats.truncnorm(1, 6),
    ),
    "gamma small": (lambda **g: R.gamma(0.3, 2.0, (COUNT,), **g), stats.gamma(0.3, scale=2)),
    "gamma": (lambda **g: R.gamma(4.5, 0.5, (COUNT,), **g), stats.gamma(4.5, scale=0.5)),
    "beta": (lambda **g: R.beta(0.5, 2.0, (COUNT,), **g), stats.beta(0.5, 2)),
    "student_t": (lambda **g: R.student_t(3.0, 1.0, 2.0, (COUNT,), **g), stats.t(3, 1, 2)),
    "dirichlet": (
        lambda **g: R.dirichlet(weft.asarray([0.5, 1.0, 2.0]), (COUNT,), **g)[:, 1],
        stats.beta(1.0, 2.5),
    ),
    "poisson small": (lambda **g: R.poisson(3.0, (COUNT,), **g), stats.poisson(3)),
    "poisson": (lambda **g: R.poisson(60.0, (COUNT,), **g), stats.poisson(60)),
    "binomial small": (lambda **g: R.binomial(8, 0.7, (COUNT,), **g), stats.binom(8, 0.7)),
    "binomial": (lambda **g: R.binomial(200, 0.7, (COUNT,), **g), stats.binom(200, 0.7)),
    "geometric": (lambda **g: R.geometric(0.3, (COUNT,), **g), stats.geom(0.3)),
    "categorical": (
        lambda **g: R.categorical(weft.log(weft.asarray([0.1, 0.0, 0.3, 0.6])), (COUNT,), **g),
        stats.rv_discrete(values=([0, 2, 3], [0.1, 0.3, 0.6])),
    ),
    "choice": (
        lambda **g: R.choice(4, (COUNT,), p=weft.asarray([0.1, 0.0, 0.3, 0.6]), **g),
        stats.rv_discrete(values=([0, 2, 3], [0.1, 0.3, 0.6])),
    ),
}


@pytest.mark.parametrize("name", DRAWS)
def test_the_distribution(name: str) -> None:
    """The largest distance of the distribution functions: above this limit once in 10,000 seeds."""
    draw, wanted = DRAWS[name]
    x = draw(generator=weft.Generator(seed=3)).numpy().astype(np.float64)
    at = np.unique(x)
    found = np.searchsorted(np.sort(x), at, side="right") / COUNT
    before = np.searchsorted(np.sort(x), at, side="left") / COUNT
    cdf = wanted.cdf(at)
    distance = np.abs(found - cdf).max()
    if isinstance(getattr(wanted, "dist", None), stats.rv_continuous):
        distance = max(distance, np.abs(before - cdf).max())
    assert distance < 2.23 / np.sqrt(COUNT)


@pytest.mark.parametrize("name", DRAWS)
def test_the_same_numbers_in_every_mode(name: str) -> None:
    draw, _ = DRAWS[name]

    def step(x: weft.Tensor) -> weft.Tensor:
        return draw() + x

    zero = weft.asarray(0.0)
    found = []
    for call in (step, *(weft.compile(step, backend=b) for b in ("interpret", "native"))):
        weft.manual_seed(5)
        call(zero)
        found.append(call(zero).numpy())  # the second call has its own numbers
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(found[0], found[2], rtol=1e-5, atol=1e-6)


def test_vmap_draws_for_each_element() -> None:
    alpha = weft.asarray([0.5, 3.0, 40.0])
    with_one = weft.Generator(seed=1)
    found = weft.vmap(lambda a: R.gamma(a, shape=(4,), generator=with_one))(alpha)
    again = weft.Generator(seed=1)
    want = weft.stack([R.gamma(a, shape=(4,), generator=again) for a in alpha])
    np.testing.assert_array_equal(found.numpy(), want.numpy())


@pytest.mark.parametrize("alpha", [0.05, 0.7, 3.0, 19.0, 25.0, 900.0])
def test_gamma_numbers_follow_alpha(alpha: float) -> None:
    """The derivative is that of the quantile at a fixed probability."""
    a = weft.asarray(alpha, dtype=weft.float64).requires_grad_()
    x = R.gamma(a, shape=(20,), generator=weft.Generator(seed=2))
    values = x.detach().numpy()
    step = 1e-6 * alpha
    chance = special.gammainc(alpha, values)
    good = (chance > 1e-9) & (chance < 1 - 1e-4)
    want = (
        special.gammaincinv(alpha + step, chance) - special.gammaincinv(alpha - step, chance)
    ) / (2 * step)
    for i in np.flatnonzero(good):
        (found,) = weft.autograd.grad([x[int(i)]], [a], retain_graph=True)
        np.testing.assert_allclose(found.numpy(), want[i], rtol=2e-5)


@pytest.mark.parametrize("function", ["gammainc", "gammaincc"])
def test_the_incomplete_gamma_functions_have_a_slope_in_both(function: str) -> None:
    a, x = np.array([0.3, 2.0, 30.0, 700.0]), np.array([0.1, 4.0, 25.0, 720.0])
    mine, theirs = getattr(weft.special, function), getattr(special, function)
    slope = weft.grad(lambda a, x: weft.sum(mine(a, x)), argnums=(0, 1))
    found = slope(*(weft.asarray(v) for v in (a, x)))
    for got, steps in zip(found, ((1, 0), (0, 1)), strict=True):
        first, second = (1e-5 * step * v for step, v in zip(steps, (a, x), strict=True))
        want = (theirs(a + first, x + second) - theirs(a - first, x - second)) / (
            2 * (first + second)
        )
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)


def test_gradients_of_gamma_numbers_are_the_same_compiled() -> None:
    def loss(a: weft.Tensor) -> weft.Tensor:
        return weft.sum(R.beta(a, 2.0, (5,)) + weft.sum(R.dirichlet(a + 1.0), axis=-1))

    alpha = weft.asarray([0.5, 1.0, 2.0, 3.0, 4.0])
    found = []
    slope = weft.grad(loss)
    for call in (slope, weft.compile(slope, backend="native")):
        weft.manual_seed(0)
        found.append(call(alpha).numpy())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


def test_choices_without_replacement_are_distinct() -> None:
    for p in (None, weft.asarray([0.5, 0.1, 0.1, 0.1, 0.2])):
        drawn = R.choice(5, (5,), replace=False, p=p, generator=weft.Generator(seed=0))
        assert sorted(drawn.tolist()) == [0, 1, 2, 3, 4]
    rows = weft.asarray([[1, 2, 3], [4, 5, 6]])
    assert R.choice(rows, (2, 2), axis=1).shape == (2, 2, 2)
    assert sorted(weft.randperm(6).tolist()) == list(range(6))


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: R.gamma(-1.0), "alpha must be positive"),
        (lambda: R.gamma(weft.asarray([1.0, -1.0])), "alpha must be positive"),
        (lambda: R.exponential(0.0), "rate must be positive"),
        (lambda: R.poisson(weft.asarray([-1.0])), "rates must be"),
        (lambda: R.binomial(2.5, 0.5), "whole numbers"),
        (lambda: R.binomial(2, 1.5), "from 0 to 1"),
        (lambda: R.choice(3, (4,), replace=False), "different elements"),
        (lambda: R.categorical(weft.asarray(1.0)), "axis of categories"),
        (lambda: R.normal(weft.ones(3), weft.ones(4)), "broadcast"),
        (lambda: R.laplace(weft.ones(3), weft.ones(4)), "broadcast"),
        (lambda: R.gamma(2.0, dtype=weft.int64), "floating"),
    ],
)
def test_errors(call: Any, complaint: str) -> None:
    with pytest.raises(weft.errors.WeftError, match=complaint):
        call()
