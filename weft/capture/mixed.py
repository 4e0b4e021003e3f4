"""Tensors of which a condition decides which ones they are, and writes to them.

After `y = x` on one side of an `if` only, y is x or another tensor: a value of the graph holds what
it holds, but a write to y would have to reach x, too, on that way. It is refused, unless nobody
else can see the tensor that would have been written.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.base.errors import CaptureError
from weft.capture.journal import Journal
from weft.capture.nested import NestedRecorder
from weft.capture.recorder import Written
from weft.core.tensor import Tensor

if TYPE_CHECKING:
    from weft.capture.watch import Watch

#: What a merged tensor is on each side of its `if`: a tensor from before, or None for a new one.
Sides = list[Tensor | None]


class Mixed:
    """All such tensors of one run."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        #: By id: the tensor, what it may be, and the number of the `if` that decides it.
        self._known: dict[int, tuple[Tensor, Sides, int]] = {}
        self._ifs = 0

    def add(self, merged: Sequence[tuple[Tensor, Sides]]) -> None:
        """The merged tensors of one `if`."""
        self._ifs += 1
        for tensor, sides in merged:
            if any(side is not None for side in sides):
                self._known[id(tensor)] = (tensor, sides, self._ifs)

    def check(self, target: Tensor, journals: list[Journal]) -> None:
        """A tensor is about to be written."""
        found = self._known.get(id(target))
        if found is None:
            return
        _, sides, number = found
        for place in range(len(sides)):
            if sides[place] is not None and (
                self._has_twin(target, sides, place, number)
                or self._is_seen(sides, place, journals)
            ):
                raise CaptureError(
                    f"a tensor ({target.type}) is written to that is one of several, by a "
                    "condition on tensors, and another name may hold it, too",
                    hint="give the name a tensor of its own before: x = x.clone(); or write "
                    "x = x + 1",
                )

    def _has_twin(self, target: Tensor, sides: Sides, place: int, number: int) -> bool:
        """Whether another merged tensor is the same one on the same side."""
        return any(
            other is not target and theirs[place] is sides[place]
            for other, theirs, its in self._known.values()
            if its == number
        )

    def _is_seen(self, sides: Sides, place: int, journals: list[Journal]) -> bool:
        """Whether anybody but this run's own notes holds a tensor."""
        tensor: Any = sides[place]
        if self.watch.known(tensor) is not None:
            return True
        nested = self._known.get(id(tensor))
        if nested is not None and any(
            side is not None and self._is_seen(nested[1], i, journals)
            for i, side in enumerate(nested[1])
        ):
            return True
        del nested
        ours = {id(before) for journal in journals for _, before in journal.entries.values()}
        ours.update(id(theirs) for _, theirs, _ in self._known.values())
        ours.update(id(entry) for entry in self._known.values())
        holders = gc.get_referrers(tensor)
        foreign = sum(not _is_note(holder, ours) for holder in holders)
        # Beside them, only variables of running functions count: `tensor` here, and the argument.
        return foreign > 0 or sys.getrefcount(tensor) - len(holders) > 2


def _is_note(holder: Any, ours: set[int]) -> bool:
    if id(holder) in ours or isinstance(holder, Written):
        return True
    return type(holder).__module__ in ("weft.capture.loop_state", "weft.capture.nested")


class SourceNested(NestedRecorder):
    """A branch or body whose writes are looked at before they are done."""

    def __init__(self, parent: Any, name: str, mixed: Mixed, journals: list[Journal]) -> None:
        super().__init__(parent, name)
        self.mixed = mixed
        self.journals = journals

    def write(self, target: Tensor) -> None:
        self.mixed.check(target, self.journals)
        super().write(target)
