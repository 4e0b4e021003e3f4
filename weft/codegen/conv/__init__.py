"""Convolutions and their two derivatives."""

from weft.codegen.conv.emit import emit_conv, emit_conv_input, emit_conv_weight

__all__ = ["EMITTERS"]

#: For each card: `emit(module, name, node, store=None)`, its kernels, or None.
EMITTERS = {
    "conv": emit_conv,
    "conv_bias": emit_conv,
    "conv_input": emit_conv_input,
    "conv_weight": emit_conv_weight,
}
