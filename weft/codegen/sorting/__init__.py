"""Kernels for sorting, positions of extremes, and searching."""

from weft.codegen.sorting.table import EMITTERS

__all__ = ["EMITTERS"]
