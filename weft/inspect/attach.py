"""Attaches `explain`, `kernels` and `diff` to compiled and traced functions as methods.

The capture layer, which defines these functions, does not know the tools. A tool is imported when
its method is first called.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from weft.capture.trace.captured import Captured

__all__ = ["METHODS"]

#: For each method: its function in `weft.inspect.methods`, and its docstring.
_METHODS = {
    "explain": (
        "explain",
        "A report about the function: see `weft.explain`. With arguments, it is called once.",
    ),
    "kernels": (
        "kernels",
        "The kernels of one of its programs (the latest), with their LLVM IR and assembly.",
    ),
    "diff": (
        "diff_stages",
        "The differences between two stages of one of its graphs: see `weft.inspect.diff`.",
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
