"""llvmlite's binding, loaded on first use.

Loading LLVM takes about 30 ms, and `import weft` does not need it: only this module loads it.

    from weft.codegen import llvm
    llvm.parse_assembly(text)
"""

from __future__ import annotations

import importlib
from typing import Any


def version() -> str:
    """The version of llvmlite, and so of LLVM; it does not load them."""
    return str(importlib.import_module("llvmlite").__version__)


def unlocked(name: str) -> Any:
    """A function of llvmlite's library, without its global lock.

    For objects that no other thread uses: modules in their own context, target machines, pass
    managers.
    """
    found = getattr(importlib.import_module("llvmlite.binding.ffi").lib, name)
    return getattr(found, "_cfn", found)


def __getattr__(name: str) -> Any:
    """An attribute of `llvmlite.binding`, cached in this module."""
    found = getattr(importlib.import_module("llvmlite.binding"), name)
    globals()[name] = found
    return found
