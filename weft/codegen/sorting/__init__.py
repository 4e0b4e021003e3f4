"""Kernels that look for an order: sorts, positions of extremes, searches."""

from weft.codegen.sorting.table import EMITTERS

__all__ = ["EMITTERS"]
