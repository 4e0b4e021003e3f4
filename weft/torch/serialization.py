"""`torch.save` and `torch.load`: `weft.save` and `weft.load`, with PyTorch's arguments."""

from __future__ import annotations

from typing import Any

from weft.base.device import as_device
from weft.interop import weights
from weft.torch.creation import tensor as new_tensor

__all__ = ["load", "save"]


def save(obj: Any, f: Any, **_pickle_options: Any) -> None:
    """Write tensors and plain values to a path or an open file; a path is replaced at once."""
    weights.save(obj, f)


def load(f: Any, map_location: Any = None, *, weights_only: bool = True, **_options: Any) -> Any:
    """What `save` wrote, or the tensors of any safetensors file as a dict."""
    if map_location is None or callable(map_location):
        return weights.read(f, new_tensor)
    device = as_device(map_location)
    return weights.read(f, lambda array: new_tensor(array).to(device))
