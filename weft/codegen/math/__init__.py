"""Functions of floats as polynomials in vector IR."""

from weft.codegen.math.call import FUNCTIONS, call

__all__ = ["FUNCTIONS", "call"]
