"""The names that mean the same in PyTorch and in Weft: a table, from which they are exported.

What differs stands in the other files of this folder, function by function.
"""

from __future__ import annotations

import sys
from typing import Any

from weft.torch import creation, reductions, shapes
from weft.torch.tensor import Tensor, attach_writers

#: Weft has these under PyTorch's names.
SAME = """
abs acos acosh all any argmax argmin asin asinh atan atan2 atanh bitwise_and bitwise_or bitwise_xor
broadcast_to ceil conj copysign cos cosh count_nonzero diff erf erfc exp expm1 floor floor_divide
greater greater_equal hypot isfinite isinf isnan less less_equal log log10 log1p log2 log_softmax
logaddexp logical_and logical_not logical_or logical_xor logsumexp matmul maximum mean minimum
moveaxis multiply negative nextafter not_equal positive pow prod real imag reciprocal relu remainder
reshape round searchsorted sigmoid sign signbit sin sinh softmax sqrt square stack subtract sum tan
tanh tensordot tile trunc unsqueeze clip swapaxes outer add sub mul
no_grad enable_grad set_grad_enabled is_grad_enabled
manual_seed get_rng_state set_rng_state get_default_dtype set_default_dtype result_type can_cast
finfo iinfo set_num_threads get_num_threads
float16 float32 float64 bfloat16 int8 int16 int32 int64 uint8 bool complex64 complex128
e inf nan pi newaxis
""".split()  # noqa: SIM905

#: Weft's name for what PyTorch calls so.
RENAMED = {
    "absolute": "abs",
    "arccos": "acos",
    "arcsin": "asin",
    "arctan": "atan",
    "bitwise_not": "bitwise_invert",
    "cat": "concat",
    "cdouble": "complex128",
    "cfloat": "complex64",
    "clamp": "clip",
    "concat": "concat",
    "concatenate": "concat",
    "double": "float64",
    "eq": "equal",
    "float": "float32",
    "ge": "greater_equal",
    "gt": "greater",
    "half": "float16",
    "int": "int32",
    "le": "less_equal",
    "long": "int64",
    "lt": "less",
    "ne": "not_equal",
    "neg": "negative",
    "permute": "permute_dims",
    "short": "int16",
}


def _core(name: str) -> Any:
    """What `weft` exports under a name, or the function of the method of that name."""
    weft = sys.modules["weft"]
    return getattr(weft, name) if hasattr(weft, name) else getattr(Tensor, name)


for _name in SAME:
    globals()[_name] = _core(_name)
for _name, _other in RENAMED.items():
    globals()[_name] = _core(_other)

#: Those modules give tensors their methods; now all are there.
_METHODS = (creation, reductions, shapes)
attach_writers()

__all__ = [*SAME, *RENAMED]
