"""A convolution, or a linear layer, and the batch norm behind it as one layer, for inference."""

from __future__ import annotations

import copy
from typing import Any

from weft.base.errors import RangeError
from weft.core.grad_mode import no_grad
from weft.core.tensor import Tensor
from weft.nn.parameter import Parameter
from weft.ops.creation import ones_like, zeros_like
from weft.ops.elementwise import sqrt
from weft.ops.shape import reshape


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """The weight and the bias of one convolution that does what both layers do."""
    with no_grad():
        shift = zeros_like(bn_rm) if conv_b is None else conv_b.detach()
        scale = ones_like(bn_rm) if bn_w is None else bn_w.detach()
        offset = zeros_like(bn_rm) if bn_b is None else bn_b.detach()
        factor = scale / sqrt(bn_rv + bn_eps)
        shape = [1] * conv_w.ndim
        shape[1 if transpose else 0] = -1
        weight = conv_w.detach() * reshape(factor, tuple(shape))
        bias = (shift - bn_rm) * factor + offset
    learned = conv_w.requires_grad
    return Parameter(weight.astype(conv_w.dtype), learned), Parameter(bias.astype(conv_w.dtype))


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """One convolution that does what a convolution and the batch norm behind it do in eval mode.

    >>> conv, norm = weft.nn.Conv2d(3, 4, 1).eval(), weft.nn.BatchNorm2d(4).eval()
    >>> one = weft.nn.utils.fuse_conv_bn_eval(conv, norm)
    >>> x = weft.ones((1, 3, 2, 2))
    >>> bool(abs(one(x) - norm(conv(x))).max() < 1e-5)
    True
    """
    if conv.training or bn.training:
        raise RangeError("both layers must be in eval mode", op="fuse", hint="call .eval() first")
    if bn.running_mean is None or bn.running_var is None:
        raise RangeError("the batch norm keeps no statistics", op="fuse")
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight,
        fused.bias,
        bn.running_mean,
        bn.running_var,
        bn.eps,
        bn.weight,
        bn.bias,
        transpose or getattr(conv, "transposed", False),
    )
    return fused


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """One linear layer that does what it and the batch norm behind it do in eval mode."""
    return fuse_conv_bn_eval(linear, bn)
