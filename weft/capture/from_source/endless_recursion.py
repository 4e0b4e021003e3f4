"""Detects recursion whose end depends on a tensor, which a graph cannot hold.

Python asks the tensor and stops. A graph records both sides of the condition, so the side with the
recursive call is recorded until Python's stack is full. The traceback of that error shows the same
function again and again inside of recorded branches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from types import CodeType, TracebackType

from weft.base.errors import CaptureError
from weft.base.source import SourceLocation, is_own

__all__ = ["endless_recursion"]

#: From this depth of nested recorded branches on, the recursion counts as endless.
MANY = 10


def endless_recursion(error: RecursionError, records: Collection[CodeType]) -> CaptureError | None:
    """The error to raise instead; None if the recursion is not in recorded branches.

    `records` is the code of the functions that record branches and loops.
    """
    branches = 0
    calls: Counter[tuple[str, SourceLocation]] = Counter()
    before: SourceLocation | None = None
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        branches += code in records
        if not is_own(code.co_filename):
            name = code.co_qualname
            if before is not None and "__weft_" not in name:  # a call, not a generated branch
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
