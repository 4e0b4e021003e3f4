"""`torch.utils.checkpoint`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.autodiff.checkpoint import checkpoint as core_checkpoint

__all__ = ["checkpoint"]


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """Call a function; what it computes is computed again for the backward, and not kept."""
    return core_checkpoint(function)(*args, **kwargs)
