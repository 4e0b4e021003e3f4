"""Convolution with 1, 2 or 3 spatial axes, in the layout (batch, channels, *sizes).

Three cards, each linear in both operands. The derivatives of each are the other two, so gradients
of any order need only these three:

    conv(x, weight)           → y
    conv_input(g, weight)     → the gradient of x: a transposed convolution
    conv_weight(x, g)         → the gradient of the weight

and `conv_bias`, which is `conv` plus a bias. A weight has the shape (outputs, inputs / groups,
*kernel). `weft.nn.functional` has the public functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.asked_sizes import is_less
from weft.base.errors import DTypeError, ShapeError
from weft.base.shapes import Shape, size_of
from weft.core.autocast import autocasts
from weft.core.bind import bind
from weft.core.operands import common
from weft.core.tensor import Tensor, type_of
from weft.ir.op import OPS, Cost, DerivativeRule, Op, Trait, Types
from weft.ir.types import TensorType
from weft.ops.arguments import integer
from weft.ops.batch_conv import (
    conv_bias_rule,
    conv_input_rule,
    conv_rule,
    conv_weight_rule,
)
from weft.ops.conv_kernels import convolve, convolve_input, convolve_weight
from weft.ops.conv_rules import (
    conv_bias_type,
    conv_input_type,
    conv_type,
    conv_weight_type,
    evaluate,
    evaluate_input,
    evaluate_weight,
)
from weft.ops.rules import apply, conj_of
from weft.ops.shape import expand_dims, reshape
from weft.ops.ways import convolved, convolved_input, convolved_weight
from weft.ops.windows import Padding, extent, per_axis

# --- derivatives -------------------------------------------------------------------------------


def _bilinear(xp: Any, g: Any, other: Any, like: Any, name: str, g_first: bool, attrs: Any) -> Any:
    """The derivative in one operand: another of the cards, applied to g and the other operand."""
    other = conj_of(xp, other)
    if name != "conv":
        attrs["size"] = tuple(like.shape[2:])
    return apply(OPS[name], *((g, other) if g_first else (other, g)), **attrs)


def _in_first(name: str, *, g_first: bool) -> DerivativeRule:
    def rule(
        xp: Any, g: Any, _out: Any, x_type: Any, y: Any, *_rest: Any,
        stride: Shape, padding: Padding, dilation: Shape, groups: int, size: Shape = (),
    ) -> Any:  # fmt: skip
        attrs = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        return _bilinear(xp, g, y, x_type, name, g_first, attrs)

    return rule


def _in_second(name: str, *, g_first: bool) -> DerivativeRule:
    def rule(
        xp: Any, g: Any, _out: Any, x: Any, y_type: Any, *_rest: Any,
        stride: Shape, padding: Padding, dilation: Shape, groups: int, size: Shape = (),
    ) -> Any:  # fmt: skip
        attrs = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        return _bilinear(xp, g, x, y_type, name, g_first, attrs)

    return rule


def _in_bias(
    xp: Any, g: Any, _out: Any, _x: Any, _weight: Any, _bias: Any, *,
    stride: Shape, padding: Padding, dilation: Shape, groups: int,
) -> Any:  # fmt: skip
    return xp.sum(g, axis=(0, *range(2, g.ndim)))


# --- cards -------------------------------------------------------------------------------------


def _cost(inputs: Types, outputs: Types, *, weight: TensorType, positions: TensorType) -> Cost:
    """A product and a sum for each weight of an output, at each position of each image."""
    moved = sum(t.nbytes for t in (*inputs, *outputs))
    return Cost(2 * positions.size * size_of(weight.shape[1:]), moved)


_TRAITS = Trait.LINEAR | Trait.WIDEN | Trait.PRODUCT

_conv = Op(
    "conv",
    conv_type,
    evaluate,
    numpy=convolve,
    kinds="numeric",
    autocast="lower",
    traits=_TRAITS,
    vjp=(_in_first("conv_input", g_first=True), _in_second("conv_weight", g_first=False)),
    batch=conv_rule,
    cost=lambda i, o, **attrs: _cost(i, o, weight=i[1], positions=o[0]),
    ways=convolved,
)
_conv_bias = Op(
    "conv_bias",
    conv_bias_type,
    evaluate,
    numpy=convolve,
    kinds="numeric",
    autocast="lower",
    traits=Trait.WIDEN | Trait.PRODUCT,
    vjp=(
        _in_first("conv_input", g_first=True),
        _in_second("conv_weight", g_first=False),
        _in_bias,
    ),
    batch=conv_bias_rule,
    cost=lambda i, o, **attrs: _cost(i, o, weight=i[1], positions=o[0]),
    ways=convolved,
    terms=((0, 2), (1, 2)),
)
_conv_input = Op(
    "conv_input",
    conv_input_type,
    evaluate_input,
    numpy=convolve_input,
    kinds="numeric",
    autocast="lower",
    traits=_TRAITS,
    vjp=(_in_first("conv", g_first=True), _in_second("conv_weight", g_first=True)),
    batch=conv_input_rule,
    cost=lambda i, o, **attrs: _cost(i, o, weight=i[1], positions=i[0]),
    ways=convolved_input,
)
_conv_weight = Op(
    "conv_weight",
    conv_weight_type,
    evaluate_weight,
    numpy=convolve_weight,
    kinds="numeric",
    autocast="lower",
    traits=_TRAITS,
    vjp=(_in_first("conv_input", g_first=False), _in_second("conv", g_first=False)),
    batch=conv_weight_rule,
    cost=lambda i, o, **attrs: _cost(i, o, weight=o[0], positions=i[1]),
    ways=convolved_weight,
)


# --- functions ---------------------------------------------------------------------------------


def conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Weighted sums over windows that slide along the last axes of x.

    x has the shape (batch, channels, *sizes), or (channels, *sizes); the weight (outputs,
    channels / groups, *kernel) says how many spatial axes there are; the bias has one number for
    each output. `stride`, `padding` and `dilation` are ints, or one int for each spatial axis;
    padding="same" keeps the sizes (with stride 1), "valid" adds nothing. Each of the `groups` of
    outputs sees its own part of the channels.

    >>> from weft.ops.conv import conv
    >>> x = weft.asarray([[[1.0, 2.0, 4.0, 8.0]]])
    >>> conv(x, weft.asarray([[[-1.0, 1.0]]]))
    tensor([[[1., 2., 4.]]])
    """
    axes = weight.ndim - 2
    op = f"conv{max(axes, 1)}d"
    operands = common((x, weight) if bias is None else (x, weight, bias), op)
    images, single = _batched(operands[0], weight, op)
    steps = per_axis(stride, axes, "stride", op, least=1)
    apart = per_axis(dilation, axes, "dilation", op, least=1)
    out: Tensor = bind(
        _conv if bias is None else _conv_bias,
        images,
        *operands[1:],
        stride=steps,
        padding=_padding(padding, weight.shape[2:], steps, apart, op),
        dilation=apart,
        groups=integer(groups, "groups", op, x, weight),
    )
    return reshape(out, out.shape[1:]) if single else out


def _batched(x: Tensor, weight: Tensor, op: str) -> tuple[Tensor, bool]:
    """x with a batch axis, and whether it was added here."""
    if weight.ndim < 3 or x.ndim not in (weight.ndim, weight.ndim - 1):
        axes = max(weight.ndim, 3)
        raise ShapeError(
            f"an input of {x.ndim} axes does not go with a weight of {weight.ndim} axes",
            op=op,
            operands=[type_of(x), type_of(weight)],
            hint="the weight has 2 axes more than there are spatial ones, the input as many as "
            f"the weight: here {axes}, or {axes - 1} without a batch",
        )
    single = x.ndim == weight.ndim - 1
    return (expand_dims(x, 0) if single else x), single


def _padding(value: Any, kernel: Shape, stride: Shape, dilation: Shape, op: str) -> Padding:
    """The padding before and after each spatial axis."""
    if not isinstance(value, str):
        return tuple((n, n) for n in per_axis(value, len(kernel), "padding", op, least=0))
    if value == "valid":
        return ((0, 0),) * len(kernel)
    if value != "same":
        raise DTypeError(f"padding must be ints, 'same' or 'valid', not {value!r}", op=op)
    if any(step != 1 for step in stride):
        raise ShapeError(
            f"padding='same' keeps the sizes only with stride 1, not {stride}",
            op=op,
            hint="give the padding as ints: (kernel - 1) // 2 for odd kernels",
        )
    whole = [extent(k, d) - 1 for k, d in zip(kernel, dilation, strict=True)]
    return tuple((n // 2, n - n // 2) for n in whole)


@autocasts("lower")
def conv_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Tensor:
    """The transpose of `conv`: each element of x is spread over a window of the result.

    The weight has the shape (channels of x, outputs / groups, *kernel). Along each spatial axis
    the result has (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + 1 + output_padding
    elements.

    >>> from weft.ops.conv import conv_transpose
    >>> x = weft.asarray([[[1.0, 10.0]]])
    >>> conv_transpose(x, weft.asarray([[[1.0, 2.0, 3.0]]]), stride=2)
    tensor([[[ 1.,  2., 13., 20., 30.]]])
    """
    axes = weight.ndim - 2
    op = f"conv_transpose{max(axes, 1)}d"
    operands = common((x, weight) if bias is None else (x, weight, bias), op)
    images, single = _batched(operands[0], weight, op)
    steps = per_axis(stride, axes, "stride", op, least=1)
    apart = per_axis(dilation, axes, "dilation", op, least=1)
    cut = per_axis(padding, axes, "padding", op, least=0)
    extra = per_axis(output_padding, axes, "output_padding", op, least=0)
    size = tuple(
        (n - 1) * step - 2 * p + extent(k, d) + more
        for n, k, step, d, p, more in zip(
            images.shape[2:], weight.shape[2:], steps, apart, cut, extra, strict=True
        )
    )
    types = [type_of(tensor) for tensor in operands]
    if any(e >= max(s, d) for e, s, d in zip(extra, steps, apart, strict=True)):
        raise ShapeError(
            f"output_padding {extra} must be smaller than the stride {steps} or "
            f"the dilation {apart}",
            op=op,
            operands=types,
        )
    if any(is_less(n, 1) for n in size):
        raise ShapeError(
            f"the result would have the sizes {size}",
            op=op,
            operands=types,
            hint="use less padding",
        )
    try:
        out: Tensor = bind(
            _conv_input,
            images,
            operands[1],
            size=size,
            stride=steps,
            padding=tuple((p, p - more) for p, more in zip(cut, extra, strict=True)),
            dilation=apart,
            groups=integer(groups, "groups", op, x, weight),
        )
    except ShapeError:
        _check_channels(images.shape[1], weight.shape, groups, op, types)
        raise
    if bias is not None:
        if bias.shape != out.shape[1:2]:
            raise ShapeError(
                f"the bias has shape {bias.shape}, not {out.shape[1:2]}: one for each output",
                op=op,
                operands=types,
            )
        out = out + reshape(operands[2], (-1, *(1 for _ in size)))
    return reshape(out, out.shape[1:]) if single else out


def _check_channels(channels: int, weight: Shape, groups: int, op: str, types: Any) -> None:
    """Check channels for a transposed convolution, whose weight has the input channels first."""
    if groups < 1 or channels % groups != 0 or channels != weight[0]:
        raise ShapeError(
            f"the weight of shape {weight} takes {weight[0]} input channels in {groups} groups; "
            f"the input has {channels}",
            op=op,
            operands=types,
            hint="the weight has the shape (in_channels, out_channels / groups, *kernel)",
        ) from None
