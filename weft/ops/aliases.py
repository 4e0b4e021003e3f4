"""Names that NumPy and PyTorch have for functions of the Array API."""

from __future__ import annotations

from weft.core.public import alias
from weft.ops.creation import asarray
from weft.ops.elementwise import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitwise_invert,
    divide,
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    multiply,
    negative,
    not_equal,
    pow,
    round,
    sign,
    trunc,
)
from weft.ops.joining import vstack
from weft.ops.linalg_matrix import cross, diagonal, outer
from weft.ops.linalg_more import norm
from weft.ops.linalg_solve import det, inv, matrix_power
from weft.ops.reduce import cumulative_prod, cumulative_sum, max, min
from weft.ops.select import clip
from weft.ops.shape import (
    broadcast_arrays,
    concat,
    expand_dims,
    flatten,
    moveaxis,
    permute_dims,
    swapaxes,
    unstack,
)
from weft.ops.special_logs import xlog1py
from weft.ops.statistics import trapezoid

cat = concatenate = concat
permute = permute_dims
unsqueeze = expand_dims
swapdims = swapaxes
movedim = moveaxis
ravel = flatten
unbind = unstack
broadcast_tensors = broadcast_arrays
eq, ne, lt, le, gt, ge = equal, not_equal, less, less_equal, greater, greater_equal
absolute, neg, fix, sgn = abs, negative, trunc, sign
true_divide = divide
mul = multiply
bitwise_not = bitwise_invert
power = pow
rint = round
arccos, arcsin, arctan, arctan2 = acos, asin, atan, atan2
arccosh, arcsinh, arctanh = acosh, asinh, atanh
amax, amin = max, min
clamp = clip
cumsum, cumprod = cumulative_sum, cumulative_prod
as_tensor = asarray
ger = outer
inverse = inv
row_stack = vstack
trapz = trapezoid

__all__ = [
    "absolute",
    "amax",
    "amin",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "as_tensor",
    "bitwise_not",
    "broadcast_tensors",
    "cat",
    "clamp",
    "concatenate",
    "cross",
    "cumprod",
    "cumsum",
    "det",
    "diagonal",
    "eq",
    "fix",
    "ge",
    "ger",
    "gt",
    "inverse",
    "le",
    "lt",
    "matrix_power",
    "movedim",
    "mul",
    "ne",
    "neg",
    "norm",
    "outer",
    "permute",
    "power",
    "ravel",
    "rint",
    "row_stack",
    "sgn",
    "swapdims",
    "trapz",
    "true_divide",
    "unbind",
    "unsqueeze",
    "xlog1py",
]
#: These take no tensor first, or stand for a property.
_NO_METHODS = {"as_tensor", "broadcast_tensors", "cat", "concatenate", "row_stack", "trapz"}

for _name in __all__:
    alias(_name, globals()[_name], *(() if _name in _NO_METHODS else (_name,)))
