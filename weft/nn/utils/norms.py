"""Weights divided by a norm: weight_norm and spectral_norm, as parametrizations and as of old."""

from __future__ import annotations

from typing import Any

from weft.base.errors import RangeError, ShapeError
from weft.core.bind import rebind
from weft.core.grad_mode import no_grad
from weft.core.tensor import Tensor
from weft.nn.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from weft.nn.functional.distance import normalize
from weft.nn.module import Module
from weft.nn.parameter import Parameter
from weft.nn.utils.computed import compute, forget
from weft.nn.utils.parametrize import register_parametrization
from weft.ops.elementwise import sqrt
from weft.ops.matmul import matmul
from weft.ops.random import normal
from weft.ops.reduce import sum
from weft.ops.shape import moveaxis, reshape

# --- weight norm -------------------------------------------------------------------------------


def norm_except(v: Tensor, dim: int | None) -> Tensor:
    """The norm over all axes but one; over all of them where `dim` is None."""
    if dim is None or dim == -1:
        return sqrt(sum(v * v))
    axes = tuple(i for i in range(v.ndim) if i != dim % v.ndim)
    return sqrt(sum(v * v, axis=axes, keepdims=True))


class _WeightNorm(Module):
    def __init__(self, dim: int | None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / norm_except(weight_v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except(weight, self.dim), weight


def parametrized_weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Any:
    """Learn the length and the direction of a weight apart (Salimans and Kingma, 2016).

    The originals are `parametrizations.<name>.original0` (the lengths) and `.original1`.
    """
    return register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """The same with PyTorch's older names: the parameters are `<name>_g` and `<name>_v`."""
    value = _own(module, name, "weight_norm")
    with no_grad():
        length = norm_except(value.detach(), dim)
    delattr(module, name)
    module.register_parameter(f"{name}_g", Parameter(length))
    module.register_parameter(f"{name}_v", Parameter(value.detach()))

    def get(self: Any) -> Tensor:
        v: Tensor = getattr(self, f"{name}_v")
        g: Tensor = getattr(self, f"{name}_g")
        return v * (g / norm_except(v, dim))

    compute(module, name, get)
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Make the weight an ordinary parameter again."""
    return _remove(module, name, (f"{name}_g", f"{name}_v"), "weight_norm")


# --- spectral norm -----------------------------------------------------------------------------


def _matrix(weight: Tensor, dim: int) -> Tensor:
    moved = moveaxis(weight, dim, 0) if dim else weight
    return reshape(moved, (moved.shape[0], -1))


def _iterated(
    matrix: Tensor, u: Tensor, v: Tensor, times: int, eps: float
) -> tuple[Tensor, Tensor]:
    """Better guesses at the vectors of the largest singular value."""
    for _ in range(times):
        u = normalize(matmul(matrix, v), dim=0, eps=eps)
        v = normalize(matmul(matrix.mT, u), dim=0, eps=eps)
    return u, v


def _iterated_from_u(
    matrix: Tensor, u: Tensor, v: Tensor, times: int, eps: float
) -> tuple[Tensor, Tensor]:
    """The same, in the order of PyTorch's older function."""
    v, u = _iterated(matrix.mT, v, u, times, eps)
    return u, v


def _guesses(matrix: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    options: dict[str, Any] = {"dtype": matrix.dtype, "device": matrix.device}
    u = normalize(normal(0.0, 1.0, (matrix.shape[0],), **options), dim=0, eps=eps)
    v = normalize(normal(0.0, 1.0, (matrix.shape[1],), **options), dim=0, eps=eps)
    return _iterated(matrix, u, v, 15, eps)


class _SpectralNorm(Module):
    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, n_power_iterations: int, dim: int, eps: float) -> None:
        super().__init__()
        self.dim, self.eps, self.n_power_iterations = dim, eps, n_power_iterations
        if weight.ndim > 1:
            with no_grad():
                u, v = _guesses(_matrix(weight.detach(), dim), eps)
            self.register_buffer("_u", u)
            self.register_buffer("_v", v)

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return normalize(weight, dim=0, eps=self.eps)
        times = self.n_power_iterations
        return _divided(self, "", weight, self.dim, times, self.eps, _iterated)

    def right_inverse(self, value: Tensor) -> Tensor:
        return value  # its norm is not known any more


def _divided(
    module: Any, names: str, weight: Tensor, dim: int, times: int, eps: float, iterate: Any
) -> Tensor:
    matrix = _matrix(weight, dim)
    u, v = getattr(module, f"{names}_u"), getattr(module, f"{names}_v")
    if module.training:
        with no_grad():
            new_u, new_v = iterate(matrix.detach(), u.clone(), v.clone(), times, eps)
            rebind(u, new_u, "spectral_norm")
            rebind(v, new_v, "spectral_norm")
    return weight / sum(u.clone() * matmul(matrix, v.clone()))


def _axis(module: Module, dim: int | None) -> int:
    turned = (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
    return int(isinstance(module, turned)) if dim is None else dim


def parametrized_spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Any:
    """Divide a weight by its largest singular value (Miyato and others, 2018).

    The value is found by power iterations, of which each reading of the weight in training mode
    makes some more.
    """
    if n_power_iterations < 1:
        raise RangeError(f"n_power_iterations must be 1 or more: {n_power_iterations}")
    weight = _own(module, name, "spectral_norm")
    norm = _SpectralNorm(weight, n_power_iterations, _axis(module, dim), eps)
    return register_parametrization(module, name, norm)


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """The same with PyTorch's older names: `<name>_orig`, buffers `<name>_u` and `<name>_v`."""
    if n_power_iterations < 1:
        raise RangeError(f"n_power_iterations must be 1 or more: {n_power_iterations}")
    value, axis = _own(module, name, "spectral_norm"), _axis(module, dim)
    if value.ndim < 2:
        raise ShapeError(f"{name} of {value.ndim} axes is no matrix", op="spectral_norm")
    with no_grad():
        u, v = _guesses(_matrix(value.detach(), axis), eps)
    delattr(module, name)
    module.register_parameter(f"{name}_orig", Parameter(value.detach()))
    module.register_buffer(f"{name}_u", u)
    module.register_buffer(f"{name}_v", v)

    def get(self: Any) -> Tensor:
        weight = getattr(self, f"{name}_orig")
        return _divided(self, name, weight, axis, n_power_iterations, eps, _iterated_from_u)

    compute(module, name, get)
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Make the weight an ordinary parameter again."""
    return _remove(module, name, (f"{name}_orig", f"{name}_u", f"{name}_v"), "spectral_norm")


def _own(module: Module, name: str, op: str) -> Tensor:
    found = module.__dict__.get(name)
    if not isinstance(found, Parameter):
        raise AttributeError(f"{op}: {type(module).__name__} has no parameter {name!r}")
    return found


def _remove(module: Module, name: str, parts: tuple[str, ...], op: str) -> Module:
    if any(part not in module._member_kinds for part in parts):
        raise ValueError(f"{op}: {name!r} of {type(module).__name__} has none")
    was_training = module.training
    module.training = False
    with no_grad():
        value = getattr(module, name).detach().clone()
    module.training = was_training
    forget(module, name)
    for part in parts:
        delattr(module, part)
    module.register_parameter(name, Parameter(value))
    return module
