"""What a captured function knows about a call that no recording fits."""

from __future__ import annotations

from collections.abc import Sequence

from weft.capture.trace.repeated import Cause
from weft.capture.trace.segments import Segment

__all__ = ["Miss"]


class Miss:
    """A call that no recorded path fits: the segments it took, and why it stopped there."""

    __slots__ = ("candidates", "cause", "reason", "taken", "waits")

    def __init__(
        self,
        taken: list[Segment],
        reason: str = "",
        cause: Cause | None = None,
        candidates: Sequence[Segment] = (),
    ) -> None:
        self.taken = taken
        self.reason = reason  # "": it is not known yet why none of the candidates was usable
        self.cause = cause
        self.candidates = candidates
        self.waits = False  # is a structure not recorded, because it is seen for the first time?
