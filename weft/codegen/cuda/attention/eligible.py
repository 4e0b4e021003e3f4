"""Which attentions become one kernel."""

from __future__ import annotations

from weft.base.dims import has_dims
from weft.base.dtypes import bfloat16, float16
from weft.base.shapes import size_of
from weft.codegen.cuda.machine import GpuMachine
from weft.passes.lowering.attention import Fusion

__all__ = ["attends"]

#: The most columns of q, k and v, and what they are multiples of: rows are copied in 16 bytes.
WIDEST, UNIT = 128, 8
#: Fewer scores are left to a kernel of one block, or to products and a softmax.
FEWEST = 1 << 14


def attends(fusion: Fusion, machine: GpuMachine) -> bool:
    """Whether there is a kernel for an attention; else its products and its softmax are kernels."""
    forward = fusion.forward
    q, v = forward.q.tensor_type, forward.v.tensor_type
    if q.dtype not in (bfloat16, float16) or machine.capability < 80:
        return False
    sizes = [*q.shape, *v.shape]
    if has_dims(sizes) or any(size % UNIT or size > WIDEST for size in (q.shape[-1], v.shape[-1])):
        return False
    return size_of(q.shape[:-1]) * v.shape[-2] >= FEWEST
