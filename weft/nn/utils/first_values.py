"""Modules without first values: for weights that are loaded next."""

from __future__ import annotations

from typing import Any

from weft.nn import init


def skip_init(module_cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Make a module without drawing its first values; they are not defined.

    >>> layer = weft.nn.utils.skip_init(weft.nn.Linear, 1000, 1000)
    >>> layer.weight.shape
    (1000, 1000)
    """
    with init.skipped():
        return module_cls(*args, **kwargs)
