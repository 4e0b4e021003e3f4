"""Rows of `weft.special`, against SciPy in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import scipy.special as scipy

from samples.elementwise import binary, unary
from samples.table import SHAPES, Row, Sample, call, values
from weft.base.dtypes import DType


def wide(function: Callable[..., Any], **at: float) -> Callable[..., Any]:
    """A function of SciPy in float64; limits at `inf` and `minus_inf` that it has otherwise."""

    def reference(*given: Any) -> Any:
        x = given[-1].astype(np.float64)
        out = np.asarray(function(*[np.asarray(v).astype(np.float64) for v in given]))
        for name, limit in (("inf", np.inf), ("minus_inf", -np.inf)):
            if name in at:
                out = np.where(x == limit, at[name], out)
        return out

    return reference


def polygamma_samples(dtype: DType) -> Iterable[Sample]:
    for shape in SHAPES:
        yield call(1, values(shape, dtype, 0.3, 9))
    for n in (0, 2, 5):
        yield call(n, values((5,), dtype, 0.3, 9))
    yield call(1, np.array([0.0, -1.0, -0.4, np.inf, np.nan, 300.5]).astype(dtype.numpy))
    yield call(2, np.array([0.0, -1.0, -0.4, np.inf, np.nan, 300.5]).astype(dtype.numpy))


def polygamma(n: int, x: Any) -> Any:
    return scipy.polygamma(n, x.astype(np.float64))


def multigammaln_samples(dtype: DType) -> Iterable[Sample]:
    for p in (1, 2, 4):
        yield call(values((3, 2), dtype, 2, 9), p)


def multigammaln(x: Any, p: int) -> Any:
    each = [scipy.gammaln(x.astype(np.float64) - j / 2) for j in range(p)]
    return sum(each) + p * (p - 1) / 4 * math.log(math.pi)


ROWS = [
    unary("lgamma", wide(scipy.gammaln, minus_inf=np.inf), "real floating", domain=(0.3, 9)),
    unary("digamma", wide(scipy.psi), "real floating", domain=(0.3, 9)),
    Row("polygamma", polygamma, polygamma_samples, "real floating", rtol=16),
    unary("special.trigamma", wide(lambda x: scipy.polygamma(1, x)), "real floating", (0.3, 9)),
    Row("special.multigammaln", multigammaln, multigammaln_samples, "real floating", rtol=16),
    binary("special.zeta", wide(scipy.zeta), "real floating", (1.5, 9), (0.3, 9), special=False),
    binary("special.betaln", wide(scipy.betaln), "real floating", (0.3, 9), special=False, rtol=64),
    binary("special.gammainc", wide(scipy.gammainc), "real floating", (0.3, 9), rtol=64),
    binary("special.gammaincc", wide(scipy.gammaincc), "real floating", (0.3, 9), rtol=64),
    unary("erfinv", wide(scipy.erfinv), "real floating", domain=(-0.97, 0.97)),
    unary("special.erfcx", wide(scipy.erfcx), "real floating", rtol=64),
    unary("special.ndtr", wide(scipy.ndtr), "real floating"),
    unary("special.ndtri", wide(scipy.ndtri), "real floating", domain=(0.01, 0.99)),
    unary("special.log_ndtr", wide(scipy.log_ndtr), "real floating", domain=(-9, 4)),
    unary("i0", wide(scipy.i0, inf=np.inf, minus_inf=np.inf), "real floating"),
    unary("special.i0e", wide(scipy.i0e), "real floating", domain=(0.5, 30)),
    unary("special.i1", wide(scipy.i1, inf=np.inf, minus_inf=-np.inf), "real floating"),
    unary("special.i1e", wide(scipy.i1e), "real floating", domain=(0.5, 30)),
    unary("special.entr", wide(scipy.entr), "real floating", domain=(0.1, 4)),
    unary("sinc", wide(np.sinc), "real floating"),
    binary("xlogy", wide(scipy.xlogy), "real floating", (0.5, 4)),
    binary("special.xlog1py", wide(scipy.xlog1py), "real floating", (0.5, 4)),
]
