"""How the rows of samples are differentiated: which calls are fit for it, and what is left out.

Most rows need nothing: their values lie away from kinks and poles. The tables here say what is done
with the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import weft
from samples.table import Sample
from weft.base.dtypes import DTYPES

Tensor = weft.Tensor


@dataclass(frozen=True)
class Fit:
    """How calls of one function are differentiated.

    takes     which calls: sample -> bool
    inputs    what the tensors are passed through before the call, so that they are in the domain
              where the derivative exists: (*tensors) -> tensors
    results   what of the results has a derivative: (*results) -> tensors
    """

    takes: Callable[[Sample], bool] = lambda _sample: True
    inputs: Callable[..., tuple[Tensor, ...]] = lambda *tensors: tensors
    results: Callable[..., tuple[Tensor, ...]] = lambda *results: results


def symmetric(x: Tensor) -> tuple[Tensor]:
    """Gradients of functions that read one triangle are those for symmetric changes."""
    return ((x + weft.conj(x).mT) / 2,)


def positive_base(x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
    return weft.abs(x1) + 0.5, x2


def fixed_exponent(x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
    """The first operand has no derivative, or only one."""
    return weft.zeros_like(weft.stop_gradient(x1)) + 3, x2


def away_from_zero(x: Tensor) -> tuple[Tensor]:
    """Each zero becomes another number, so that there are no ties either."""
    others = weft.reshape(weft.linspace(0.3, 0.7, x.size, dtype=x.dtype), x.shape)
    return (weft.where(weft.abs(x) < 0.01, x + others, x),)


def whatever_the_phases(values: Tensor, *vectors: Tensor) -> tuple[Tensor, ...]:
    """Of eigenvectors, what does not depend on the sign or the phase that each of them has."""
    (v,) = vectors
    powers = (v * weft.expand_dims(values**3, -2)) @ weft.conj(v).mT
    return values, weft.abs(v) ** 2, powers


def whatever_the_lengths(values: Tensor, vectors: Tensor) -> tuple[Tensor, ...]:
    """The same for eigenvectors that are not orthogonal."""
    powers = (vectors * weft.expand_dims(values**3, -2)) @ weft.linalg.inv(vectors)
    return values, weft.abs(vectors) ** 2, powers


def whatever_the_pairs(u: Tensor, s: Tensor, vh: Tensor) -> tuple[Tensor, ...]:
    """The same for singular vectors, whose phases are free in pairs."""
    size = s.shape[-1]
    product = (u[..., :size] * weft.expand_dims(weft.cos(s), -2)) @ vh[..., :size, :]
    return weft.abs(u) ** 2, s, weft.abs(vh) ** 2, product


def is_tall(x: Any) -> bool:
    return bool(x.shape[-2] > x.shape[-1])


def is_square(x: Any) -> bool:
    return bool(x.shape[-2] == x.shape[-1])


def has_full_rank(x: Any) -> bool:
    return bool(np.all(np.linalg.matrix_rank(x.astype(np.complex128)) == min(x.shape[-2:])))


def has_no_nan(sample: Sample) -> bool:
    return not np.isnan(sample.args[0]).any()


def has_fixed_bins(sample: Sample) -> bool:
    """Not so that the first and the last bin end at elements."""
    given = {**sample.kwargs, **dict(zip("xbce", sample.args, strict=False))}
    return (
        "range" in given or "max" in given or "e" in given or isinstance(given.get("b"), np.ndarray)
    )


FITS = {
    "histc": Fit(has_fixed_bins),
    "histogram": Fit(has_fixed_bins),
    "special.zeta": Fit(inputs=fixed_exponent),
    "special.gammainc": Fit(inputs=fixed_exponent),  # the other one: test_random_more.py
    "special.gammaincc": Fit(inputs=fixed_exponent),
    "pow": Fit(inputs=positive_base),
    "astype": Fit(lambda sample: sample.args[1] in (DTYPES["float64"], DTYPES["complex128"])),
    "linalg.cholesky": Fit(inputs=symmetric),
    "linalg.eigvalsh": Fit(inputs=symmetric),
    "linalg.eigh": Fit(inputs=symmetric, results=whatever_the_phases),
    "linalg.eig": Fit(lambda s: s.args[0].shape != (2, 2), results=whatever_the_lengths),
    "linalg.eigvals": Fit(lambda s: s.args[0].shape != (2, 2)),
    "linalg.lu_factor": Fit(results=lambda both, _order: (both,)),
    "linalg.lu": Fit(results=lambda _p, lower, upper: (lower, upper)),
    "linalg.lstsq": Fit(results=lambda solution, *_: (solution,)),
    "linalg.qr": Fit(lambda s: s.kwargs.get("mode") != "complete" or not is_tall(s.args[0])),
    "linalg.svd": Fit(
        lambda s: (
            (is_square(s.args[0]) or not s.kwargs.get("full_matrices", True))
            and has_full_rank(s.args[0])
        ),
        results=whatever_the_pairs,
    ),
    "linalg.pinv": Fit(lambda s: has_full_rank(s.args[0]) and not s.kwargs),
    "nansum": Fit(has_no_nan),
    "nanmean": Fit(has_no_nan),
    "linalg.vector_norm": Fit(inputs=away_from_zero),
}

#: Functions of floats whose result passes no gradient on, by the reason.
WITHOUT_GRADIENT = {
    "the result is of bools": {
        *("all", "any", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
        *("isfinite", "isinf", "isnan", "logical_and", "logical_or", "logical_xor", "logical_not"),
        *("signbit", "isclose", "isposinf", "isneginf", "isreal", "allclose", "isin"),
    },
    "the result is of integers": {
        *("argmax", "argmin", "argsort", "count_nonzero", "nonzero", "searchsorted", "bucketize"),
        *("argwhere", "flatnonzero", "histc", "linalg.matrix_rank"),
    },
    "the result depends on the shape only": {
        *("zeros_like", "ones_like", "empty_like", "full_like"),
    },
}

#: Functions without a derivative: backward through them is an error.
UNDEFINED = {
    "nextafter": "it is about the grid of floats, not about numbers",
}

#: Cards without a derivative, by the reason. Creation ops have no inputs.
CARDS_WITHOUT = {
    "the result is of bools": {
        *("all", "any", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
        *("isfinite", "isinf", "isnan", "logical_and", "logical_or", "logical_xor", "logical_not"),
        "signbit",
    },
    "the result is of integers": {
        *("argmax", "argmin", "argsort", "nonzero", "ranked", "running_argmax", "searchsorted"),
    },
    "the operands are integers": {
        *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_invert"),
        *("bitwise_left_shift", "bitwise_right_shift", "gcd", "lcm"),
    },
    "there is none": {"nextafter"},
}
