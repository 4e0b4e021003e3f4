"""`torch.save` and `torch.load`: `weft.save` and `weft.load`, with PyTorch's arguments."""

from __future__ import annotations

from typing import Any

from weft.base.device import as_device
from weft.core.tensor import wrap
from weft.interop import weights
from weft.torch.tensor import labelled

__all__ = ["load", "save"]


def save(obj: Any, f: Any, **_pickle_options: Any) -> None:
    """Write tensors and plain values to a path or an open file; a path is replaced at once."""
    weights.save(obj, f)


def load(
    f: Any,
    map_location: Any = None,
    *,
    weights_only: bool = True,
    mmap: bool | None = None,
    **_options: Any,
) -> Any:
    """What `save` or PyTorch wrote, or the tensors of any safetensors file as a dict.

    `map_location` is a device; functions and dicts, which say where tensors of other devices go,
    leave them on the CPU.
    """
    other = map_location is None or callable(map_location) or isinstance(map_location, dict)
    device = as_device(None if other else map_location)

    def made(array: Any) -> Any:
        return labelled(wrap(array)).to(device)

    return weights.read(f, made, mmap=mmap is not False)
