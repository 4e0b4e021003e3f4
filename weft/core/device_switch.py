"""`weft.device`: on which device captured code asks to run."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from weft.base.device import Device
from weft.base.errors import DeviceError
from weft.base.source import work
from weft.core.grad_mode import Switch, decorated

__all__ = ["device"]

F = TypeVar("F", bound=Callable[..., Any])


class device(Switch):
    """In captured code, what is computed inside asks to run there: `with weft.device("ort"):`.

    It says where, not what: `backend="split"` puts it there, other backends and eager mode compute
    the same where they are. See docs/devices.md.
    """

    def __init__(self, name: str | Device) -> None:
        super().__init__()
        if not isinstance(name, (str, Device)) or not str(name):
            raise DeviceError(f"{name!r} is no name of a device", op="device", hint='"cpu", "ort"')
        self._wanted = str(name)

    def __enter__(self) -> None:
        self._before.append(work.device)
        work.device = self._wanted

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        work.device = self._before.pop()

    def __call__(self, function: F) -> F:
        return decorated(function, device, self._wanted)
