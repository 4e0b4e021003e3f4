"""The ways to call a program, from the fastest to the safest: the rungs of a ladder.

machine    the call itself is machine code (`weft.runtime.native_call`). It relies on the memory
           layout of lists, arrays and tensors, which is found and tested in each process.
ctypes     Python asks arrays for their addresses and calls machine code through ctypes. It relies
           on documented behaviour of Python and NumPy.
interpret  no machine code: op by op.

A program falls back to the next rung if one does not work: from the first if objects have another
layout (`weft.runtime.object_layout`), on a Python without the GIL, and on a Python newer than those
we know; from the second if the system forbids code generated at run time. WEFT_CALL selects one.
"""

from __future__ import annotations

import functools
import sys

from weft.base import config
from weft.base.source import warn_user
from weft.core.ownership import NEWEST_KNOWN

__all__ = ["RungWarning", "no_machine_code", "rung", "warn_no_machine_code"]


class RungWarning(UserWarning):
    """Compiled functions run in a slower way than usual."""


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
    """Why this process cannot run machine code; empty if no problem is known."""
    return _reasons[0] if _reasons else ""


def warn_no_machine_code(reason: str) -> None:
    """Warn, and interpret graphs from now on."""
    if not _reasons:
        _reasons.append(reason)
        warn_user(
            f"this process cannot run code that it makes ({reason}): compiled functions run op by "
            "op, which is slower. WEFT_CALL=interpret says nothing",
            RungWarning,
        )
