"""`weft.linalg`: linear algebra on matrices and on stacks of matrices.

The Array API's extension of that name. The last two axes hold the matrices; the axes before them
are a stack.

>>> a = weft.asarray([[3.0, 1.0], [1.0, 2.0]])
>>> weft.linalg.solve(a, weft.asarray([9.0, 8.0]))
tensor([2., 3.])
"""

from __future__ import annotations

from weft.core.public import public
from weft.ops.linalg_eig import eig, eigvals, expm, matrix_exp
from weft.ops.linalg_factor import cholesky, eigh, eigvalsh, qr, svd, svdvals
from weft.ops.linalg_lu import (
    cholesky_inverse,
    cholesky_solve,
    lu,
    lu_factor,
    lu_solve,
)
from weft.ops.linalg_matrix import cross, diagonal, outer, trace
from weft.ops.linalg_more import (
    cond,
    householder_product,
    lstsq,
    multi_dot,
    norm,
    tensorinv,
    tensorsolve,
)
from weft.ops.linalg_norm import matrix_norm, matrix_rank, pinv, vector_norm
from weft.ops.linalg_solve import det, inv, matrix_power, slogdet, solve
from weft.ops.linalg_triangular import solve_triangular
from weft.ops.matmul import matmul, tensordot, vecdot
from weft.ops.shape import matrix_transpose

__all__ = [
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "expm",
    "householder_product",
    "inv",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_solve",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "trace",
    "vecdot",
    "vector_norm",
]

# These are functions of `weft` too.
for _function in (matmul, matrix_transpose, tensordot, vecdot):
    public(namespace="linalg")(_function)


def __dir__() -> list[str]:
    return __all__
