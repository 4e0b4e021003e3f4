"""The kernels of convolutions, by the card they compute."""

from __future__ import annotations

from weft.codegen.conv.emit import emit_conv, emit_conv_input, emit_conv_weight

__all__ = ["EMITTERS"]

#: For each card: `emit(module, name, node, store=None)`, its kernels, or None. A store is given the
#: index (image, channel, position among all spatial ones); lanes stay in one row of the last axis.
EMITTERS = {
    "conv": emit_conv,
    "conv_bias": emit_conv,
    "conv_input": emit_conv_input,
    "conv_weight": emit_conv_weight,
}
