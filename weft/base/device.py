"""Where tensors live."""

from __future__ import annotations

from typing import Any

from weft.base.dataclass import dataclass
from weft.base.errors import DeviceError
from weft.base.pytree import value_class

__all__ = ["Device"]


@value_class
@dataclass(frozen=True, slots=True)
class Device:
    """A place for tensors: a kind of device and, where there are several, a number."""

    kind: str
    index: int = 0

    @property
    def type(self) -> str:
        """The kind, under PyTorch's name."""
        return self.kind

    def __str__(self) -> str:
        return self.kind if self.index == 0 else f"{self.kind}:{self.index}"

    def __repr__(self) -> str:
        return f"weft.Device({str(self)!r})"


CPU = Device("cpu")
#: The unit that a kind of device means where no number is said: "cuda" after weft.cuda.set_device.
CURRENT: dict[str, int] = {}
#: Kinds of devices that run parts of graphs, and hold no tensors: "ort". What is sent there asks to
#: be computed there; see weft.runtime.split.devices.
ENGINES: set[str] = set()


def as_device(device: Any) -> Device:
    """A Device from a Device, a string like "cpu" or "cuda:1", or None for the default."""
    if device is None:
        return CPU
    if isinstance(device, Device):
        return device
    if isinstance(device, str):
        kind, _, index = device.partition(":")
        if kind and (not index or index.isdecimal()):
            return Device(kind, int(index) if index else CURRENT.get(kind, 0))
    raise DeviceError(f"{device!r} is not a device", hint='use a string like "cpu" or "cuda:0"')
