"""Recursion that a graph cannot hold: a function that calls itself until a tensor says so.

Python asks the tensor and stops. A graph records both sides of the question, so the side on which
the function calls itself is recorded again and again, until Python's stack is full. That is told
from the traceback: the same function, again and again, in branches that are recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from types import CodeType, TracebackType

from weft.base.errors import CaptureError
from weft.base.source import SourceLocation, is_own

__all__ = ["endless_recursion"]

#: From how many recorded branches inside each other on it is their recursion that does not end.
MANY = 10


def endless_recursion(error: RecursionError, records: Collection[CodeType]) -> CaptureError | None:
    """What to say instead of an error; None where it is the user's own. `records`: the code of the
    functions that record branches and loops."""
    branches = 0
    calls: Counter[tuple[str, SourceLocation]] = Counter()
    before: SourceLocation | None = None
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        branches += code in records
        if not is_own(code.co_filename):
            name = code.co_qualname
            if before is not None and "__weft_" not in name:  # not a branch of one: it is called
                calls[name, before] += 1
            before = SourceLocation(
                code.co_filename, trace.tb_lineno, name.split(".<locals>.__weft_")[0]
            )
        trace = trace.tb_next
    (name, location), count = calls.most_common(1)[0] if calls else (("", before), 0)
    if branches < MANY or count < MANY:
        return None
    made = CaptureError(
        f"{name} calls itself, and whether it goes on depends on the value of a tensor: both sides "
        "of that question are recorded, and the one with the call has no end",
        hint='write it as a `while` loop; or use capture="trace", which follows its value',
    )
    made.location = location
    return made
