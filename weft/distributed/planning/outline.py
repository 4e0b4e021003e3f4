"""A training step as a graph, without memory for its parameters.

While `build` makes the model, ops compute types alone: each result is one zero, repeated by
strides. The step is then recorded as any other, with the size of the batch as a name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.dim_algebra import Dim
from weft.base.dims import dim
from weft.base.errors import CaptureError, DistributedError
from weft.base.gc_pause import gc_paused
from weft.base.pytree import tree_flatten, tree_unflatten
from weft.core.bind import Recorder, recording
from weft.core.tensor import Tensor, type_of, wrap
from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.ir.types import TensorType
from weft.nn import init
from weft.record.make_graph import make_graph

__all__ = ["BATCH", "Outline", "outline"]

#: The name of the batch's size in an outline.
BATCH = "batch"


@dataclasses.dataclass(frozen=True, eq=False)
class Outline:
    """The graph of a step, and the size of the whole batch.

    graph     one forward, backward and update, of a batch whose size is the name "batch"
    batch     the number of samples that all devices together take in one step
    """

    graph: Graph
    batch: int

    @property
    def parameters(self) -> int:
        """How many numbers are learned."""
        kept = self.graph.interface.graded if self.graph.interface is not None else ()
        return sum(tensor.size for tensor, _ in kept)

    def __repr__(self) -> str:
        sizes = f"{self.parameters:,} parameters, {len(self.graph.nodes)} nodes, batch {self.batch}"
        return f"<outline of {self.graph.name}: {sizes}>"


class _TypesOnly(Recorder):
    """Computes types: results are zeros without memory."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[Tensor, Any]] = {}
        self._made: dict[int, Any] = {}  # by id of the array, which the entry keeps alive

    def call(self, op: Op, inputs: tuple[Tensor, ...], attrs: dict[str, Any]) -> Any:
        kinds = op.infer(*[type_of(x) for x in inputs], **attrs)
        made = tuple(map(self._zeros, kinds if isinstance(kinds, tuple) else (kinds,)))
        return made if isinstance(kinds, tuple) else made[0]

    def _zeros(self, kind: Any) -> Tensor:
        if not isinstance(kind, TensorType) or any(isinstance(size, Dim) for size in kind.shape):
            raise CaptureError(
                "building the model asks for a tensor whose size depends on values",
                hint="outline builds models of any size, so no numbers are there yet",
            )
        array = np.broadcast_to(np.zeros((), kind.dtype.numpy), kind.shape)
        self._made[id(array)] = array
        return wrap(array)

    def ask(self, tensor: Tensor, question: str) -> Any:
        raise CaptureError(
            f"building the model asks a tensor for its value ({question})",
            hint="outline builds models of any size, so no numbers are there yet",
        )

    def write(self, target: Tensor) -> None:
        if id(target._data) not in self._made:
            self._before.setdefault(id(target), (target, target._data))

    def adopt(self, array: np.ndarray[Any, Any]) -> Tensor | None:
        return wrap(array)

    def restore(self) -> None:
        """Give tensors that were there before, such as random states, their numbers again."""
        for tensor, data in self._before.values():
            tensor._data = data


def outline(
    build: Callable[[], Callable[..., Any]], *args: Any, batch: int | None = None
) -> Outline:
    """The graph of the training step that `build()` returns, whatever the size of its model.

    args    what the step is called with: `weft.spec`s or tensors. Those whose first size is the
            size of the batch are cut over devices along it
    batch   the size of the batch; by default the first size of the first argument

    Parameters take no memory, so a model of any size is outlined on any machine.

    >>> from weft import nn, optim
    >>> def build():
    ...     model = nn.Linear(100_000, 100_000)
    ...     optimizer = optim.SGD(model.parameters(), lr=0.1)
    ...     def step(x):
    ...         loss = (model(x) ** 2).mean()
    ...         loss.backward()
    ...         optimizer.step()
    ...         return loss
    ...     return step
    >>> weft.distributed.outline(build, weft.spec((64, 100_000)))
    <outline of step: 10,000,100,000 parameters, 36 nodes, batch 64>
    """
    maker = _TypesOnly()
    try:
        with gc_paused(), recording(maker), init.skipped():
            step = build()
    finally:
        maker.restore()
    if not callable(step):
        raise DistributedError(
            f"build returned {type(step).__name__}, not the function of a step",
            op="outline",
            hint="make model and optimizer in build, and return the function that trains once",
        )
    leaves, tree = tree_flatten(args)
    kinds = [_kind(leaf) for leaf in leaves]
    sized = [kind for kind in kinds if isinstance(kind, TensorType) and kind.ndim]
    if batch is None:
        if not sized:
            raise DistributedError(
                "no argument has a size of the batch", op="outline", hint="batch="
            )
        batch = int(sized[0].shape[0])
    if not any(kind.shape[0] == batch for kind in sized):
        shapes = ", ".join(map(str, sized))
        raise DistributedError(
            f"no argument begins with the batch of {batch}: {shapes}", op="outline", operands=sized
        )
    size = dim(BATCH, min=1)
    named = [
        kind.like(shape=(size, *kind.shape[1:]))
        if isinstance(kind, TensorType) and kind.ndim and kind.shape[0] == batch
        else kind
        for kind in kinds
    ]
    with gc_paused():
        return Outline(make_graph(step, *tree_unflatten(tree, named)), batch)


def _kind(leaf: Any) -> Any:
    return type_of(leaf) if isinstance(leaf, Tensor) else leaf
