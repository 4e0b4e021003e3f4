"""What makes machine code, loaded when a function is first compiled.

Those who only run eagerly need not wait for the code generators when they import Weft.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable

from weft.runtime.executable import Runs

__all__ = ["code_maker", "make_ready"]


@functools.cache
def code_maker() -> Callable[..., Runs]:
    """`weft.runtime.native.native`."""
    made: Callable[..., Runs] = importlib.import_module("weft.runtime.native").native
    return made


def make_ready(compiles: bool) -> None:
    """`weft.runtime.native.make_ready`."""
    importlib.import_module("weft.runtime.native").make_ready(compiles)
