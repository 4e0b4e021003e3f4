"""Parameter: a tensor of `weft.torch` that a module learns."""

from __future__ import annotations

from typing import Any

from weft.nn.parameter import Parameter as CoreParameter
from weft.torch.tensor import Tensor, labelled

__all__ = ["Parameter"]


class Parameter(CoreParameter, Tensor):
    """A leaf that a module counts among its parameters when it is assigned to it."""

    __slots__ = ()


def label_members(module: Any) -> None:
    """Let all parameters and buffers of a module be tensors of this namespace."""
    for parameter in module.parameters():
        if parameter.__class__ is CoreParameter:
            parameter.__class__ = Parameter
    for buffer in module.buffers():
        labelled(buffer)
