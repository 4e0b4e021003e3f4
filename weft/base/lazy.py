"""Modules that are imported when they are first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Lazy", "lazily"]


class Lazy:
    """A stand-in for a module of the standard library that few programs need.

    It imports the module when one of its attributes is first used.

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
    """`__getattr__` and `__dir__` for a module; `places` says which module defines each name."""

    def load(name: str) -> Any:
        place = places.get(name)
        here = sys.modules[module]
        if place is None:
            raise AttributeError(
                f"module {module!r} has no attribute {name!r}", name=name, obj=here
            )
        found = importlib.import_module(place)
        if place != f"{module}.{name}":  # else the name is that of the module itself
            found = getattr(found, name)
        setattr(here, name, found)
        return found

    def names() -> list[str]:
        return sorted({*vars(sys.modules[module]), *places})

    return load, names
