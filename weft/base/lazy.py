"""Modules that are loaded when somebody first asks for what is in them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Lazy", "lazily"]


class Lazy:
    """Stands for a module of Python's own that few runs need: its first use loads it.

    >>> from weft.base.lazy import Lazy
    >>> difflib = Lazy("difflib")
    >>> difflib.get_close_matches("ad", ["add", "sub"])
    ['add']
    """

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(importlib.import_module(self._module), name)
        setattr(self, name, found)
        return found


def lazily(
    module: str, places: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` for a module: for each name, the module where it is."""

    def load(name: str) -> Any:
        place = places.get(name)
        here = sys.modules[module]
        if place is None:
            raise AttributeError(
                f"module {module!r} has no attribute {name!r}", name=name, obj=here
            )
        found = getattr(importlib.import_module(place), name)
        setattr(here, name, found)
        return found

    def names() -> list[str]:
        return sorted({*vars(sys.modules[module]), *places})

    return load, names
