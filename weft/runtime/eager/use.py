"""Which eager calls are machine code: those on arrays of at least so many elements."""

from __future__ import annotations

from weft.autodiff.tape import record_large
from weft.base import config
from weft.core.large import large
from weft.runtime.eager.composites import call_composite
from weft.runtime.eager.kernels import (
    gradients_of_large,
    kernel_for_large,
    sum_of_large,
    update_large,
)

__all__ = ["use_kernels"]


def use_kernels() -> None:
    """Fill the slot of `bind`."""
    large.kernel = kernel_for_large
    large.tape = record_large
    large.gradients = gradients_of_large
    large.update = update_large
    large.add = sum_of_large
    large.composite = call_composite
    large.start = config.large_from()
