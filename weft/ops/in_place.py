"""Methods that end in an underscore: `x.add_(y)` gives this tensor a new value, as `x += y` does.

Each is made from the method without the underscore, by one rule. The value must fit: `x` keeps its
dtype, and its shape unless the method is about the shape. No other tensor changes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from sys import getrefcount
from typing import Any

from weft.base import dtypes
from weft.base.dtypes import int_info
from weft.core.bind import rebind
from weft.core.operands import Operand, assign
from weft.core.public import attach
from weft.core.structure import changed
from weft.core.temporaries import METHOD_OF_TEMPORARY, lost_method
from weft.core.tensor import Tensor
from weft.ops import (
    activations,
    aliases,
    combined,
    creation,
    elementwise,
    products,
    random,
    random_continuous,
    random_discrete,
    rearranging,
    reduce,
    scatter,
    scatter_parts,
    select,
    selection,
    shape,
    special_bessel,
    special_gamma,
    special_logs,
    special_normal,
    statistics,
)

__all__: list[str] = []

#: Methods whose result has the dtype and the shape of x.
_VALUES = """
abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr arccos arccosh arcsin arcsinh
arctan arctan2 arctanh asin asinh atan atan2 atanh baddbmm bitwise_and bitwise_invert
bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil clamp clamp_max
clamp_min clip conj copysign cos cosh cumprod cumsum cumulative_prod cumulative_sum deg2rad
digamma div divide erf erfc erfinv exp expm1 fix float_power floor floor_divide fmod frac gcd
heaviside hypot index_add index_copy index_fill index_put lcm ldexp lerp lgamma log log10 log1p
log2 logical_and logical_not logical_or logical_xor logit masked_fill masked_scatter maximum
minimum mul multiply nan_to_num neg negative nextafter pow put rad2deg reciprocal relu remainder
renorm round rsqrt scatter scatter_add scatter_reduce sgn sigmoid sign sin sinc sinh softmax sqrt
square sub subtract tan tanh tril triu true_divide trunc xlogy
"""
#: Methods that change the shape.
_SHAPES = "expand_dims moveaxis movedim squeeze swapaxes swapdims t transpose unsqueeze"


def _twin(name: str, function: Callable[..., Any], *, shapes: bool) -> Callable[..., Tensor]:
    """The method `name_`, which gives x what `name` computes."""

    def method(self: Tensor, /, *args: Any, **kwargs: Any) -> Tensor:
        lost = getrefcount(self) <= METHOD_OF_TEMPORARY
        value = function(self, *args, **kwargs)
        if not shapes:
            assign(self, value, f"{name}_")
        else:
            rebind(self, value, f"{name}_")
            changed()
        if lost:
            lost_method()
        return self

    first, *rest = inspect.signature(function).parameters.values()
    kind = first.POSITIONAL_ONLY
    signature = inspect.Signature(
        [first.replace(name="self", kind=kind), *rest], return_annotation="Tensor"
    )
    method.__name__ = method.__qualname__ = f"{name}_"
    method.__doc__ = f"Give x the value of x.{name}(...), which it returns."
    method.__signature__ = signature  # type: ignore[attr-defined]
    return method


# --- values that do not depend on what x held --------------------------------------------------


def _fill(self: Tensor, value: Operand) -> Tensor:
    """x with one value everywhere."""
    return creation.full_like(self, value)


def _normal(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Tensor:
    """Draws from a normal distribution."""
    return random.normal(mean, std, self.shape, **_like(self), generator=generator)


def _uniform(self: Tensor, low: float = 0.0, high: float = 1.0, *, generator: Any = None) -> Tensor:
    """Draws from a uniform distribution."""
    return random.uniform(low, high, self.shape, **_like(self), generator=generator)


def _bernoulli(self: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    """Ones with probability p, zeros otherwise."""
    return random.bernoulli(p, self.shape, **_like(self), generator=generator)


def _random(
    self: Tensor, low: int = 0, high: int | None = None, *, generator: Any = None
) -> Tensor:
    """Integers from low (or 0) up to, not including, high, which may stand alone."""
    if high is None:
        low, high = (0, low) if low else (0, _largest(self))
    drawn = random.randint(low, high, self.shape, device=self.device, generator=generator)
    return drawn.astype(self.dtype)


def _drawn(draw: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Draws from one of the distributions of `weft.random`, by its parameters."""

    def method(self: Tensor, *parameters: Any, generator: Any = None) -> Tensor:
        return draw(*parameters, shape=self.shape, **_like(self), generator=generator)

    return method


def _largest(x: Tensor) -> int:
    """One more than the largest integer that is drawn for a dtype by default."""
    if x.dtype.kind in ("int", "uint"):
        return min(int_info(x.dtype).max, int_info(dtypes.int64).max - 1) + 1
    return 2 if x.dtype.kind == "bool" else 2 ** {2: 11, 4: 24, 8: 53}[x.dtype.itemsize]


def _like(x: Tensor) -> dict[str, Any]:
    return {"dtype": x.dtype, "device": x.device}


_MADE: dict[str, Callable[..., Any]] = {
    "fill": _fill,
    "normal": _normal,
    "uniform": _uniform,
    "bernoulli": _bernoulli,
    "random": _random,
    "exponential": _drawn(random_continuous.exponential),
    "cauchy": _drawn(random_continuous.cauchy),
    "log_normal": _drawn(random_continuous.log_normal),
    "geometric": _drawn(random_discrete.geometric),
}


#: Where the methods come from: importing them has given them to Tensor.
_FAMILIES = (
    *(aliases, combined, elementwise, products, reduce, scatter, scatter_parts, select, selection),
    *(creation, rearranging, shape, activations, special_bessel, special_gamma, special_logs),
    *(special_normal, statistics),
)


def _methods(names: str) -> dict[str, Callable[..., Any]]:
    return {name: getattr(Tensor, name) for name in names.split()}


attach({f"{name}_": _twin(name, f, shapes=False) for name, f in _methods(_VALUES).items()})
attach({f"{name}_": _twin(name, f, shapes=True) for name, f in _methods(_SHAPES).items()})
attach({f"{name}_": _twin(name, f, shapes=False) for name, f in _MADE.items()})
