"""Kullback–Leibler divergences: a table of pairs, to which `register_kl` adds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from weft.core.tensor import Tensor
from weft.distributions.bounded import Beta, Dirichlet, Uniform
from weft.distributions.combine import Independent, LogNormal
from weft.distributions.discrete import Bernoulli, Binomial, Categorical, Geometric, Poisson
from weft.distributions.distribution import Distribution
from weft.distributions.location_scale import Gumbel, HalfNormal, Laplace, Normal
from weft.distributions.multivariate import MultivariateNormal
from weft.distributions.positive import Exponential, Gamma
from weft.ops.elementwise import abs, exp, log, square
from weft.ops.linalg_solve import solve
from weft.ops.reduce import sum
from weft.ops.select import where
from weft.ops.shape import expand_dims
from weft.ops.special_gamma import betaln, digamma, lgamma
from weft.ops.special_logs import xlogy

__all__ = ["kl_divergence", "register_kl"]

Rule = TypeVar("Rule", bound=Callable[..., Tensor])
#: By the names of both classes.
_RULES: dict[str, Callable[..., Tensor]] = {}
_EULER = 0.5772156649015329


def register_kl(type_p: type, type_q: type) -> Callable[[Rule], Rule]:
    """Use the decorated function(p, q) for distributions of these classes and their subclasses."""

    def register(rule: Rule) -> Rule:
        _RULES[_key(type_p, type_q)] = rule
        return rule

    return register


def _key(first: type, second: type) -> str:
    return " ".join(f"{cls.__module__}.{cls.__qualname__}" for cls in (first, second))


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """How much information is lost if q stands for p: the mean of log(p / q) under p.

    >>> D = weft.distributions
    >>> D.kl_divergence(D.Normal(0.0, 1.0), D.Normal(1.0, 1.0))
    tensor(0.5)
    """
    for first in type(p).__mro__:
        for second in type(q).__mro__:
            rule = _RULES.get(_key(first, second))
            if rule is not None:
                return rule(p, q)
    raise NotImplementedError(
        f"no rule for the divergence of {type(p).__name__} from {type(q).__name__}; "
        "add one with @weft.distributions.register_kl, or estimate it from samples: "
        "weft.mean(p.log_prob(x) - q.log_prob(x)) with x = p.sample((n,))"
    )


def _normals(p: Any, q: Any) -> Tensor:
    ratio = square(p.scale / q.scale)
    return 0.5 * (ratio + square((p.loc - q.loc) / q.scale) - 1 - log(ratio))


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    return _normals(p, q)


@register_kl(LogNormal, LogNormal)
def _log_normal(p: LogNormal, q: LogNormal) -> Tensor:
    return _normals(p, q)


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: HalfNormal, q: HalfNormal) -> Tensor:
    ratio = square(p.scale / q.scale)
    return 0.5 * (ratio - 1 - log(ratio))


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    apart = abs(p.loc - q.loc)
    near = p.scale / q.scale * exp(-apart / p.scale)
    return log(q.scale / p.scale) + apart / q.scale + near - 1


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    ratio = p.scale / q.scale
    moved = (q.loc - p.loc) / q.scale
    power = exp(moved + lgamma(1 + ratio))
    return -log(ratio) - moved + power - (1 + _EULER) + ratio * _EULER


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - 1 - log(ratio)


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    scales = b * log(p.rate / q.rate) + a * (q.rate / p.rate - 1)
    return lgamma(b) - lgamma(a) + scales + (a - b) * digamma(a)


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    a, b, total = p.concentration1, p.concentration0, p.concentration1 + p.concentration0
    first, second = q.concentration1, q.concentration0
    slopes = (a - first) * digamma(a) + (b - second) * digamma(b)
    return betaln(first, second) - betaln(a, b) + slopes - (total - first - second) * digamma(total)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    total = sum(a, axis=-1)
    slopes = (a - b) * (digamma(a) - expand_dims(digamma(total), -1))
    logs = lgamma(total) - lgamma(sum(b, axis=-1))
    return logs + sum(lgamma(b) - lgamma(a) + slopes, axis=-1)


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    inside = (q.low <= p.low) & (p.high <= q.high)
    return where(inside, log((q.high - q.low) / (p.high - p.low)), math.inf)


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    yes, no = q._log_chances()
    chance = p.probs
    crossed = where(chance == 0, 0.0, chance * yes) + where(chance == 1, 0.0, (1 - chance) * no)
    return -p.entropy() - crossed


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Tensor:
    one = _bernoulli(Bernoulli(p.probs), Bernoulli(q.probs))
    more = p.total_count > q.total_count
    fewer = where(p.total_count == q.total_count, p.total_count * one, math.nan)
    return where(more, math.inf, fewer)


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Tensor:
    yes, no = q._log_chances()
    return -p.entropy() - where(p.probs == 1, 0.0, (1 - p.probs) * no) / p.probs - yes


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Tensor:
    return xlogy(p.rate, p.rate) - xlogy(p.rate, q.rate) - (p.rate - q.rate)


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    terms = where(p.probs == 0, 0.0, p.probs * (p.logits - q.logits))
    return sum(terms, axis=-1)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    between = solve(q.scale_tril, p.scale_tril)
    apart = solve(q.scale_tril, expand_dims(p.loc - q.loc, -1))
    squares = sum(square(between), axis=(-2, -1)) + sum(square(apart), axis=(-2, -1))
    logs = q.half_log_det() - p.half_log_det()
    return logs + 0.5 * (squares - p.event_shape[0])


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("both must count the same axes as events")
    return p._summed(kl_divergence(p.base_dist, q.base_dist))
