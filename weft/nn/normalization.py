"""Normalization layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base import dtypes
from weft.base.errors import ShapeError
from weft.core.grad_mode import no_grad
from weft.core.tensor import Tensor, type_of
from weft.nn import functional as F
from weft.nn import init
from weft.nn.module import Module
from weft.nn.parameter import Parameter
from weft.ops.creation import ones, zeros
from weft.ops.shape import expand_dims, squeeze

__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "GroupNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LayerNorm",
    "RMSNorm",
]


class _Norm(Module):
    """A layer that may scale and shift what it has normalized."""

    weight: Parameter | None
    bias: Parameter | None

    def _affine(self, shape: Any, weight: bool, bias: bool, device: Any, dtype: Any) -> None:
        scale = Parameter(ones(shape, dtype=dtype, device=device)) if weight else None
        shift = Parameter(zeros(shape, dtype=dtype, device=device)) if bias else None
        self.register_parameter("weight", scale)
        self.register_parameter("bias", shift)

    def reset_parameters(self) -> None:
        """Scale by 1, shift by 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)


class _RunningNorm(_Norm):
    """Normalization of channels, with statistics that are kept for later."""

    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None
    _ndims: tuple[int, ...] = ()  # how many axes the input may have
    _unbatched: int = -1  # with how many axes it is a single sample

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        self._affine(num_features, affine, affine and bias, device, dtype)
        tracked = track_running_stats
        options = {"dtype": dtype, "device": device}
        self.register_buffer("running_mean", zeros(num_features, **options) if tracked else None)
        self.register_buffer("running_var", ones(num_features, **options) if tracked else None)
        count = zeros((), dtype=dtypes.int64, device=device) if tracked else None
        self.register_buffer("num_batches_tracked", count)

    def reset_running_stats(self) -> None:
        """Forget the statistics: mean 0, variance 1, no batch seen."""
        if self.running_mean is not None and self.running_var is not None:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
        if self.num_batches_tracked is not None:
            init.zeros_(self.num_batches_tracked)

    def reset_parameters(self) -> None:
        """Scale by 1, shift by 0, and forget the statistics."""
        super().reset_parameters()
        self.reset_running_stats()

    def _check_axes(self, input: Tensor) -> None:
        if input.ndim not in self._ndims:
            wanted = " or ".join(map(str, self._ndims))
            raise ShapeError(
                f"the input has {input.ndim} axes, not {wanted}",
                op=type(self).__name__,
                operands=[type_of(input)],
                hint="axes are (batch, channels, …)",
            )
        channels = input.shape[0 if input.ndim == self._unbatched else 1]
        if channels != self.num_features:
            raise ShapeError(
                f"the weight has shape ({self.num_features},); the input of shape {input.shape} "
                f"has {channels} channels",
                op=type(self).__name__,
                operands=[type_of(input)],
                hint="make the layer for as many channels as the input has",
            )

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.affine}, bias={self.bias is not None}, "
            f"track_running_stats={self.track_running_stats}"
        )


class BatchNorm(_RunningNorm):
    def forward(self, input: Tensor) -> Tensor:
        self._check_axes(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        learns = self.training and self.track_running_stats
        if learns and self.num_batches_tracked is not None:
            with no_grad():
                self.num_batches_tracked += 1
            if self.momentum is None:  # the plain mean of all batches
                momentum = 1.0 / float(self.num_batches_tracked)
        alone = self.running_mean is None and self.running_var is None
        used = learns or not self.training
        return F.batch_norm(
            input,
            self.running_mean if used else None,
            self.running_var if used else None,
            self.weight,
            self.bias,
            self.training or alone,
            momentum,
            self.eps,
        )


class BatchNorm1d(BatchNorm):
    """Each channel of (batch, channels) or (batch, channels, length) over the whole batch."""

    _ndims = (2, 3)


class BatchNorm2d(BatchNorm):
    """Each channel of (batch, channels, height, width) over the whole batch."""

    _ndims = (4,)


class BatchNorm3d(BatchNorm):
    """Each channel of (batch, channels, depth, height, width) over the whole batch."""

    _ndims = (5,)


class _InstanceNorm(_RunningNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )

    def forward(self, input: Tensor) -> Tensor:
        self._check_axes(input)
        single = input.ndim == self._unbatched
        out = F.instance_norm(
            expand_dims(input, 0) if single else input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )
        return squeeze(out, 0) if single else out


class InstanceNorm1d(_InstanceNorm):
    """Each channel of each sample of (batch, channels, length) by itself."""

    _ndims = (2, 3)
    _unbatched = 2


class InstanceNorm2d(_InstanceNorm):
    """Each channel of each sample of (batch, channels, height, width) by itself."""

    _ndims = (3, 4)
    _unbatched = 3


class InstanceNorm3d(_InstanceNorm):
    """Each channel of each sample of (batch, channels, depth, height, width) by itself."""

    _ndims = (4, 5)
    _unbatched = 4


def _shape(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    return (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)


class LayerNorm(_Norm):
    """Each sample by itself, over its last axes."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        shifted = elementwise_affine and bias
        self._affine(self.normalized_shape, elementwise_affine, shifted, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """The input divided by the root of its mean square over its last axes."""

    weight: Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        scale = ones(self.normalized_shape, dtype=dtype, device=device)
        self.register_parameter("weight", Parameter(scale) if elementwise_affine else None)

    def reset_parameters(self) -> None:
        """Scale by 1."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


class GroupNorm(_Norm):
    """Each sample by itself, over groups of channels."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_groups < 1 or num_channels % num_groups:
            raise ShapeError(
                f"{num_channels} channels do not fall into {num_groups} groups", op="GroupNorm"
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self._affine(num_channels, affine, affine and bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )
