"""Kernels that read and write by index, concatenate tensors, and create them."""

from weft.codegen.indexing.table import EMITTERS

__all__ = ["EMITTERS"]
