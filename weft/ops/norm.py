"""`weft.norm`, and names of `weft` for functions of `weft.linalg` and `weft.special`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.core.autocast import autocasts
from weft.core.public import alias, public
from weft.core.tensor import Tensor
from weft.ops.linalg_eig import matrix_exp
from weft.ops.linalg_more import norm as linalg_norm
from weft.ops.linalg_norm import pinv, vector_norm
from weft.ops.linalg_solve import slogdet
from weft.ops.special_gamma import multigammaln
from weft.ops.special_incomplete import gammainc, gammaincc

__all__ = ["igamma", "igammac", "matrix_exp", "mvlgamma", "norm", "pinverse", "slogdet"]

igamma, igammac = gammainc, gammaincc
mvlgamma = multigammaln
pinverse = pinv

for _name in __all__:
    if _name != "norm":
        alias(_name, globals()[_name], _name)


@public("norm")
@autocasts("float32")
def norm(
    x: Tensor,
    /,
    p: Any = "fro",
    axis: int | Sequence[int] | None = None,
    *,
    keepdims: bool = False,
) -> Tensor:
    """The length of x, or of its parts along some axes: sum(|x| ** p) ** (1 / p), with p = 2.

    Matrix norms are in `weft.linalg.norm` and `weft.linalg.matrix_norm`; of these only "nuc" is
    taken here.

    >>> weft.norm(weft.asarray([3.0, 4.0]))
    tensor(5.)
    """
    if p == "nuc":
        return linalg_norm(x, "nuc", axis=axis, keepdims=keepdims)
    return vector_norm(x, axis=axis, keepdims=keepdims, ord=2 if p in (None, "fro") else p)
