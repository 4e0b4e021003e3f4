"""An index out of range whose element nobody uses.

Eager code raises an IndexError there; compiled code need not (docs/control_flow.md, "Limits"). What
the program gives then is what it gives without the line.
"""

from __future__ import annotations

import re

from fuzzing.case import Case
from fuzzing.outcomes import Outcome

#: The end of the message of an error: the place, and the text of the line.
_PLACE = re.compile(r"^  at .* in program: (?P<line>\w+ = .*)$", re.MULTILINE)


def without_index(case: Case, want: Outcome) -> Case | None:
    """The case without the assignment that raised an IndexError; None if there is none."""
    place = _PLACE.search(want.message) if issubclass(want.error or int, IndexError) else None
    lines = [i for i, line in enumerate(case.body) if place and line.strip() == place["line"]]
    if len(lines) != 1:
        return None
    body = list(case.body)
    text = body[lines[0]]
    body[lines[0]] = text[: len(text) - len(text.lstrip())] + "pass"
    return case.but(body=tuple(body))
