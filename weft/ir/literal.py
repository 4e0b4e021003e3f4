"""Constants in a graph: arrays that are part of the program."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.device import Device
from weft.base.dtypes import DType, dtype_of_numpy
from weft.base.lazy import Lazy
from weft.ir.dispatch import family_for
from weft.ir.op import Op, Trait
from weft.ir.types import TensorType

hashlib = Lazy("hashlib")


class Literal:
    """An array as an attribute: read-only, and equal if dtype, shape and all bits are equal."""

    __slots__ = ("_digest", "array")

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        if array.flags.writeable:
            array = array.copy()
            array.flags.writeable = False
        self.array = array
        self._digest: str | None = None

    @property
    def dtype(self) -> DType:
        return dtype_of_numpy(self.array.dtype)

    @property
    def digest(self) -> str:
        """A hash of the content: its key in the table of constants of a printed graph."""
        if self._digest is None:
            head = f"{self.dtype.name}{self.array.shape}".encode()
            self._digest = hashlib.sha256(head + self.array.tobytes()).hexdigest()[:16]
        return self._digest

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Literal):
            return NotImplemented
        a, b = self.array, other.array
        if a is b:
            return True
        return a.dtype == b.dtype and a.shape == b.shape and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Literal({TensorType(self.dtype, self.array.shape)})"


def _constant_type(*, value: Literal, dtype: DType, device: Device) -> TensorType:
    return TensorType(dtype, value.array.shape, device)


def _constant(_xp: Any, *, value: Literal, dtype: DType, device: Device) -> Any:
    return family_for(device).from_numpy(value.array, device)


#: A constant. `dtype` is that of the value; all ops without inputs have this attribute.
CONSTANT = Op(
    "constant",
    _constant_type,
    _constant,
    traits=Trait.CREATION | Trait.ANYWHERE,
)


def constant_attrs(array: np.ndarray[Any, Any], device: Device) -> dict[str, Any]:
    """The attributes of a constant."""
    literal = Literal(array)
    return {"value": literal, "dtype": literal.dtype, "device": device}
