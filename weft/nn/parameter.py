"""Parameter: a tensor that a module learns."""

from __future__ import annotations

from typing import Any

from weft.core.tensor import Tensor
from weft.ops.creation import asarray, empty

__all__ = ["Parameter"]


class Parameter(Tensor):
    """A leaf tensor that a `Module` counts among its parameters when it is assigned to it.

    It computes as any tensor does; results are plain tensors. Unlike those it has attributes of
    your own (`weight.decay = False`).
    """

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Parameter:
        self = super().__new__(cls)
        value = data if isinstance(data, Tensor) else empty(0) if data is None else asarray(data)
        self._data = value.detach()._data
        self._node = None
        self.requires_grad = requires_grad
        return self

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"
