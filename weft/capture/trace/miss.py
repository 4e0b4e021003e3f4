"""What a captured function knows about a call that no recording fits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft.base.dataclass import dataclass
from weft.capture.trace.repeated import Cause
from weft.capture.trace.segments import Segment

__all__ = ["Miss", "is_rounding"]

#: Two roundings of one number differ by no more than this, relatively. Of other numbers nothing is
#: known: the question may be another one, where Python's own order of a set decides what is asked.
ROUNDING = 1e-5


def is_rounding(answer: Any, recorded: Any) -> bool:
    """Whether a program's answer is that of the recording but for rounding."""
    if type(answer) is not float or type(recorded) is not float:
        return False
    return math.isclose(answer, recorded, rel_tol=ROUNDING)


@dataclass(eq=False, slots=True)
class Miss:
    """A call that no recorded path fits: the segments it took, and why it stopped there."""

    taken: list[Segment]
    reason: str = ""  # "": it is not known yet why none of the candidates was usable
    cause: Cause | None = None
    candidates: Sequence[Segment] = ()
    waits: bool = False  # is a structure not recorded, because it is seen for the first time?
