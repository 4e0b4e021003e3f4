"""What a work is: the same computation for Weft, PyTorch and JAX, on the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

#: Who takes part; the first is us. A peer's figure counts for "best peer".
SIDES = ("weft", "torch", "torch.compile", "jax")


@dataclass(frozen=True)
class Job:
    """A work made ready on one side.

    step      does it once, and gives what it computes (a loss, or the result)
    results   what else must be the same on all sides after some steps, such as weights
    program   of Weft: the compiled function, to look into
    """

    step: Callable[[], Any]
    results: Callable[[], Sequence[Any]] = tuple
    program: Any = None


@dataclass(frozen=True)
class Kit:
    """What a work's source asks of its side, so that one source serves Weft and PyTorch.

    library   weft or torch
    step      put on a whole step: Weft compiles all of it, with backward and update
    forward   put on the forward part: that is what torch.compile takes (its backward comes along)
    update    put on the step of an optimizer
    """

    library: Any
    step: Callable[[Any], Any]
    forward: Callable[[Any], Any]
    update: Callable[[Any], Any]

    def tensor(self, array: Array, grad: bool = False) -> Any:
        return self.library.tensor(array, requires_grad=grad)


@dataclass(frozen=True)
class Work:
    """One row of the table.

    bar       our time over that of the best peer: at most this
    make      the job for a `Kit`
    jax       the job for JAX: "module:function", and what to call it with; None: it cannot do it
    refuses   why JAX cannot
    flops     arithmetic of the step, where the machine's peak is what bounds it
    bytes     traffic that cannot be avoided, where memory is
    first_s   the bar for the first call, in seconds; `warm_s`: with the code on disk
    """

    name: str
    title: str
    bar: float
    make: Callable[[Kit], Job]
    jax: tuple[str, dict[str, Any]] | None
    refuses: str = ""
    flops: float = 0.0
    bytes: float = 0.0
    first_s: float | None = None
    warm_s: float | None = None
    tolerance: float = 1e-4
    issue: bool = field(default=False, kw_only=True)  # one of the table that the bars come from


def normal(seed: int, *shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def classes(seed: int, count: int, *shape: int) -> Array:
    return np.random.default_rng(seed).integers(0, count, shape)


def weights(shapes: Sequence[tuple[int, ...]], dtype: Any = np.float32) -> list[Array]:
    """What all sides start from: scaled by the number of inputs, as layers are."""
    rng = np.random.default_rng(1)
    found = []
    for shape in shapes:
        bound = 1 / np.sqrt(np.prod(shape[1:]) if len(shape) > 1 else 100)
        found.append(rng.uniform(-bound, bound, shape).astype(dtype))
    return found


def numpy_of(found: Any) -> Array:
    """A tensor of any of the libraries as an array of its own."""
    if hasattr(found, "detach"):
        found = found.detach()
    return np.array(found.numpy() if hasattr(found, "numpy") else found)
