"""What `weft.distributed` compiles of training steps.

Code of this file is followed as a user's is (`weft/capture/watch/follow.py`); that of its
neighbours is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.compile import compile as compile_function
from weft.distributed.layouts import Entry, layout

__all__ = ["along_sequence", "compiled_backward", "compiled_stage", "compiled_step"]


def compiled_stage(part: Callable[[Any], Any], entries: Sequence[Entry] | None) -> Any:
    """A stage of a pipeline; what it gives lies over the mesh as `entries` say."""
    if entries is None:
        return compile_function(part)

    def stage(x: Any) -> Any:
        out = part(x)
        return layout(out, *entries[: out.ndim])

    return compile_function(stage)


def compiled_backward(model: Any, loss: Callable[..., Any], micro_batches: int) -> Any:
    """The loss of a micro-batch, as its part of the mean; parameters get their gradients."""

    def backward(x: Any, *targets: Any) -> Any:
        value = loss(model(x), *targets) / micro_batches
        value.backward()
        return value.detach()

    return compile_function(backward)


def compiled_step(model: Any, loss: Callable[..., Any], optimizer: Any) -> Any:
    """The loss of a batch, its backward and the update."""

    def step(x: Any, *targets: Any) -> Any:
        value = loss(model(x), *targets)
        value.backward()
        optimizer.step()
        return value.detach()

    return compile_function(step)


def along_sequence(_module: Any, _args: Any, out: Any) -> Any:
    """A hook: what a module gives is cut along its second axis, too."""
    return layout(out, "data", "tensor") if out.ndim > 2 else out
