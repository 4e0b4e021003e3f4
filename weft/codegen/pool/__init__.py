"""Pooling: the largest elements and the sums of windows, and their derivatives."""

from weft.codegen.pool.emit import EMITTERS

__all__ = ["EMITTERS"]
