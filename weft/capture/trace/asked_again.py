"""Records again where Python has asked for a size that depends on data: see `data_sizes`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from weft.base.errors import WeftError
from weft.capture.trace.data_sizes import ALL
from weft.capture.trace.recorder import TraceRecorder

__all__ = ["with_asked_sizes"]

Found = TypeVar("Found")


def with_asked_sizes(
    fixed: set[str], make: Callable[[], TraceRecorder], run: Callable[[TraceRecorder], Found]
) -> Found:
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
