"""Attaches `explain`, `kernels` and `diff` to compiled functions, and HTML to what notebooks show.

The layers that define these classes do not know the tools. A tool is imported when its method is
first called.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from weft.capture.trace.captured import Captured
from weft.core.tensor import Tensor

__all__ = ["HTML", "METHODS", "module_html"]

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


def _method(name: str, doc: str, module: str = "methods") -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        tools = importlib.import_module(f"weft.inspect.{module}")
        return getattr(tools, name)(self, *args, **kwargs)

    method.__name__, method.__doc__ = name, doc
    return method


METHODS: dict[str, Callable[..., Any]] = {
    name: _method(function, doc) for name, (function, doc) in _METHODS.items()
}
_SHOWN = "What a notebook shows."
HTML: list[tuple[type, dict[str, Any]]] = [
    (Tensor, {"_repr_html_": _method("tensor_html", _SHOWN, "html")}),
    (Captured, {"_repr_html_": _method("compiled_html", _SHOWN, "html")}),
]
module_html = _method("module_html", _SHOWN, "html")
