"""Settings that come from the environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from weft.base.errors import RangeError

PREFIX = "WEFT_"


def cache_dir() -> Path:
    """The folder for generated code: WEFT_CACHE_DIR, or the system's cache folder.

    Windows   %LOCALAPPDATA%\\weft\\Cache
    macOS     $XDG_CACHE_HOME/weft where that is set, else ~/Library/Caches/weft
    others    $XDG_CACHE_HOME/weft, else ~/.cache/weft

    These are the rules of `platformdirs`. The folder need not exist yet.
    """
    chosen = os.environ.get("WEFT_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "weft" / "Cache"
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(xdg):  # the XDG specification says to ignore a relative path
        return Path(xdg) / "weft"
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "weft"


def backend() -> str:
    """The backend of compiled functions that name none: WEFT_BACKEND, or "native"."""
    return os.environ.get("WEFT_BACKEND") or "native"


#: The ways to call a program; each depends on less of the system than the one before it.
CALLS = ("machine", "ctypes", "interpret")


def call() -> str | None:
    """How programs are called: WEFT_CALL, one of `CALLS`. None: use the fastest that works."""
    asked = os.environ.get("WEFT_CALL")
    if not asked:
        return None
    if asked not in CALLS:
        known = ", ".join(CALLS)
        raise RangeError(f"WEFT_CALL is {asked!r}", op="compile", hint=f"one of {known}")
    return asked


def check() -> bool:
    """Whether compiled functions run in check mode by default: WEFT_CHECK."""
    return os.environ.get("WEFT_CHECK", "0").lower() not in ("", "0", "false", "no", "off")


def verifies_plans() -> bool:
    """Whether scheduled programs are verified before they are compiled: WEFT_VERIFY_PLANS=1."""
    return os.environ.get("WEFT_VERIFY_PLANS", "0") not in ("", "0")


#: From how many elements an array is large, so that eager calls on it are machine code.
LARGE = 32768


def large_from() -> int:
    """The number of elements from which eager calls are machine code: WEFT_EAGER, "native" (the
    default) or "numpy" (never), or a number of elements."""
    asked = os.environ.get("WEFT_EAGER") or "native"
    if asked == "numpy":
        return sys.maxsize
    if asked == "native":
        return LARGE
    if asked.isdecimal():
        return int(asked)
    raise RangeError(
        f"WEFT_EAGER is {asked!r}", op="import", hint='"native", "numpy" or a number of elements'
    )


def full_tracebacks() -> bool:
    """Whether tracebacks show the frames of Weft, too: WEFT_TRACEBACK=full."""
    return os.environ.get("WEFT_TRACEBACK", "") == "full"


def environment() -> dict[str, str]:
    """The environment variables that begin with WEFT_."""
    return {k: v for k, v in sorted(os.environ.items()) if k.startswith(PREFIX)}
