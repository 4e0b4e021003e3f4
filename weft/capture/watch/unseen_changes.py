"""Changes of objects from outside by code that is not watched: `heapq.heappush(queue, x)`.

A recording undoes whatever its run has changed, and a call that is finished from it does the
watched effects once more. What a function of the library changed is no such effect: the recording
cannot be used again, and the call that it was made in gives the objects their last contents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base.pytree import tree_leaves
from weft.capture.watch import stores
from weft.core.symbolic import SymbolicArray
from weft.core.tensor import Tensor

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
        self._last: list[tuple[Any, Any]] = []

    def add(self, watch: Watch, known: Known, before: Any, reason: str) -> None:
        """Note that an object was changed, and refuse the recording."""
        obj, flow = known.obj, watch.flow
        if flow is not None and (flow.careful or flow.depth):
            # In a branch or a loop of the graph, nobody knows how often: Python runs the call.
            _put(obj, before)
            if watch.tensors is not None:
                watch.tensors.usable = False
        else:
            self._changed[id(obj)] = obj
            watch.undo(lambda: _put(obj, before))
        watch.refuse(reason)

    def has(self, obj: Any) -> bool:
        """Whether an object was changed."""
        return id(obj) in self._changed

    def keep(self, watch: Watch) -> None:
        """Remember the last contents, before the run is undone."""
        self._last = [(obj, contents(obj)) for obj in self._changed.values()]
        self._changed.clear()
        if watch.tensors is not None and any(map(_has_values_of_a_graph, self._last)):
            watch.tensors.usable = False

    def redo(self) -> None:
        """Give the objects their last contents."""
        for obj, held in self._last:
            _put(obj, held)
        self._last.clear()


def _has_values_of_a_graph(change: tuple[Any, Any]) -> bool:
    held = change[1]
    if isinstance(held, np.ndarray):
        return False
    leaves = tree_leaves(list(held.values()) if isinstance(held, dict) else held)
    return any(isinstance(x, Tensor) and x._data.__class__ is SymbolicArray for x in leaves)
