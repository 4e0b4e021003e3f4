"""Contexts in which kernels run: NumPy's floating-point warnings are off in them.

1/0 is inf here, not a warning, while the user's own NumPy settings stay as they are. Entering a
context is several times cheaper than `np.errstate`. A call takes one from the pool and puts it
back, so threads and ops called inside kernels each have their own; after an error it is simply
dropped.
"""

from __future__ import annotations

import builtins
import contextvars
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["contexts", "give_quiet", "new_context", "quietly", "take_quiet"]


def new_context() -> Callable[..., Any]:
    context = contextvars.Context()  # an empty one: a copy would keep the user's values alive
    context.run(np.seterr, all="ignore")
    return context.run


#: Three to begin with: a list from which the only item is taken gives its memory back, and gets new
#: memory when the item returns, which takes as long as a third of a small addition.
contexts: list[Callable[..., Any]] = [new_context() for _ in range(3)]


def take_quiet() -> Callable[..., Any]:
    """A context for a thread that calls many kernels in it: `quiet(kernel, *arrays)`. `give_quiet`
    puts it back."""
    try:
        return contexts.pop()
    except builtins.IndexError:
        return new_context()


def give_quiet(quiet: Callable[..., Any]) -> None:
    contexts.append(quiet)


def quietly(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function in such a context."""
    try:
        run = contexts.pop()
    except builtins.IndexError:
        run = new_context()
    out = run(function, *args, **kwargs)
    contexts.append(run)
    return out
