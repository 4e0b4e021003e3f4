"""Names of a module that are loaded when somebody first asks for them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["lazily"]


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
