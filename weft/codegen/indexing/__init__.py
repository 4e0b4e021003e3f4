"""Kernels that read and write by index, lay tensors side by side, and make them of rules."""

from weft.codegen.indexing.table import EMITTERS

__all__ = ["EMITTERS"]
