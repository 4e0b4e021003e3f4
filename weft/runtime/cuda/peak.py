"""The peak of memory on a GPU, counted by a hook in CuPy's pool while somebody wants to know."""

from __future__ import annotations

import threading
from typing import Any

__all__ = ["begin", "most"]


class _Counts(threading.local):
    """The hook of this thread; bytes in use now and at most, by device."""

    hook: Any = None

    def __init__(self) -> None:
        self.now: dict[int, int] = {}
        self.most: dict[int, int] = {}


_counts = _Counts()


def begin(cupy: Any, device: int, in_use: int) -> None:
    """Count from now on, from what is in use now."""
    _counts.now[device] = _counts.most[device] = in_use
    if _counts.hook is None:
        _counts.hook = _hook_class(cupy)()
        _counts.hook.__enter__()


def most(_cupy: Any, device: int) -> int | None:
    """The most bytes in use since counting began; None if nobody counts."""
    return _counts.most.get(device)


def _hook_class(cupy: Any) -> Any:
    class Peak(cupy.cuda.MemoryHook):  # type: ignore[misc]
        """Adds up what the pool hands out and takes back."""

        name = "weft_peak"

        def malloc_postprocess(self, **event: Any) -> None:
            now, device = _counts.now, event["device_id"]
            if device in now:
                now[device] += event["mem_size"]
                if now[device] > _counts.most[device]:
                    _counts.most[device] = now[device]

        def free_postprocess(self, **event: Any) -> None:
            device = event["device_id"]
            if device in _counts.now:
                _counts.now[device] -= event["mem_size"]

    return Peak
