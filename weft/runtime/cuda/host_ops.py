"""Ops that run on the CPU when their operands lie on a GPU: copied there, computed, copied back.

Each row says why. `weft.cuda.host_ops()` returns the table.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.ir.dispatch import Family, Kernel
from weft.ir.op import Op

__all__ = ["HOST", "on_host"]

_REJECTION = "draws by rejection, element by element, in NumPy code"
_ATOMIC = "CuPy has no such atomic operation for all dtypes, and float results would vary"
_LOOPS = "NumPy code that goes over the elements until all have converged"

#: By op: why it runs on the CPU.
HOST: dict[str, str] = {
    "running_argmax": "CuPy has no running maximum",
    "logcumsumexp": "CuPy has no running logaddexp",
    "bincount": "counts in order; the length of the result has to be known on the CPU in any case",
    "unique_parts": "CuPy's unique treats NaN and axes in another way",
    "unique_all": "CuPy's unique treats NaN in another way",
    "expm": "NumPy code that scales and squares as often as the norm asks for",
    "lu_factor": "NumPy code; CuPy's factorizes one matrix at a time",
    "eig": "general eigenvalues are computed by LAPACK",
    "gammainc": _LOOPS,
    "gammaincc": _LOOPS,
    "random_log_gamma": _REJECTION,
    "random_poisson": _REJECTION,
    "random_binomial": _REJECTION,
    "log_gamma_slope": _REJECTION,
    "multiply_at": _ATOMIC,
    "maximum_at": _ATOMIC,
    "minimum_at": _ATOMIC,
    "add_at": _ATOMIC,
}


def on_host(op: Op, family: Family) -> Kernel:
    """A kernel for arrays of a device that computes with NumPy's kernel of the op."""

    def run(*arrays: Any, **attrs: Any) -> Any:
        device = family.device_of(arrays[0])
        here = [family.to_numpy(array) for array in arrays]
        out = op.kernels[np.ndarray][here[op.dispatch_on].dtype](*here, **attrs)
        if isinstance(out, tuple):
            return tuple(family.from_numpy(np.asarray(part), device) for part in out)
        return family.from_numpy(np.asarray(out), device)

    return run
