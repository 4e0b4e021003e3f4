"""Symbolic sizes as numbers to compute with: x / B."""

from __future__ import annotations

from weft.base.device import Device
from weft.base.dtypes import DType
from weft.ir.op import Op, Trait
from weft.ir.types import TensorType

__all__: list[str] = []


def _dim_size_type(*, size: int, dtype: DType, device: Device) -> TensorType:
    return TensorType(dtype, (), device)


#: Made by `weft.core.operands.dim_tensor`.
DIM_SIZE = Op(
    "dim_size",
    _dim_size_type,
    lambda xp, *, size, dtype, device: xp.asarray(size, dtype=dtype.numpy),
    kinds="numeric",
    traits=Trait.CREATION,
)
