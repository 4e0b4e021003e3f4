"""The names that mean the same in PyTorch and in Weft: a table, from which they are exported.

What differs stands in the other files of this folder, function by function. A row whose function
Weft does not have (yet) is left out: `torch.name` is then an AttributeError.
"""

from __future__ import annotations

from typing import Any

from weft.base.dtypes import DTYPES
from weft.core.public import PUBLIC
from weft.nn import functional
from weft.torch import arguments, creation, programs, reductions, shapes, writes
from weft.torch.tensor import Tensor, attach_writers

#: Weft has these under PyTorch's names.
SAME = """
abs acos acosh add addbmm addcdiv addcmul addmm addmv addr aminmax angle argwhere asin
asinh atan atan2 atanh baddbmm bincount bitwise_and
bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor block_diag bmm
broadcast_to cartesian_prod ceil chunk clip column_stack combinations
complex conj copysign cos cosh cov cumulative_trapezoid deg2rad diag
diag_embed diagflat diagonal_scatter digamma dist dot dsplit dstack einsum erf erfc erfinv exp exp2
expm1 fix fliplr flipud float_power floor floor_divide fmax fmin fmod frac frexp
from_dlpack gather gcd greater greater_equal heaviside histc histogram hsplit hstack hypot i0
imag index_put index_reduce inner isclose isfinite isin isinf isnan isneginf isposinf isreal
istft kron lcm lerp less less_equal lgamma log log10 log1p log2 logaddexp logaddexp2 logdet
logical_and logical_not logical_or logical_xor logit masked_scatter
masked_select matmul matrix_power maximum minimum mm moveaxis movedim msort mul
multinomial multiply mv nan_to_num narrow negative nextafter not_equal numel outer
pdist poisson polar polygamma positive put rad2deg ravel reciprocal relu remainder
renorm reshape rot90 rsqrt rsub scatter_add scatter_reduce
select select_scatter sgn sigmoid sign signbit sin sinc sinh slice_scatter split
sqrt square stack stft sub subtract swapaxes swapdims tan tanh
tensordot trace trapezoid trunc unbind unflatten
unique unique_consecutive unravel_index unsqueeze vander vdot view_as view_as_complex view_as_real
vsplit vstack xlogy
""".split()  # noqa: SIM905

#: Methods that are functions, too.
METHODS = ("clone", "detach", "is_complex", "is_floating_point", "t")

#: Weft's name for what PyTorch calls so.
RENAMED = {
    "absolute": "abs",
    "adjoint": "matrix_transpose",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "bitwise_not": "bitwise_invert",
    "cat": "concat",
    "cholesky": "linalg.cholesky",
    "cholesky_solve": "linalg.cholesky_solve",
    "clamp": "clip",
    "conj_physical": "conj",
    "concat": "concat",
    "concatenate": "concat",
    "det": "linalg.det",
    "eq": "equal",
    "ge": "greater_equal",
    "ger": "outer",
    "gt": "greater",
    "igamma": "special.gammainc",
    "igammac": "special.gammaincc",
    "inverse": "linalg.inv",
    "le": "less_equal",
    "lt": "less",
    "matrix_exp": "linalg.matrix_exp",
    "mvlgamma": "special.multigammaln",
    "ne": "not_equal",
    "neg": "negative",
    "permute": "permute_dims",
    "pinverse": "linalg.pinv",
    "qr": "linalg.qr",
    "row_stack": "vstack",
    "slogdet": "linalg.slogdet",
    "split_with_sizes": "split",
    "trapz": "trapezoid",
}
#: Functions of `nn.functional` that PyTorch has here, too.
FUNCTIONAL = (
    *("batch_norm", "celu", "conv1d", "conv2d", "conv3d", "cosine_similarity", "dropout"),
    *("embedding", "group_norm", "layer_norm", "pairwise_distance", "pixel_shuffle", "prelu"),
    *("rms_norm", "selu", "threshold"),
)
#: PyTorch's other names of dtypes.
_DTYPES = {
    "cdouble": "complex128",
    "cfloat": "complex64",
    "double": "float64",
    "float": "float32",
    "half": "float16",
    "int": "int32",
    "long": "int64",
    "short": "int16",
}


def _core(name: str) -> Any:
    """The public function of this name, or the method of tensors; None if there is neither."""
    found = PUBLIC.get(name)
    return getattr(Tensor, name, None) if found is None else found.function


_found = {name: _core(name) for name in SAME}
_found |= {name: _core(other) for name, other in RENAMED.items()}
_found |= {name: getattr(Tensor, name, None) for name in METHODS}
_found |= {name: getattr(functional, name) for name in FUNCTIONAL}
_found |= {name: dtype for name, dtype in DTYPES.items() if name.isidentifier()}
_found |= {name: DTYPES[other] for name, other in _DTYPES.items()}
_found = {name: value for name, value in _found.items() if value is not None}
#: Rows that wait for Weft's function.
MISSING = sorted({*SAME, *RENAMED} - {*_found})

globals().update(_found)

#: Those modules give tensors their methods; now all are there.
_METHODS = (arguments, creation, programs, reductions, shapes, writes)
attach_writers()

__all__ = [*_found]
