"""`module.compile()`: a compiled forward in the place of a module's own."""

from __future__ import annotations

import copy
from typing import Any

from weft.compile import compile


class CompiledForward:
    """The forward of one module, compiled. A copy of the module has a copy that is its own."""

    def __init__(self, module: Any, options: dict[str, Any]) -> None:
        self.module = module
        self.options = options
        self.compiled = compile(type(module).forward.__get__(module), **options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.compiled(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledForward:
        return CompiledForward(copy.deepcopy(self.module, memo), self.options)

    def __reduce__(self) -> Any:
        return CompiledForward, (self.module, self.options)

    def __repr__(self) -> str:
        return f"<compiled forward of {type(self.module).__name__}>"
