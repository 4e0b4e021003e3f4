"""Attention as one kernel, forward and backward, that never writes the matrix of scores."""

from weft.codegen.attention.backward import Backward, emit_backward
from weft.codegen.attention.forward import emit_forward
from weft.codegen.attention.spec import Attention

__all__ = ["Attention", "Backward", "emit_backward", "emit_forward"]
