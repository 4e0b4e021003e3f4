"""Invertible functions of samples, with the logarithm of their slope."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft.core.operands import Operand
from weft.core.tensor import Tensor
from weft.distributions import constraints
from weft.distributions.constraints import Constraint
from weft.ops.activations import sigmoid
from weft.ops.elementwise import abs, atanh, exp, log, log1p, maximum, tanh

__all__ = [
    "AffineTransform",
    "ComposeTransform",
    "ExpTransform",
    "PowerTransform",
    "SigmoidTransform",
    "TanhTransform",
    "Transform",
]


class Transform:
    """y = transform(x), x = transform.inv(y), and log |dy / dx|."""

    codomain: Constraint = constraints.real
    #: 1 if it grows with x, -1 if it falls.
    sign: Any = 1

    def __call__(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def inv(self, y: Tensor) -> Tensor:
        """The x of a y."""
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the slope at x, where y = transform(x)."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class ExpTransform(Transform):
    """exp(x)."""

    codomain = constraints.positive

    def __call__(self, x: Tensor) -> Tensor:
        return exp(x)

    def inv(self, y: Tensor) -> Tensor:
        return log(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class SigmoidTransform(Transform):
    """1 / (1 + exp(-x))."""

    codomain = constraints.unit_interval

    def __call__(self, x: Tensor) -> Tensor:
        return sigmoid(x)

    def inv(self, y: Tensor) -> Tensor:
        return log(y) - log1p(-y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -abs(x) - 2 * log1p(exp(-abs(x)))


class TanhTransform(Transform):
    """tanh(x)."""

    codomain = constraints.Constraint("from -1 to 1", lambda x: (x >= -1) & (x <= 1))

    def __call__(self, x: Tensor) -> Tensor:
        return tanh(x)

    def inv(self, y: Tensor) -> Tensor:
        return atanh(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        softplus = maximum(-2 * x, 0.0) + log1p(exp(-2 * abs(x)))
        return 2 * (math.log(2) - x - softplus)


class AffineTransform(Transform):
    """loc + scale x."""

    def __init__(self, loc: Operand, scale: Operand) -> None:
        self.loc = loc
        self.scale = scale

    @property
    def sign(self) -> Any:
        """The sign of the scale."""
        scale: Any = self.scale
        positive = scale > 0
        return positive * 2 - 1 if isinstance(positive, bool) else 2.0 * positive - 1.0

    def __call__(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def inv(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return log(abs(0 * x + self.scale))

    def __repr__(self) -> str:
        return f"AffineTransform({self.loc}, {self.scale})"


class PowerTransform(Transform):
    """x ** exponent, for positive x."""

    codomain = constraints.positive

    def __init__(self, exponent: Operand) -> None:
        self.exponent = exponent

    def __call__(self, x: Tensor) -> Tensor:
        return x**self.exponent

    def inv(self, y: Tensor) -> Tensor:
        return y ** (1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return log(abs(self.exponent * y / x))


class ComposeTransform(Transform):
    """One transform after the other."""

    def __init__(self, parts: Sequence[Transform]) -> None:
        self.parts = tuple(parts)
        if self.parts:
            self.codomain = self.parts[-1].codomain

    @property
    def sign(self) -> Any:
        """The product of the signs."""
        out: Any = 1
        for part in self.parts:
            out = out * part.sign
        return out

    def __call__(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def inv(self, y: Tensor) -> Tensor:
        for part in reversed(self.parts):
            y = part.inv(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        total = 0 * x
        for part in self.parts:
            after = part(x)
            total = total + part.log_abs_det_jacobian(x, after)
            x = after
        return total
