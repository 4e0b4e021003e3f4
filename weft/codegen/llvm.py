"""llvmlite's binding, loaded when something of it is first asked for.

Loading LLVM takes some 30 ms, and `import weft` does not need it: this is the one place that does.

    from weft.codegen import llvm
    llvm.parse_assembly(text)
"""

from __future__ import annotations

import importlib
from typing import Any


def version() -> str:
    """Which llvmlite this is, and so which LLVM; it need not be loaded for that."""
    return str(importlib.import_module("llvmlite").__version__)


def unlocked(name: str) -> Any:
    """A function of llvmlite's library without the one lock that it has for all of LLVM.

    For what no other thread has: modules in a context of their own, machines, managers of passes.
    """
    found = getattr(importlib.import_module("llvmlite.binding.ffi").lib, name)
    return getattr(found, "_cfn", found)


def __getattr__(name: str) -> Any:
    """What `llvmlite.binding` has under a name; found once, it is this module's own."""
    found = getattr(importlib.import_module("llvmlite.binding"), name)
    globals()[name] = found
    return found
