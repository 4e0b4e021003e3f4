"""`torch.nn.init`: also of `weight.data`, where the weight is what is meant."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import weft.nn.init as core_init
from weft.torch.tensor import owner_of


def _of_owner(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def fill(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        owner = owner_of(tensor)
        function(owner, *args, **kwargs)
        if owner is not tensor:
            tensor._data = owner._data
        return tensor

    return fill


_names = [name for name in vars(core_init) if name.endswith("_") and not name.startswith("_")]
for _name in _names:
    globals()[_name] = _of_owner(getattr(core_init, _name))
calculate_gain = core_init.calculate_gain

__all__ = ["calculate_gain", *_names]
