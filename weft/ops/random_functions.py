"""`weft.random`: random numbers. The same seed gives the same numbers in every mode.

>>> generator = weft.Generator(seed=0)
>>> weft.random.exponential(shape=(2,), generator=generator)
tensor([0.5092376, 2.1246076])
"""

from __future__ import annotations

from weft.core.public import public
from weft.ops.generator import Generator, get_rng_state, manual_seed, set_rng_state
from weft.ops.random import (
    bernoulli,
    normal,
    permutation,
    rand,
    rand_like,
    randint,
    randn,
    randn_like,
    uniform,
)
from weft.ops.random_continuous import (
    beta,
    cauchy,
    dirichlet,
    exponential,
    gamma,
    gumbel,
    laplace,
    log_normal,
    student_t,
    truncated_normal,
)
from weft.ops.random_discrete import (
    binomial,
    categorical,
    choice,
    geometric,
    poisson,
    randperm,
)

__all__ = [
    "Generator",
    "bernoulli",
    "beta",
    "binomial",
    "categorical",
    "cauchy",
    "choice",
    "dirichlet",
    "exponential",
    "gamma",
    "geometric",
    "get_rng_state",
    "gumbel",
    "laplace",
    "log_normal",
    "manual_seed",
    "normal",
    "permutation",
    "poisson",
    "rand",
    "rand_like",
    "randint",
    "randn",
    "randn_like",
    "randperm",
    "set_rng_state",
    "student_t",
    "truncated_normal",
    "uniform",
]


# These are functions of `weft` too.
for _function in (poisson, randperm):
    public()(_function)


def __dir__() -> list[str]:
    return __all__
