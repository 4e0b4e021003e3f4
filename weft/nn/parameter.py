"""Parameter: a tensor that a module learns."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.device import Device
from weft.base.dtypes import DType
from weft.base.lazy import Lazy
from weft.core.tensor import Tensor
from weft.ops.creation import asarray, empty

__all__ = ["Buffer", "Parameter"]

difflib = Lazy("difflib")

_set = object.__setattr__
_SLOTS = frozenset(Tensor.__slots__)
_VALUE = (Tensor, np.ndarray, type(None))
#: What a tensor's state is called, and of which classes it is.
_STATE: dict[str, tuple[type, ...]] = {
    "data": _VALUE,
    "grad": _VALUE,
    "requires_grad": (bool,),
    "is_leaf": (bool,),
    "dtype": (DType, str, type),
    "device": (Device, str),
    "shape": (tuple, list),
}
#: Names of other libraries for the same.
_ALSO_CALLED = {"gradient": "grad", "requires_gradient": "requires_grad"}
_SIMILAR = 0.75  # "gard" is as similar to "grad"; "delta" is less similar to "data"


class Parameter(Tensor):
    """A leaf tensor that a `Module` counts among its parameters when it is assigned to it.

    It computes as any tensor does; results are plain tensors. Unlike those it has attributes of
    your own (`weight.decay = False`), but none that looks like a misspelt part of a tensor's state:
    `weight.gradd = g` is an error.
    """

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Parameter:
        self = super().__new__(cls)
        value = data if isinstance(data, Tensor) else empty(0) if data is None else asarray(data)
        self._data = value.detach()._data
        self._node = None
        self.requires_grad = requires_grad
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _SLOTS and name not in self.__dict__:
            meant = _misspelt(name, value)
            if meant is not None:
                raise AttributeError(
                    f"a parameter has no {name!r}: did you mean {meant!r}?", name=name, obj=self
                )
        _set(self, name, value)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """A parameter of its own, without the gradient, as in PyTorch: no optimizer clears it."""
        copied = super().__deepcopy__(memo)
        copied.grad = None
        return copied

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"


class Buffer(Tensor):
    """A tensor that a `Module` counts among its buffers when it is assigned to it.

    >>> class Counter(weft.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.count = weft.nn.Buffer(weft.zeros(()))
    >>> list(Counter().state_dict())
    ['count']
    """

    persistent: bool

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Buffer:
        self = super().__new__(cls)
        value = data if isinstance(data, Tensor) else empty(0) if data is None else asarray(data)
        self._data = value.detach()._data
        self._node = None
        self.persistent = persistent
        return self

    def __repr__(self) -> str:
        return f"Buffer containing:\n{super().__repr__()}"


def _misspelt(name: str, value: Any) -> str | None:
    """What part of a tensor's state a name of the user's own was meant to be, by all appearance:
    it is called much like that, and its value could be one."""
    if hasattr(type(getattr(Tensor, name, None)), "__set__"):
        return None  # a property
    for part, kinds in _STATE.items():
        similar = bool(difflib.SequenceMatcher(None, name.lower(), part).ratio() >= _SIMILAR)
        if (similar or _ALSO_CALLED.get(name) == part) and isinstance(value, kinds):
            return part
    return None
