"""The ways to call a program, from fast to safe: a ladder that is climbed down.

machine    the call itself is machine code (`weft.runtime.native_call`). It relies on where CPython
           and NumPy keep the data of lists, arrays and tensors: found and tried in each process.
ctypes     Python asks arrays for their addresses, and calls machine code through ctypes. It relies
           on what Python and NumPy document.
interpret  no machine code at all: op by op.

A program goes one rung down where something is not as expected: from the first where objects have
another layout (`weft.runtime.object_layout`), on a Python without its global lock, and on a Python
newer than we know; from the second where the system forbids code that is made at run time.
WEFT_CALL forces one.
"""

from __future__ import annotations

import functools
import sys

from weft.base import config
from weft.base.source import warn_user
from weft.core.ownership import NEWEST_KNOWN

__all__ = ["RungWarning", "no_machine_code", "rung", "warn_no_machine_code"]


class RungWarning(UserWarning):
    """Compiled functions run in a slower way than they could."""


def rung() -> str:
    """The rung to try first."""
    return config.call() or ("interpret" if no_machine_code() else _best())


@functools.cache
def _best() -> str:
    if sys.version_info[:2] <= NEWEST_KNOWN:
        return "machine"
    this, known = (".".join(map(str, version[:2])) for version in (sys.version_info, NEWEST_KNOWN))
    warn_user(
        f"this is Python {this}, and this Weft knows Python up to {known}: compiled functions are "
        "called through ctypes and give fresh results, which is slower. A newer Weft may know it; "
        "WEFT_CALL=ctypes says nothing",
        RungWarning,
    )
    return "ctypes"


_reasons: list[str] = []


def no_machine_code() -> str:
    """Why this process cannot run machine code; empty where it can, as far as is known."""
    return _reasons[0] if _reasons else ""


def warn_no_machine_code(reason: str) -> None:
    """From now on, graphs are interpreted."""
    if not _reasons:
        _reasons.append(reason)
        warn_user(
            f"this process cannot run code that it makes ({reason}): compiled functions run op by "
            "op, which is slower. WEFT_CALL=interpret says nothing",
            RungWarning,
        )
