"""Activation functions. `dim` is PyTorch's word for the axis.

With `inplace=True` the argument itself takes on the new value too; it saves nothing here.
"""

from __future__ import annotations

import math

from weft.base.dtypes import NARROW_FLOATS, as_dtype, float32
from weft.base.errors import RangeError, ShapeError
from weft.base.shapes import normalize_axis
from weft.core.autocast import autocasts
from weft.core.bind import bind
from weft.core.composite import composite
from weft.core.operands import assign, cast
from weft.core.tensor import Tensor
from weft.ops import activations, neural
from weft.ops.activations import sigmoid
from weft.ops.cast import astype
from weft.ops.elementwise import abs, expm1, log, negative, tanh
from weft.ops.random import rand_like, uniform
from weft.ops.reduce import max
from weft.ops.select import where
from weft.ops.shape import reshape

__all__ = [
    "celu",
    "elu",
    "gelu",
    "glu",
    "gumbel_softmax",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "log_softmax",
    "logsigmoid",
    "mish",
    "prelu",
    "relu",
    "relu6",
    "rrelu",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
]

_SELU_ALPHA = 1.6732632423543772
_SELU_SCALE = 1.0507009873554805


def _result(x: Tensor, out: Tensor, inplace: bool, op: str) -> Tensor:
    if inplace:
        assign(x, out, op)
    return out


# --- piecewise linear --------------------------------------------------------------------------


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """The input where it is above 0, else 0."""
    out = activations.relu(input)
    return _result(input, out, True, "relu") if inplace else out


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """The input where it is above the threshold, else `value`."""
    return _result(input, where(input > threshold, input, value), inplace, "threshold")


def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """The input cut off at two limits; there, the slope is 0."""
    out = where(input <= min_val, min_val, where(input >= max_val, max_val, input))
    return _result(input, out, inplace, "hardtanh")


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """The input cut off at 0 and 6."""
    return hardtanh(input, 0.0, 6.0, inplace)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """The input, scaled down where it is not above 0."""
    out = where(input > 0, input, input * negative_slope)
    return _result(input, out, inplace, "leaky_relu")


def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """leaky_relu with slopes drawn from [lower, upper) in training, else with their mean."""
    if not lower <= upper:
        raise RangeError(f"lower {lower} is above upper {upper}", op="rrelu")
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    slope = uniform(lower, upper, input.shape, device=input.device)
    out = where(input > 0, input, input * cast(slope, input.dtype))
    return _result(input, out, inplace, "rrelu")


@autocasts("lower")
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """leaky_relu with a slope that is learned: one, or one for each channel (axis 1)."""
    if weight.size != 1 and (input.ndim < 2 or weight.shape != (input.shape[1],)):
        raise ShapeError(
            f"a weight of shape {weight.shape} is neither one slope nor one for each channel",
            op="prelu",
            operands=[input.type, weight.type],
        )
    slope = reshape(weight, (-1, *(1,) * (input.ndim - 2))) if input.ndim else reshape(weight, ())
    return where(input > 0, input, input * slope)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """A sigmoid of straight lines: 0 below -3, 1 above 3."""
    out = where(input <= -3, 0, where(input >= 3, 1, input * (1 / 6) + 0.5))
    return _result(input, out, inplace, "hardsigmoid")


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * hardsigmoid(input)."""
    out = where(input <= -3, 0, where(input < 3, input * (input + 3) / 6, input))
    return _result(input, out, inplace, "hardswish")


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """The input, with values from -lambd to lambd as 0."""
    return where((input >= -lambd) & (input <= lambd), 0, input)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """The input brought closer to 0 by lambd, and not past it."""
    if lambd < 0:
        raise RangeError(f"lambd must not be negative: {lambd}", op="softshrink")
    return where(input > lambd, input - lambd, where(input < -lambd, input + lambd, input * 0))


# --- smooth ------------------------------------------------------------------------------------


@autocasts("")
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """The input where it is above 0, else alpha * (exp(input) - 1)."""
    return _result(input, _elu(input, alpha), inplace, "elu")


@composite
def _elu(input: Tensor, alpha: float) -> Tensor:
    below = alpha * expm1(where(input > 0, 0, input))  # exp of large numbers has no finite slope
    return where(input > 0, input, below)


@autocasts("")
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """elu with a continuous slope: alpha * (exp(input / alpha) - 1) where not above 0."""
    return _result(input, _celu(input, alpha), inplace, "celu")


@composite
def _celu(input: Tensor, alpha: float) -> Tensor:
    below = alpha * expm1(where(input > 0, 0, input) / alpha)
    return where(input > 0, input, below)


@autocasts("")
def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """elu, scaled so that activations keep mean 0 and variance 1."""
    return _result(input, _SELU_SCALE * elu(input, _SELU_ALPHA), inplace, "selu")


@composite
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """input * Φ(input), with Φ the normal distribution; "tanh" asks for an approximation."""
    if approximate not in ("none", "tanh"):
        raise RangeError(f"approximate is 'none' or 'tanh', not {approximate!r}", op="gelu")
    x = _wide(input)
    if approximate == "none":
        return cast(x * (activations.erf(x * math.sqrt(0.5)) + 1) * 0.5, input.dtype)
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    return cast(0.5 * x * (1 + tanh(inner)), input.dtype)


def _wide(input: Tensor) -> Tensor:
    """A narrow input as float32: what is computed of it is rounded once, at the end."""
    return cast(input, float32) if input.dtype in NARROW_FLOATS else input


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """input * sigmoid(input), also known as swish."""
    return _result(input, _silu(input), inplace, "silu")


@composite
def _silu(input: Tensor) -> Tensor:
    return input * sigmoid(input)


@autocasts("")
def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * tanh(softplus(input))."""
    return _result(input, _mish(input), inplace, "mish")


@composite
def _mish(input: Tensor) -> Tensor:
    return input * tanh(_softplus(input))


def _softplus(x: Tensor) -> Tensor:
    out: Tensor = bind(neural.softplus, x)
    return out


@composite
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * input)) / beta; the input itself where beta * input is large."""
    scaled = input * beta
    return where(scaled > threshold, input, _softplus(scaled) / beta)


@autocasts("")
@composite
def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(input)), exact also where sigmoid is almost 0 or 1."""
    return negative(_softplus(-input))


@composite
def softsign(input: Tensor) -> Tensor:
    """input / (1 + |input|)."""
    return input / (abs(input) + 1)


@composite
def tanhshrink(input: Tensor) -> Tensor:
    """input - tanh(input)."""
    return input - tanh(input)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """One half of the input along `dim`, times the sigmoid of the other half."""
    axis = normalize_axis(dim, input.ndim, "glu")
    size = input.shape[axis]
    if size % 2:
        raise ShapeError(f"axis {axis} of size {size} has no halves", op="glu")
    before = (slice(None),) * axis
    first, second = slice(None, size // 2), slice(size // 2, None)
    return input[(*before, first)] * sigmoid(input[(*before, second)])


# --- the softmax family ------------------------------------------------------------------------


def _axis(dim: int | None, ndim: int) -> int:
    """PyTorch's default where no dim is given."""
    return dim if dim is not None else 0 if ndim in (0, 1, 3) else 1


def softmax(input: Tensor, dim: int | None = None, dtype: object = None) -> Tensor:
    """exp(input) divided by its sum along `dim`."""
    x = input if dtype is None else astype(input, as_dtype(dtype), copy=False)
    return activations.softmax(x, axis=_axis(dim, x.ndim))


def log_softmax(input: Tensor, dim: int | None = None, dtype: object = None) -> Tensor:
    """The logarithm of softmax."""
    x = input if dtype is None else astype(input, as_dtype(dtype), copy=False)
    return activations.log_softmax(x, axis=_axis(dim, x.ndim))


def softmin(input: Tensor, dim: int | None = None, dtype: object = None) -> Tensor:
    """The softmax of -input."""
    return softmax(-input, dim, dtype)


@autocasts("")
def gumbel_softmax(logits: Tensor, tau: float = 1.0, hard: bool = False, dim: int = -1) -> Tensor:
    """A random choice along `dim` by its logits, relaxed so that gradients pass.

    With `hard` the result is one-hot, with the gradient of the relaxed one.
    """
    tiny = 1e-30 if logits.dtype.itemsize >= 4 else 1e-6
    noise = -log(-log(rand_like(logits) + tiny) + tiny)
    soft = activations.softmax((logits + noise) / tau, axis=dim)
    if not hard:
        return soft
    chosen = max(soft.detach(), axis=dim, keepdims=True)
    return astype(soft.detach() == chosen, soft.dtype) - soft.detach() + soft
