"""Functions of several ops that are one for users: one kernel each on large arrays, eagerly."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from weft.core import bind as binding
from weft.core.large import large
from weft.core.tensor import Tensor

__all__ = ["composite"]

F = TypeVar("F", bound=Callable[..., Any])


def composite(function: F) -> F:
    """For a function whose first argument is a tensor: on large arrays it is computed as a whole.

    Its result is one tensor, and depends on its arguments alone. Anybody who records the calls of
    ops sees those that it consists of. A call on small arrays costs about 0.1 µs more.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        x = args[0] if args else None
        if isinstance(x, Tensor):
            a = x._data
            if a.__class__ is np.ndarray and a.size >= large.start and binding.runs_now():
                found = large.composite(function, args, kwargs)
                if found is not None:
                    return found
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]
