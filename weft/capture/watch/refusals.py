"""Why no graph can hold a piece of code, where that decides what happens instead."""

from __future__ import annotations

from weft.base.errors import CaptureError


class OneSided(CaptureError):
    """The two sides of an `if` give what no graph can merge: structures, or values of two kinds."""


class NotKept(BaseException):
    """The code does what no recording can hold, and nothing of that has been done yet.

    In a branch of the graph Python decides which side is taken; a loop of the graph is unrolled.
    Else the recording ends here and Python runs the call, from its beginning: so what cannot be
    undone happens once. It is no `Exception`, as the user's code may catch those.
    """
