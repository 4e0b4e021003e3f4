"""The type of a tensor: all that is known of it without its values."""

from __future__ import annotations

from dataclasses import dataclass

from weft.base.device import CPU, Device
from weft.base.dtypes import DType
from weft.base.shapes import Shape, size_of

DENSE = "dense"


@dataclass(frozen=True, slots=True)
class TensorType:
    """dtype, shape, device and layout. Prints as `f32[2,3]`."""

    dtype: DType
    shape: Shape
    device: Device = CPU
    layout: str = DENSE

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return size_of(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def like(self, *, dtype: DType | None = None, shape: Shape | None = None) -> TensorType:
        """This type with another dtype or shape."""
        return TensorType(
            self.dtype if dtype is None else dtype,
            self.shape if shape is None else shape,
            self.device,
            self.layout,
        )

    def __str__(self) -> str:
        place = "" if self.device == CPU else f"@{self.device}"
        layout = "" if self.layout == DENSE else f":{self.layout}"
        return f"{self.dtype.short}[{','.join(map(str, self.shape))}]{layout}{place}"
