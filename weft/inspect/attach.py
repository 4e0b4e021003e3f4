"""Methods for compiled and traced functions that tell of themselves.

As `weft.ops` gives methods to tensors: the capture, which makes these functions, knows nothing of
tools that look at them. The tools are loaded when one is first used.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from weft.capture.trace.captured import Captured

__all__ = ["METHODS"]

#: The name of each method, the function in `weft.inspect.methods` that it is, and what it tells.
_METHODS = {
    "explain": (
        "explain",
        "What became of the function: see `weft.explain`. With arguments, it is called once.",
    ),
    "kernels": (
        "kernels",
        "The kernels of one of its programs (the latest), with their LLVM IR and assembly.",
    ),
    "diff": (
        "diff_stages",
        "What is different between two stages of one of its graphs: see `weft.inspect.diff`.",
    ),
}


def _method(name: str, doc: str) -> Callable[..., Any]:
    def method(self: Captured, *args: Any, **kwargs: Any) -> Any:
        tools = importlib.import_module("weft.inspect.methods")
        return getattr(tools, name)(self, *args, **kwargs)

    method.__name__, method.__doc__ = name, doc
    return method


METHODS: dict[str, Callable[..., Any]] = {
    name: _method(function, doc) for name, (function, doc) in _METHODS.items()
}
