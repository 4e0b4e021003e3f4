"""Changes of objects from outside by code that is not watched: `heapq.heappush(queue, x)`.

What a function of the library changed is no effect that a replay could repeat. So the object gets
its contents of before back, the recording ends, and Python runs the call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft.capture.watch import stores

if TYPE_CHECKING:
    from weft.capture.watch.watch import Known, Watch

__all__ = ["UnseenChanges", "bases_of", "contents"]


def contents(obj: Any) -> Any:
    """A copy of what a container or an array holds."""
    return obj.copy() if isinstance(obj, np.ndarray) else stores.copy_of(obj)


def bases_of(watch: Watch, array: Any) -> list[Known]:
    """The arrays from outside that an array of the run is a view of."""
    found = []
    base = array.base
    while base is not None:
        known = watch.known(base)
        if known is not None and isinstance(base, np.ndarray):
            found.append(known)
        base = getattr(base, "base", None)
    return found


def _put(obj: Any, held: Any) -> None:
    if isinstance(obj, np.ndarray):
        np.copyto(obj, held)
    else:
        stores.put_back(obj, held)


class UnseenChanges:
    """What library code changed in one run."""

    def __init__(self) -> None:
        self._changed: dict[int, Any] = {}

    def add(self, watch: Watch, known: Known, before: Any, reason: str) -> None:
        """Note that an object was changed, and refuse the recording: Python runs the call."""
        obj = known.obj
        if watch.tensors is None:
            self._changed[id(obj)] = obj
            watch.undo(lambda: _put(obj, before))
        else:
            _put(obj, before)
        watch.refuse(reason)

    def has(self, obj: Any) -> bool:
        """Whether an object was changed."""
        return id(obj) in self._changed
