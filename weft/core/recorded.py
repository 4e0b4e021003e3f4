"""The graph that is being recorded, as ops see it that ask for values of it."""

from __future__ import annotations

from typing import Any

from weft.core import bind as binding
from weft.core.tensor import Tensor


def graph_recorder() -> Any:
    """The innermost recorder that makes a graph, perhaps below transforms; None where none does."""
    for found in reversed(binding._thread.recorders) if binding._recording else ():
        if found.memo is not None:
            return found
    return None


def graph_value(tensor: Tensor) -> Any:
    """The value that a tensor is in the graph that is being recorded."""
    recorders = binding._thread.recorders
    here = graph_recorder()
    at = recorders.index(here)
    above = recorders[at:]
    del recorders[at:]
    try:
        return here.value_of(tensor)
    finally:
        recorders.extend(above)
