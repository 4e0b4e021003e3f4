"""Kernels that draw random numbers, bit for bit those of eager mode."""

from weft.codegen.random.table import EMITTERS

__all__ = ["EMITTERS"]
