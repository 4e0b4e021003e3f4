"""A segment of a recorded run, before it is part of the tree."""

from __future__ import annotations

from typing import Any

from weft.base.dataclass import dataclass
from weft.capture.trace.segments import Question
from weft.capture.watch.origin import Origin
from weft.ir.graph import Node, Value

__all__ = ["RawSegment"]


@dataclass(slots=True)
class RawSegment:
    """A segment of the recorded run, up to a question or the end."""

    guards: list[Any]
    inputs: list[tuple[Value, Origin]]
    nodes: list[Node]
    question: Question | None
    answer: Any
