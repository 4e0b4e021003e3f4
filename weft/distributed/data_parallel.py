"""Data parallel training: each rank has the whole model, and a part of each batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from weft.core.grad_mode import no_grad
from weft.core.tensor import Tensor
from weft.distributed.collectives import added, broadcast
from weft.distributed.mesh import Mesh, current_mesh
from weft.distributed.pipeline import Pipeline
from weft.nn.module import Module
from weft.ops.shape import concat

__all__ = ["data_parallel"]

M = TypeVar("M", bound=Module)


def data_parallel(
    model: M, over: str | Sequence[str] | None = None, *, mesh: Mesh | None = None
) -> M:
    """Make a model start alike on all ranks, with gradients that are the mean over ranks.

    The model itself is returned, and trained as on one rank: each rank computes the mean loss of
    its own part of the batch; parts have the same size. In a compiled step the gradients of many
    parameters travel together. All ranks must use the same parameters in each step.

    >>> from weft import distributed, nn
    >>> def step():
    ...     model = distributed.data_parallel(nn.Linear(1, 1, bias=False))
    ...     x = weft.ones((4, 1)) * (1 + distributed.rank())
    ...     model(x).mean().backward()
    ...     return model.weight.grad.item()
    >>> distributed.run_virtual(2, step)
    [1.5, 1.5]
    """
    on = mesh or current_mesh()
    count = on.group_size(over)
    on.names(over)

    def mean(g: Tensor) -> Tensor:
        return added(g, over, mesh=on) / count

    with no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor[...] = broadcast(tensor, over, mesh=on)
    if isinstance(model, Pipeline):
        model.average_gradients(lambda grads: _averages(grads, mean))
        return model
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_hook(mean)
    return model


def _averages(grads: list[Tensor], mean: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """Averages of several tensors, in one message for each dtype."""
    found: dict[int, Tensor] = {}
    for dtype in dict.fromkeys(grad.dtype for grad in grads):
        numbers = [i for i, grad in enumerate(grads) if grad.dtype == dtype]
        whole = mean(concat([grads[i].reshape(-1) for i in numbers]))
        start = 0
        for i in numbers:
            found[i] = whole[start : start + grads[i].size].reshape(grads[i].shape)
            start += grads[i].size
    return [found[i] for i in range(len(grads))]
