"""Records again where Python has asked for a size that depends on data: see `data_sizes`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from weft.base.errors import WeftError
from weft.capture.trace.data_sizes import ALL
from weft.capture.trace.recorder import TraceRecorder
from weft.capture.trace.segments import Ending

__all__ = ["Run", "with_asked_sizes"]

#: One recorded run: how it ended, and what is wrong with it.
Run: TypeAlias = tuple[TraceRecorder, Ending | None, list[str]]


def with_asked_sizes(
    fixed: set[str], make: Callable[[], TraceRecorder], run: Callable[[TraceRecorder], Run]
) -> Run:
    """A recorded run. `fixed` are the calls whose size is a question to the run: a call joins them
    if its size was asked for as a number; all do if the code fails without a number."""
    while True:
        recorded = make()
        recorded.data_sizes.fixed = fixed
        try:
            found = run(recorded)
        except WeftError:
            if ALL in fixed or not recorded.data_sizes.told:
                raise
            fixed.add(ALL)
            continue
        places = recorded.data_sizes.places(recorded.asked.asked_data)
        if places <= fixed:
            return found
        fixed |= places
