"""`weft.distributions` against PyTorch and SciPy: densities, moments, divergences, samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats as stats
from peer import figures

import weft

D = weft.distributions
Array = np.ndarray[Any, Any]

A, B = [0.5, 1.5, 4.0], [2.0, 0.7, 3.0]
P, LOGITS = [0.2, 0.5, 0.9], [-1.0, 0.3, 2.0]
ROWS = [[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]
MATRIX = [[2.0, 0.3, 0.1], [0.3, 1.0, -0.2], [0.1, -0.2, 0.5]]
COUNTS = [0.0, 1.0, 3.0]

#: class, parameters (both libraries' names), values
CASES: list[tuple[str, dict[str, Any], Any]] = [
    ("Normal", {"loc": [-1.0, 0.0, 2.0], "scale": A}, [0.3, -2.0, 9.0]),
    ("Laplace", {"loc": [-1.0, 0.0, 2.0], "scale": A}, [0.3, -2.0, 9.0]),
    ("Cauchy", {"loc": [-1.0, 0.0, 2.0], "scale": A}, [0.3, -2.0, 9.0]),
    ("Gumbel", {"loc": [-1.0, 0.0, 2.0], "scale": A}, [0.3, -2.0, 9.0]),
    ("StudentT", {"df": [1.5, 3.0, 9.0], "loc": [-1.0, 0.0, 2.0], "scale": A}, [0.3, -2.0, 9.0]),
    ("HalfNormal", {"scale": A}, [0.3, 2.0, 9.0]),
    ("LogNormal", {"loc": [-1.0, 0.0, 1.0], "scale": A}, [0.3, 2.0, 9.0]),
    ("Uniform", {"low": [-1.0, 0.0, 2.0], "high": [1.0, 3.0, 9.0]}, [0.3, 2.0, 8.0]),
    ("Gamma", {"concentration": A, "rate": B}, [0.3, 2.0, 0.5]),
    ("Chi2", {"df": [1.0, 2.5, 9.0]}, [0.3, 2.0, 9.0]),
    ("Exponential", {"rate": A}, [0.3, 2.0, 0.1]),
    ("Weibull", {"scale": A, "concentration": B}, [0.3, 2.0, 9.0]),
    ("Pareto", {"scale": A, "alpha": [2.5, 3.0, 4.0]}, [0.7, 2.0, 9.0]),
    ("Beta", {"concentration1": A, "concentration0": B}, [0.3, 0.01, 0.9]),
    ("Dirichlet", {"concentration": [A, B]}, ROWS),
    ("Bernoulli", {"probs": P}, [0.0, 1.0, 1.0]),
    ("Bernoulli", {"logits": LOGITS}, [0.0, 1.0, 1.0]),
    ("Geometric", {"probs": P}, COUNTS),
    ("Geometric", {"logits": LOGITS}, COUNTS),
    ("Binomial", {"total_count": [3.0, 5.0, 9.0], "probs": P}, COUNTS),
    ("Binomial", {"total_count": [3.0, 5.0, 9.0], "logits": LOGITS}, COUNTS),
    ("Poisson", {"rate": A}, COUNTS),
    ("Categorical", {"probs": ROWS}, [2, 0]),
    ("Categorical", {"logits": [LOGITS, A]}, [2, 0]),
    ("OneHotCategorical", {"logits": [LOGITS, A]}, [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]),
    ("MultivariateNormal", {"loc": A, "covariance_matrix": MATRIX}, [[0.1, 1.0, 3.0], B]),
    ("MultivariateNormal", {"loc": A, "precision_matrix": MATRIX}, [[0.1, 1.0, 3.0], B]),
]
IDS = [f"{name}-{'-'.join(given)}" for name, given, _ in CASES]
PROPERTIES = ("mean", "variance", "stddev", "mode", "batch_shape", "event_shape")


def tensor(value: Any, library: Any = weft) -> Any:
    whole = isinstance(value, list) and isinstance(value[0], int)
    kind = library.int64 if whole else library.float64
    return (
        library.asarray(value, dtype=kind) if library is weft else library.tensor(value, dtype=kind)
    )


def build(library: Any, name: str, given: dict[str, Any]) -> Any:
    where = weft.distributions if library is weft else library.distributions
    return getattr(where, name)(**{key: tensor(value, library) for key, value in given.items()})


def facts(library: Any, name: str, given: dict[str, Any], value: Any) -> dict[str, Any]:
    """All that a distribution says of itself, in either library."""
    d = build(library, name, given)
    found: dict[str, Any] = {"log_prob": d.log_prob(tensor(value, library))}
    for key in PROPERTIES:
        try:
            found[key] = getattr(d, key)
        except NotImplementedError:
            continue
        if key.endswith("shape"):
            found[key] = np.array(found[key], dtype=np.int64)
    for key, argument in (("entropy", None), ("cdf", value), ("icdf", P)):
        try:
            method = getattr(d, key)
            found[key] = method() if argument is None else method(tensor(argument, library))
        except (NotImplementedError, ValueError, RuntimeError, TypeError):
            continue
    return found


def plain(value: Any) -> Array:
    return value.detach().numpy() if hasattr(value, "detach") else np.asarray(value)


@pytest.mark.parametrize(("name", "given", "value"), CASES, ids=IDS)
def test_as_in_pytorch(name: str, given: dict[str, Any], value: Any) -> None:
    key = f"distribution_{name}_{'_'.join(given)}"
    want = figures(key, lambda torch: facts(torch, name, given, value))
    found = facts(weft, name, given, value)
    for what in sorted(set(want) & set(found)):
        if what == "mode" and name in ("Dirichlet", "Bernoulli", "Weibull"):
            continue  # where several are most probable, libraries differ
        np.testing.assert_allclose(
            plain(found[what]), want[what], rtol=2e-6, atol=1e-7, err_msg=what
        )
    assert set(want) - set(found) <= {"entropy"}, "PyTorch knows more"


#: Two of a kind, to be compared.
PAIRS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("Normal", {"loc": A, "scale": B}, {"loc": B, "scale": A}),
    ("LogNormal", {"loc": A, "scale": B}, {"loc": B, "scale": A}),
    ("HalfNormal", {"scale": B}, {"scale": A}),
    ("Laplace", {"loc": A, "scale": B}, {"loc": B, "scale": A}),
    ("Gumbel", {"loc": A, "scale": B}, {"loc": B, "scale": A}),
    ("Exponential", {"rate": A}, {"rate": B}),
    ("Gamma", {"concentration": A, "rate": B}, {"concentration": B, "rate": A}),
    ("Chi2", {"df": A}, {"df": B}),
    (
        "Beta",
        {"concentration1": A, "concentration0": B},
        {"concentration1": B, "concentration0": A},
    ),
    ("Dirichlet", {"concentration": [A]}, {"concentration": [B]}),
    ("Uniform", {"low": [0.0, 0.0], "high": [1.0, 3.0]}, {"low": [-1.0, 0.0], "high": [2.0, 2.0]}),
    ("Bernoulli", {"probs": P}, {"logits": LOGITS}),
    ("Geometric", {"probs": P}, {"logits": LOGITS}),
    ("Binomial", {"total_count": [3.0], "probs": P}, {"total_count": [3.0], "probs": P[::-1]}),
    ("Poisson", {"rate": A}, {"rate": B}),
    ("Categorical", {"probs": ROWS}, {"probs": ROWS[::-1]}),
    ("OneHotCategorical", {"probs": ROWS}, {"probs": ROWS[::-1]}),
    (
        "MultivariateNormal",
        {"loc": A, "covariance_matrix": MATRIX},
        {"loc": B, "precision_matrix": MATRIX},
    ),
]


@pytest.mark.parametrize(("name", "first", "second"), PAIRS, ids=[row[0] for row in PAIRS])
def test_divergences_as_in_pytorch(name: str, first: Any, second: Any) -> None:
    def work(torch: Any) -> dict[str, Any]:
        p, q = build(torch, name, first), build(torch, name, second)
        return {"kl": torch.distributions.kl_divergence(p, q)}

    want = figures(f"distribution_kl_{name}", work)["kl"]
    found = D.kl_divergence(build(weft, name, first), build(weft, name, second))
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-6, atol=1e-12)


#: Samples whose marginal distribution SciPy knows.
SAMPLES: dict[str, tuple[Any, Any]] = {
    "Normal": (lambda: D.Normal(1.0, 2.0), stats.norm(1, 2)),
    "Laplace": (lambda: D.Laplace(1.0, 2.0), stats.laplace(1, 2)),
    "Cauchy": (lambda: D.Cauchy(1.0, 2.0), stats.cauchy(1, 2)),
    "Gumbel": (lambda: D.Gumbel(1.0, 2.0), stats.gumbel_r(1, 2)),
    "StudentT": (lambda: D.StudentT(3.0, 1.0, 2.0), stats.t(3, 1, 2)),
    "HalfNormal": (lambda: D.HalfNormal(2.0), stats.halfnorm(scale=2)),
    "LogNormal": (lambda: D.LogNormal(0.5, 0.8), stats.lognorm(0.8, scale=np.exp(0.5))),
    "Uniform": (lambda: D.Uniform(-1.0, 3.0), stats.uniform(-1, 4)),
    "Gamma": (lambda: D.Gamma(0.6, 2.0), stats.gamma(0.6, scale=0.5)),
    "Chi2": (lambda: D.Chi2(3.0), stats.chi2(3)),
    "Exponential": (lambda: D.Exponential(2.0), stats.expon(scale=0.5)),
    "Weibull": (lambda: D.Weibull(2.0, 1.5), stats.weibull_min(1.5, scale=2)),
    "Pareto": (lambda: D.Pareto(2.0, 1.5), stats.pareto(1.5, scale=2)),
    "Beta": (lambda: D.Beta(0.5, 1.5), stats.beta(0.5, 1.5)),
    "mixture": (
        lambda: D.MixtureSameFamily(
            D.Categorical(weft.asarray([1.0, 0.0])), D.Normal(weft.asarray([1.0, 9.0]), 2.0)
        ),
        stats.norm(1, 2),
    ),
    "transformed": (
        lambda: D.TransformedDistribution(
            D.Normal(0.0, 1.0), [D.transforms.AffineTransform(1.0, -2.0)]
        ),
        stats.norm(1, 2),
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_samples(name: str) -> None:
    make, wanted = SAMPLES[name]
    x = make().sample((4000,), generator=weft.Generator(seed=11)).numpy()
    assert x.shape == (4000,)
    assert stats.kstest(x, wanted.cdf).pvalue > 1e-3
    at = np.array([0.1, 0.5, 2.0, 2.5])
    found = make().log_prob(weft.asarray(at)) if name not in ("Pareto", "Beta") else None
    if found is not None:
        np.testing.assert_allclose(found.numpy(), wanted.logpdf(at), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["Bernoulli", "Geometric", "Binomial", "Poisson"])
def test_means_of_counts(name: str) -> None:
    given = next(given for known, given, _ in CASES if known == name)
    d = build(weft, name, given)
    x = d.sample((8000,), generator=weft.Generator(seed=1)).numpy()
    room = 5 * np.sqrt(d.variance.numpy() / 8000)
    assert (np.abs(x.mean(axis=0) - d.mean.numpy()) < room).all()
    np.testing.assert_allclose(x.var(axis=0), d.variance.numpy(), rtol=0.15)


def test_vectors() -> None:
    d = D.MultivariateNormal(tensor(A), covariance_matrix=tensor(MATRIX))
    x = d.sample((20000,), generator=weft.Generator(seed=4)).numpy()
    np.testing.assert_allclose(np.cov(x.T), MATRIX, atol=0.05)
    hot = D.OneHotCategorical(tensor(ROWS)).sample((2000,), generator=weft.Generator(seed=0))
    np.testing.assert_allclose(hot.numpy().mean(axis=0), ROWS, atol=0.05)
    mean = D.Dirichlet(tensor([A, B])).sample((4000,), generator=weft.Generator(seed=0)).numpy()
    np.testing.assert_allclose(
        mean.mean(axis=0), np.array([A, B]) / np.sum([A, B], 1)[:, None], atol=0.03
    )


REPARAMETERIZED = [
    (name, given) for name, given, _ in CASES if getattr(D, name).has_rsample or name == "LogNormal"
]


@pytest.mark.parametrize(
    ("name", "given"), REPARAMETERIZED, ids=lambda v: v if isinstance(v, str) else ""
)
def test_samples_follow_their_parameters(name: str, given: dict[str, Any]) -> None:
    """The gradient of a mean over samples is that of the true mean, or of log(1 + x²)."""
    keys = [key for key in given if key not in ("covariance_matrix", "precision_matrix")]

    def total(values: list[weft.Tensor]) -> weft.Tensor:
        made = {**{k: tensor(v) for k, v in given.items()}, **dict(zip(keys, values, strict=True))}
        x = getattr(D, name)(**made).rsample((4000,), generator=weft.Generator(seed=2))
        return weft.mean(weft.log1p(x * x), axis=0).sum()

    values = [tensor(given[key]) for key in keys]
    found = weft.grad(lambda *v: total(list(v)), argnums=tuple(range(len(keys))))(*values)
    step = 0.05 if name in ("Gamma", "Beta", "Chi2", "Dirichlet", "StudentT") else 1e-6
    for i, slope in enumerate(found):
        assert np.isfinite(slope.numpy()).all()
        moved = [v + step * (j == i) for j, v in enumerate(values)]
        other = [v - step * (j == i) for j, v in enumerate(values)]
        want = (total(moved).item() - total(other).item()) / (2 * step)
        room = {"rtol": 0.25, "atol": 0.25} if step > 0.01 else {"rtol": 1e-4, "atol": 1e-6}
        np.testing.assert_allclose(slope.numpy().sum(), want, **room)


@pytest.mark.parametrize(("name", "given", "value"), CASES, ids=IDS)
def test_compiled_and_mapped(name: str, given: dict[str, Any], value: Any) -> None:
    keys = list(given)

    def score(x: weft.Tensor, *parameters: weft.Tensor) -> weft.Tensor:
        d = getattr(D, name)(**dict(zip(keys, parameters, strict=True)))
        return d.log_prob(x)

    args = (tensor(value), *(tensor(v) for v in given.values()))
    want = score(*args).numpy()
    np.testing.assert_allclose(
        weft.compile(score, backend="native")(*args).numpy(), want, rtol=1e-9
    )
    if name != "MultivariateNormal":
        np.testing.assert_allclose(weft.vmap(score)(*args).numpy(), want, rtol=1e-12)
    slope = weft.grad(lambda *given: weft.sum(score(args[0], *given)))
    found = weft.compile(slope, backend="native")(*args[1:]).numpy()
    np.testing.assert_allclose(found, slope(*args[1:]).numpy(), rtol=1e-8, atol=1e-12)


def test_samples_are_the_same_compiled() -> None:
    def step(a: weft.Tensor) -> weft.Tensor:
        return D.Gamma(a, 1.0).rsample((3,)) + D.Normal(a, 1.0).sample() + D.Poisson(a).sample((3,))

    found = []
    for call in (step, weft.compile(step, backend="native")):
        weft.manual_seed(0)
        found.append(call(weft.asarray(A)).numpy())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


def test_shapes() -> None:
    d = D.Normal(weft.zeros((3, 1)), weft.ones(4))
    assert (d.batch_shape, d.event_shape) == ((3, 4), ())
    assert d.sample((2,)).shape == d.rsample(2).shape == (2, 3, 4)
    wide = d.expand((5, 3, 4))
    assert wide.sample().shape == wide.log_prob(weft.zeros(4)).shape == (5, 3, 4)
    one = D.Independent(d, 1)
    assert (one.batch_shape, one.event_shape) == ((3,), (4,))
    assert one.log_prob(weft.zeros((3, 4))).shape == one.entropy().shape == (3,)
    assert one.expand((7, 3)).sample().shape == (7, 3, 4)
    mixed = D.MixtureSameFamily(
        D.Categorical(weft.ones(4)), D.Independent(D.Normal(weft.zeros((4, 2)), 1.0), 1)
    )
    assert (mixed.batch_shape, mixed.event_shape) == ((), (2,))
    assert mixed.sample((6,)).shape == (6, 2)
    assert mixed.log_prob(weft.zeros((6, 2))).shape == (6,)
    np.testing.assert_allclose(mixed.variance.numpy(), [1.0, 1.0])
    assert D.Categorical(weft.ones((2, 3))).sample((5,)).shape == (5, 2)
    vectors = D.MultivariateNormal(weft.zeros((2, 3)), scale_tril=weft.eye(3)).expand((4, 2))
    assert vectors.sample((5,)).shape == (5, 4, 2, 3)
    assert not d.sample().requires_grad


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: D.Normal(0.0, -1.0), "the scale of Normal must be positive"),
        (lambda: D.Gamma(weft.asarray([1.0, 0.0]), 1.0), "the concentration of Gamma must be pos"),
        (lambda: D.Bernoulli(probs=1.5), "the probs of Bernoulli must be from 0 to 1"),
        (lambda: D.Bernoulli(), "either probs or logits"),
        (lambda: D.Bernoulli(probs=0.5, logits=0.0), "only one of them"),
        (lambda: D.Uniform(2.0, 1.0), "high - low of Uniform must be positive"),
        (lambda: D.Exponential(1.0).log_prob(weft.asarray(-1.0)), "a value of Exponential must be"),
        (
            lambda: D.Categorical(weft.ones(3)).log_prob(weft.asarray(3)),
            "whole number in its range",
        ),
        (lambda: D.Normal(weft.zeros(2), weft.ones(3)), "broadcast"),
        (lambda: D.Independent(D.Normal(0.0, 1.0), 1), "cannot be events"),
        (lambda: D.MultivariateNormal(weft.zeros(2), -weft.eye(2)), "positive definite"),
    ],
)
def test_errors(call: Any, complaint: str) -> None:
    with pytest.raises(weft.errors.WeftError, match=complaint):
        call()


def test_what_is_not_known_says_so() -> None:
    with pytest.raises(NotImplementedError, match="samples of Poisson have no derivative"):
        D.Poisson(1.0).rsample()
    with pytest.raises(NotImplementedError, match="register_kl"):
        D.kl_divergence(D.Normal(0.0, 1.0), D.Poisson(1.0))
    assert D.Normal(0.0, -1.0, validate_args=False).scale.item() == -1.0
    assert "Normal(loc: 0.0, scale: 1.0)" in repr(D.Normal(0.0, 1.0))


def test_a_prior_from_outside_in_compiled_code() -> None:
    """A distribution that lives outside; values and parameters of which only one is recorded."""
    prior = D.Normal(weft.asarray([0.0, 1.0]), 2.0)

    def elbo(loc: weft.Tensor, scale: weft.Tensor) -> weft.Tensor:
        q = D.Normal(loc, scale)
        z = q.rsample((4,))
        fixed = D.Uniform(loc - 9.0, loc + 9.0).log_prob(0.5)
        bounded = D.TransformedDistribution(q, [D.transforms.SigmoidTransform()]).log_prob(0.5)
        inside = weft.mean(prior.log_prob(z)) + weft.sum(fixed) + weft.sum(bounded)
        return inside - weft.sum(D.kl_divergence(q, prior))

    args = (weft.asarray([0.3, 0.4]), weft.asarray([0.5, 2.0]))
    found = []
    slope = weft.value_and_grad(elbo, argnums=(0, 1))
    for call in (slope, weft.compile(slope, backend="native")):
        weft.manual_seed(0)
        call(*args)
        value, slopes = call(*args)
        found.append(np.concatenate([value.numpy()[None], *(s.numpy() for s in slopes)]))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)
