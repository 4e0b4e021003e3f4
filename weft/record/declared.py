"""Declared graphs: built by hand, then run in a session (`weft.Session`).

>>> with weft.Graph("sum") as g:
...     a = weft.placeholder(("N", 2), weft.float32, name="a")
...     b = weft.placeholder((2,), weft.float32, name="b")
...     c = a + b
>>> weft.Session(g).run(c, {a: [[1, 2], [3, 4]], "b": [10, 20]})
tensor([[11., 22.],
        [13., 24.]])
"""

from __future__ import annotations

import contextlib
from typing import Any

from weft.base.device import as_device
from weft.base.dims import as_dim, dim
from weft.base.dtypes import as_dtype, default_float
from weft.base.errors import CaptureError, GraphError
from weft.core.bind import recorder, recording
from weft.core.symbolic import symbolic
from weft.core.tensor import StateTensor, Tensor
from weft.ir.graph import Graph, Value
from weft.ir.types import TensorType
from weft.record.make_graph import OnceRecorder
from weft.record.recorder import Written

__all__ = ["placeholder"]


class DeclaredRecorder(OnceRecorder):
    """Records the op calls inside of `with graph:`; the block may be entered several times."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.feeds: dict[str, Value] = {}  # the placeholders, by name
        self._held: list[Written] = []  # outside tensors as they were at the end of the block

    def states(self) -> list[tuple[Tensor, Value, Value]]:
        """Random states that the graph draws from: (tensor, value before, value after)."""
        return [
            (held.tensor, self._lifted[id(held.tensor)][1], held.data.value)
            for held in self._held
            if isinstance(held.tensor, StateTensor) and id(held.tensor) in self._lifted
        ]

    def suspend(self) -> None:
        """Restore tensors from outside to their values before the block; `resume` undoes it."""
        self._held = [Written(entry.tensor) for entry in self.written.values()]
        self.restore()

    def resume(self) -> None:
        self.written = {key: Written(entry.tensor) for key, entry in self.written.items()}
        for held in self._held:
            held.restore()


def recorder_of(graph: Graph) -> DeclaredRecorder:
    if graph.interface is None:
        graph.interface = DeclaredRecorder(graph)
    if not isinstance(graph.interface, DeclaredRecorder):
        raise GraphError(
            f"graph @{graph.name} was recorded from a function; nothing can be added to it",
            hint="declare a new one: with weft.Graph() as g",
        )
    return graph.interface


def enter(self: Graph) -> Graph:
    stack = contextlib.ExitStack()
    recorder_of(self).resume()
    stack.enter_context(recording(recorder_of(self)))
    _open.setdefault(id(self), []).append(stack)
    return self


def leave(self: Graph, *_exc: object) -> None:
    _open[id(self)].pop().close()
    if not _open[id(self)]:
        del _open[id(self)]
    recorder_of(self).suspend()


#: Contexts to close at the end of `with graph:`, by id of the graph. Blocks of one graph may nest.
_open: dict[int, list[contextlib.ExitStack]] = {}


def placeholder(shape: Any, dtype: Any = None, *, name: str = "", device: Any = None) -> Tensor:
    """An input of the graph that is being declared; a session feeds it at each run.

    A size is an int, a name such as "N" (equal names are equal sizes), or None for any size.
    """
    here = recorder()
    if not isinstance(here, DeclaredRecorder):
        raise CaptureError(
            "a placeholder belongs to a graph, and none is being declared here",
            op="placeholder",
            hint="call it inside of `with weft.Graph() as g:`",
        )
    called = name or f"placeholder_{len(here.feeds)}"
    if called in here.feeds:
        raise GraphError(f"there is already a placeholder named {called!r}", op="placeholder")
    sizes = shape if isinstance(shape, (tuple, list)) else (shape,)
    known = [
        dim(f"{called}_{axis}") if size is None else as_dim(size, "placeholder")
        for axis, size in enumerate(sizes)
    ]
    wanted = default_float() if dtype is None else as_dtype(dtype)
    kind = TensorType(wanted, tuple(known), as_device(device))
    value = here.graph.add_input(kind, called)
    here.feeds[called] = value
    return symbolic(value, here)
