"""Kernels that draw random numbers, bit by bit those that eager code draws."""

from weft.codegen.random.table import EMITTERS

__all__ = ["EMITTERS"]
