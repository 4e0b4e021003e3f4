"""`weft view script.py`: runs a script, to show what it has compiled."""

from __future__ import annotations

import os
import runpy
import sys
from typing import Any

from weft.base.errors import CaptureError, RangeError
from weft.capture.trace.captured import Captured

__all__ = ["compiled_in"]


def compiled_in(script: str, name: str | None = None) -> Captured[..., Any]:
    """Run a script; returns its compiled function of this name, or the last one that it called."""
    if not os.path.exists(script):
        raise RangeError(f"there is no file {script}", op="view")
    before = sys.argv, sys.path[:]
    sys.argv = [script]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    try:
        found = runpy.run_path(script, run_name="__main__")
    finally:
        sys.argv, sys.path[:] = before
    compiled = {
        key: value for key, value in found.items() if isinstance(value, Captured) and value.programs
    }
    listed = ", ".join(compiled)
    if not compiled:
        raise CaptureError(
            f"{script} called no compiled function that is a global variable of it",
            op="view",
            hint="put @weft.compile before a function, and call it",
        )
    if name is not None and name not in compiled:
        raise RangeError(f"{script} called no compiled function {name!r}", hint=f"one of {listed}")
    chosen = name or list(compiled)[-1]
    if name is None and len(compiled) > 1:
        print(f"showing {chosen}; --function shows another: {listed}")
    return compiled[chosen]
