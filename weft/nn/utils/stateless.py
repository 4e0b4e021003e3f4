"""`functional_call` with PyTorch's arguments; `weft.functional_call` takes them one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.nn import stateless
from weft.nn.module import Module


def functional_call(
    module: Module,
    parameters_and_buffers: Mapping[str, Any],
    args: Any = (),
    kwargs: dict[str, Any] | None = None,
) -> Any:
    """`module(*args, **kwargs)` with these tensors in the place of its parameters and buffers.

    `args` is a tuple of arguments, or one argument that is none.
    """
    given = args if isinstance(args, tuple) else (args,)
    return stateless.functional_call(module, parameters_and_buffers, *given, **(kwargs or {}))
