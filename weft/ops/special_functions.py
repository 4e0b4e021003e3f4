"""`weft.special`: special functions, as in SciPy and PyTorch.

They compute in float64 and round once. The common ones are functions of `weft` too.

>>> weft.special.ndtr(weft.asarray([0.0, 2.0]))
tensor([0.5       , 0.97724986])
"""

from __future__ import annotations

from weft.ops.activations import erf, erfc, log_softmax, logsumexp, sigmoid, softmax
from weft.ops.special_bessel import i0, i0e, i1, i1e, sinc
from weft.ops.special_gamma import (
    betaln,
    digamma,
    lgamma,
    multigammaln,
    polygamma,
    trigamma,
    zeta,
)
from weft.ops.special_incomplete import gammainc, gammaincc
from weft.ops.special_logs import entr, xlog1py, xlogy
from weft.ops.special_normal import erfcx, erfinv, log_ndtr, ndtr, ndtri
from weft.ops.special_polynomials import *  # noqa: F403
from weft.ops.special_polynomials import __all__ as _polynomials
from weft.ops.transcendental import expm1, log1p

__all__ = [
    *_polynomials,
    "betaln",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "expit",
    "expm1",
    "gammainc",
    "gammaincc",
    "gammaln",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "lgamma",
    "log1p",
    "log_ndtr",
    "log_softmax",
    "logsumexp",
    "multigammaln",
    "ndtr",
    "ndtri",
    "polygamma",
    "psi",
    "sinc",
    "softmax",
    "trigamma",
    "xlog1py",
    "xlogy",
    "zeta",
]

expit = sigmoid
gammaln = lgamma
psi = digamma


def __dir__() -> list[str]:
    return __all__
