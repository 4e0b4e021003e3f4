"""Convolutions and their two derivatives."""

from weft.codegen.conv.table import EMITTERS

__all__ = ["EMITTERS"]
