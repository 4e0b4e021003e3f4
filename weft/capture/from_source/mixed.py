"""Tensors of which a condition decides which ones they are, and writes to them.

After `y = x` on one side of an `if` only, y is x or another tensor: a value of the graph holds what
it holds, but a write to y would have to reach x, too, on that way. It is refused, unless nobody
else can see the tensor that would have been written.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import CellType, FrameType, FunctionType, ModuleType
from typing import Any

from weft.base.errors import CaptureError
from weft.base.source import PACKAGE
from weft.capture.control.nested import NestedRecorder
from weft.capture.watch.stores import instance_dict
from weft.capture.watch.values import CONTAINERS
from weft.capture.watch.watch import Watch
from weft.core.tensor import Tensor

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

    def check(self, target: Tensor) -> None:
        """A tensor is about to be written."""
        found = self._known.get(id(target))
        if found is None:
            return
        _, sides, number = found
        values = _variables()
        for place, side in enumerate(sides):
            if side is not None and (
                self._has_twin(target, sides, place, number) or self._is_seen(side, values)
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

    def _is_seen(self, tensor: Tensor, values: list[Any]) -> bool:
        """Whether a tensor comes from outside, or a variable of running code leads to it."""
        if self.watch.known(tensor) is not None:
            return True
        found = self._known.get(id(tensor))
        inner = [] if found is None else [side for side in found[1] if side is not None]
        if any(self._is_seen(side, values) for side in inner):
            return True
        return any(_leads_to(value, tensor, DEPTH) for value in values)


#: How deep in the containers and objects that variables hold a tensor is looked for.
DEPTH = 4


def _variables() -> list[Any]:
    """What the variables of the functions that the watched run is in hold.

    Who called it is of no concern: what they hold and the run can reach is known as from outside.
    """
    values: list[Any] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not Watch.run.__code__:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            values += list(frame.f_locals.values())
        frame = frame.f_back
    return values


def _leads_to(value: Any, tensor: Tensor, depth: int) -> bool:
    if value is tensor:
        return True
    if isinstance(value, (Tensor, str, bytes, int, float, type, ModuleType)) or not depth:
        return False
    if isinstance(value, FunctionType):
        cells = value.__closure__ or ()
        return any(_leads_to(part, tensor, depth - 1) for cell in cells for part in _held(cell))
    if isinstance(value, dict):
        parts: Any = value.values()
    elif isinstance(value, CONTAINERS):
        parts = value
    else:
        parts = (instance_dict(value) or {}).values()
    return any(_leads_to(part, tensor, depth - 1) for part in list(parts))


def _held(cell: CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:
        return []


class SourceNested(NestedRecorder):
    """A branch or body whose writes are looked at before they are done."""

    def __init__(self, parent: Any, name: str, mixed: Mixed) -> None:
        super().__init__(parent, name)
        self.mixed = mixed

    def write(self, target: Tensor) -> None:
        self.mixed.check(target)
        super().write(target)
