"""`torch.distributions`: Weft's, whose parameters are tensors of this namespace."""

from __future__ import annotations

import sys
from typing import Any

import weft.core.tensor as core
import weft.distributions as core_distributions
from weft.distributions import constraints as constraints
from weft.distributions import kl_divergence as kl_divergence
from weft.distributions import register_kl as register_kl
from weft.distributions import transforms as transforms
from weft.torch.tensor import Tensor

Distribution = core_distributions.Distribution


def _ours(value: Any) -> Any:
    """The same value and history in a tensor of this namespace."""
    if value.__class__ is not core.Tensor:
        return value
    made = Tensor()
    made._data, made._node = value._data, value._node
    return made


def _same(base: Any) -> Any:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        base.__init__(self, *args, **kwargs)
        for name in self._names:
            setattr(self, name, _ours(getattr(self, name)))

    body = {"__module__": __name__, "__doc__": base.__doc__, "__init__": __init__}
    return type(base.__name__, (base,), body)


_names = [
    name
    for name, value in vars(core_distributions).items()
    if isinstance(value, type) and issubclass(value, Distribution) and value is not Distribution
]
for _name in _names:
    setattr(sys.modules[__name__], _name, _same(getattr(core_distributions, _name)))

__all__ = [
    *("Distribution", "constraints", "kl_divergence", "register_kl", "transforms", *_names),
]
