"""Which values a loop carries with their histories, and when: see `carried_history`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.autodiff.node import tensor_of
from weft.base.errors import CaptureError
from weft.base.source import SourceLocation
from weft.capture.control.agree import line_of
from weft.capture.control.borders import Border
from weft.capture.control.carry import Loop, escaping
from weft.capture.control.nested import (
    NestedRecorder,
)
from weft.capture.from_source.carried_history import Differs, History
from weft.capture.from_source.loop_leaf import Leaf
from weft.capture.from_source.merge import kind_of_tensor
from weft.core.tensor import Tensor

if TYPE_CHECKING:
    from weft.capture.from_source.loop_state import LoopState


class Again(BaseException):
    """The body is to be recorded once more, with more that it carries."""


class _Wanted:
    """A carried value whose history is carried, too."""

    def __init__(self, title: str, leaf: Leaf, place: SourceLocation | None) -> None:
        self.title = title
        self.leaf = leaf
        self.place = place  # where it is differentiated
        self.history: History | None = None
        self.leaves: list[Leaf] = []  # of what the history keeps


class CarriedHistories:
    """Those of one loop."""

    def __init__(self, loop: LoopState) -> None:
        self.loop = loop
        self._wanted: list[_Wanted] = []
        self._nested: NestedRecorder | None = None  # the last recording that came to its end

    def leaves(self) -> list[Leaf]:
        return [leaf for wanted in self._wanted for leaf in wanted.leaves]

    def enter(self, nested: NestedRecorder) -> None:
        """Give values in the body their histories; all places have been entered."""
        arrays = [[leaf.enter(nested)._data for leaf in one.leaves] for one in self._wanted]
        pairs = list(zip(self._wanted, arrays, strict=True))
        for one, kept in sorted(pairs, key=lambda pair: pair[0].leaf.initial._node.number):
            leaf = one.leaf
            assert one.history is not None
            leaf.border = leaf.entered._node = one.history.build(kept)

    def leave(self, nested: NestedRecorder) -> bool:
        """See what the histories are after the body; whether they are as assumed."""
        self._nested = nested
        steady = True
        for one in self._wanted:
            steady &= self._update(one)
        return steady

    def reached(self, border: Border | None = None) -> bool:
        """Whether backward passes of a body that has failed needed hidden histories.

        From now on these are carried. `border`: the pass ended at this one.
        """
        found = [
            (title, leaf)
            for title, leaf in self._tensors()
            if isinstance(leaf.border, Border)
            and (leaf.border is border or (border is None and leaf.border.asked))
        ]
        for title, leaf in found:
            self._want(title, leaf)
        return bool(found)

    def check(self, tensors: Loop, nested: NestedRecorder) -> None:
        """Has a backward pass gone by a hidden history that leads to what it looked for?"""
        known = self._tensors()
        histories = [(leaf.border, _node(leaf.out), _node(leaf.initial)) for _, leaf in known]
        histories += tensors.histories(nested)
        found = escaping(histories)
        for at in found:
            if at >= len(known):
                raise CaptureError(
                    "a tensor that the body writes to in place is differentiated there, and has a "
                    f"history in the iterations before{line_of(None, self.loop.body)}",
                    op=self.loop.name,
                    hint="cut that history, x.detach(), or ask for the gradient after the loop",
                )
            self._want(*known[at])
        if found:
            raise Again

    def _want(self, title: str, leaf: Leaf) -> None:
        one = _Wanted(title, leaf, leaf.border.place)
        self._wanted.append(one)
        self._update(one)

    def _update(self, one: _Wanted) -> bool:
        """Compare the histories from before the loop and after the body."""
        leaf, before = one.leaf, one.history
        carried = {
            (_node(other.initial), _node(other.out)): other
            for _, other in self._tensors()
            if other is not leaf
        }
        captured = {} if self._nested is None else self._nested.captured
        outer = {inner: value for (value, _), (_, inner) in captured.items()}
        try:
            found = History(_node(leaf.initial), _node(leaf.out), carried, outer)
        except Differs as reason:
            raise self._refused(one, str(reason)) from None
        one.history = found
        if before is not None and before.shape == found.shape:
            for kept, end in zip(one.leaves, found.ends, strict=True):
                kept.out = tensor_of(end, None)
            return True
        one.leaves = [
            _leaf(start, end) for start, end in zip(found.starts, found.ends, strict=True)
        ]
        return False

    def _refused(self, one: _Wanted, why: str) -> CaptureError:
        at = "" if one.place is None else f" ({one.place})"
        made = line_of(one.leaf.out, self.loop.body)
        return CaptureError(
            f"{one.title} is differentiated{at} in the iteration after the one that computes it"
            f"{made}, and a loop of the graph cannot carry its history: {why}",
            op=self.loop.name,
            hint="compute it in the iteration that differentiates it, or cut its history: "
            "x.detach()",
        )

    def _tensors(self) -> list[tuple[str, Leaf]]:
        return [
            (place.title, leaf)
            for place in self.loop.places.values()
            for leaf in place.leaves
            if leaf.kind is not None and not leaf.is_number
        ]


def reached_by(loops: Sequence[LoopState]) -> Border | None:
    """A border of loops around, behind which a backward pass has looked for its target."""
    for loop in reversed(loops):
        for _, leaf in loop.histories._tensors():
            if isinstance(leaf.border, Border) and leaf.border.asked:
                return leaf.border
    return None


def _leaf(start: Any, end: Any) -> Leaf:
    leaf = Leaf(tensor_of(start, None))
    leaf.kind = kind_of_tensor(leaf.initial)
    leaf.out = tensor_of(end, None)
    return leaf


def _node(value: Any) -> Any:
    return value._node if isinstance(value, Tensor) else None
