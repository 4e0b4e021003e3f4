"""Attention on a GPU: which become one kernel."""

from __future__ import annotations

from weft.passes.lowering.attention import Fusion

__all__ = ["attends"]


def attends(_fusion: Fusion) -> bool:
    """Whether there is a kernel for an attention; else its products and its softmax are kernels."""
    return False
