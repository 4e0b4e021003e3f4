"""Undoes what was recorded since a moment: nodes, writes to tensors, freed histories."""

from __future__ import annotations

from typing import Any

from weft.core.tensor import Tensor
from weft.record.recorder import GraphRecorder


class Rollback:
    """A context after which everything that was recorded in it can be undone."""

    def __init__(self, here: GraphRecorder) -> None:
        self.here = here
        self.mark = len(here.graph.nodes)
        self._token = here.token
        self._grads_set = set(here.grads_set)
        self._tensors: dict[int, tuple[Tensor, Any, Any, Any]] = {}  # what they held before
        self._freed: list[tuple[Any, dict[str, Any]]] = []  # history nodes and their slots before
        self._outer = here.write, here.freeing

    def __enter__(self) -> Any:
        write, free = self._outer = self.here.write, self.here.freeing

        def noted(target: Tensor) -> None:
            grad = getattr(target, "_grad", None)
            self._tensors.setdefault(id(target), (target, target._data, target._node, grad))
            write(target)

        def freeing(node: Any) -> None:
            if free is not None:
                free(node)
            self._freed.append((node, _slots_of(node)))

        self.here.write = noted  # type: ignore[method-assign]
        self.here.freeing = freeing
        return self

    def __exit__(self, *_exc: object) -> None:
        self.here.write, self.here.freeing = self._outer  # type: ignore[method-assign]

    def undo(self) -> bool:
        """Undo it; whether nodes were removed, too: they stay where Python asked a tensor since."""
        for tensor, data, node, grad in self._tensors.values():
            tensor._data, tensor._node = data, node
            if getattr(tensor, "_grad", None) is not grad:
                tensor._grad = grad
        for held_by, slots in reversed(self._freed):
            for name, value in slots.items():
                setattr(held_by, name, value)
        here = self.here
        here.grads_set = set(self._grads_set)
        here.token = self._token
        return here.forget_nodes(self.mark)


def _slots_of(node: Any) -> dict[str, Any]:
    """The slots of a history node, which a backward pass may free."""
    names = [name for cls in type(node).__mro__ for name in getattr(cls, "__slots__", ())]
    return {k: getattr(node, k) for k in names if k != "__weakref__" and hasattr(node, k)}
