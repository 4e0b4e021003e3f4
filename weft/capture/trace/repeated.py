"""A call that no recording fits: why, and what to do if that happens again and again."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.base.dataclass import dataclass
from weft.capture.trace.segments import Question, Segment
from weft.capture.watch.guards import Guard
from weft.core.number import CLASSES

#: After so many recordings because of guards, a warning names them, if one failed most often.
MANY = 8


class Cause(NamedTuple):
    """Why no recording was usable: what the guard is about, and what its reader can do."""

    text: str
    advice: str


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


_NUMBER = (
    "Python needs this number there: as a size, a key, or in code that is not followed. Give it as "
    "a tensor, or hand over what is made of it"
)
_TEXT = "it is another text in each call: hand over what is decided by it, or use it in prints only"
_CONTAINER = (
    "it has other contents in each call, and all are read there: keep what is needed of them, as a "
    "running sum, or read them outside of the function"
)
_OBJECT = "it is another object in each call: make it once, or hand over what is needed of it"
#: What to do about a guard that fails again and again, by its kind.
ADVICE = {
    "value": "it is another value in each call: read it outside of the function",
    "tensor": "pad to few sizes, or hand over tensors of one dtype",
    "array": "pad to few sizes, or hand over arrays of one dtype",
    "content": "Python looks into this array: make a tensor of it",
    **dict.fromkeys(("length", "size", "keys", "order", "missing", "present"), _CONTAINER),
    **dict.fromkeys(("identity", "class", "code", "same", "distinct"), _OBJECT),
}
_NUMBERS = tuple(CLASSES.values())


def cause_of(failed: Guard | Question) -> Cause | None:
    """The cause of a recording that a guard led to, or another answer of a tensor; None for a
    branch, which has two."""
    where = f" at {failed.location}" if failed.location else ""
    if isinstance(failed, Question):
        advice = "Python needs this number: keep to tensors there"
        text = f"{failed.kind} of a tensor"
        return None if failed.kind == "bool" else Cause(f"{text}{where}", advice)
    advice = ADVICE.get(failed.kind, "see `recordings`")
    if failed.kind == "value" and isinstance(failed.expected, (*_NUMBERS, np.number)):
        advice = _NUMBER
    elif failed.kind == "value" and isinstance(failed.expected, str):
        advice = _TEXT
    return Cause(f"{failed.text or failed.description}{where}", advice)


def _asked(recordings: Sequence[Any]) -> str:
    """What fixed a size in the last recording that had one: the question, and its line."""
    for recording in reversed(recordings):
        for _, text in recording.notes.sizes.values():
            if text.startswith("is ") and " is asked at " in text:
                question, line = text.partition(": ")[2].split(" is asked at ")
                advice = "use it in shapes, arithmetic and loops over range(n) only"
                return f"its size is asked for at {line} ({question}): {advice}"
    return ""


def said(
    name: str, causes: Sequence[Cause | None], way: str, recordings: Sequence[Any] = ()
) -> str:
    """The warning, as soon as `MANY` recordings were made and half of them for one cause."""
    counted = Counter(cause for cause in causes if cause is not None)
    if len(causes) < MANY or counted.most_common(1)[0][1] * 2 < MANY:
        return ""
    sizes = _asked(recordings)
    listed = "; ".join(
        f"{cause.text} ({count} times): "
        f"{sizes if sizes and cause.advice == ADVICE['tensor'] else cause.advice}"
        for cause, count in counted.most_common(3)
        if count > 1
    )
    return (
        f"{name} was recorded {len(causes)} times, because a guard failed. {listed}. "
        f"`{name}.recordings` lists all; {way}(limit=...) sets when to stop recording"
    )
