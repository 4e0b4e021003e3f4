"""Sizes that are not known yet, as numbers to compute with: x / B."""

from __future__ import annotations

from typing import Any

from weft.base.device import Device
from weft.base.dtypes import DType
from weft.core.bind import bind
from weft.core.operands import use_dim_tensor
from weft.core.tensor import Tensor
from weft.ir.op import Op, Trait
from weft.ir.types import TensorType

__all__: list[str] = []


def _dim_size_type(*, size: int, dtype: DType, device: Device) -> TensorType:
    return TensorType(dtype, (), device)


_dim_size = Op(
    "dim_size",
    _dim_size_type,
    lambda xp, *, size, dtype, device: xp.asarray(size, dtype=dtype.numpy),
    kinds="numeric",
    traits=Trait.CREATION,
)


def _tensor(size: Any, dtype: DType, device: Device) -> Tensor:
    out: Tensor = bind(_dim_size, size=size, dtype=dtype, device=device)
    return out


use_dim_tensor(_tensor)
