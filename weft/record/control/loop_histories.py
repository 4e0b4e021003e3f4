"""Decides which values a loop carries with their histories; see `carried_history`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.autodiff.node import tensor_of
from weft.base.errors import CaptureError, CaptureGradientError
from weft.core.tensor import Tensor
from weft.record.control.agree import line_of
from weft.record.control.borders import Border, CarriedNode
from weft.record.control.carried_history import History, NotCarried
from weft.record.control.closed import value_type
from weft.record.control.loop_leaf import CarriedLeaf, node_of
from weft.record.control.nested import NestedRecorder

if TYPE_CHECKING:
    from weft.record.control.recorded_loop import RecordedLoop


class Again(BaseException):
    """The body must be recorded again, since the loop carries more now."""


class HistoryDiffers(CaptureError):
    """The body asks whether a value has a history, and iterations differ in that."""


class _Wanted:
    """A value that is carried together with its history."""

    def __init__(self, leaf: CarriedLeaf) -> None:
        self.leaf = leaf
        self.place = leaf.border.place  # the line where it is differentiated
        self.history: History | None = None
        self.leaves: list[CarriedLeaf] = []  # one for each array that the history keeps


class CarriedHistories:
    """The carried histories of one loop."""

    def __init__(self, loop: RecordedLoop) -> None:
        self.loop = loop
        self._wanted: list[_Wanted] = []
        self._nested: NestedRecorder | None = None  # the last recording that was completed
        #: Whether the body sees the values from before the loop, with their histories. It failed
        #: for want of one before any recording was complete, so what it carries is not known.
        self.shown = False

    def leaves(self) -> list[CarriedLeaf]:
        return [leaf for wanted in self._wanted for leaf in wanted.leaves]

    def enter(self, nested: NestedRecorder) -> None:
        """Give values in the body their histories, after all places have been entered."""
        arrays = [[leaf.enter(nested)._data for leaf in one.leaves] for one in self._wanted]
        pairs = list(zip(self._wanted, arrays, strict=True))
        for one, kept in sorted(pairs, key=lambda pair: pair[0].leaf.began.number):
            leaf = one.leaf
            assert one.history is not None
            leaf.border = leaf.entered._node = one.history.build(kept)

    def leave(self, nested: NestedRecorder) -> bool:
        """Compare the histories after the body; whether they are as assumed."""
        self._nested = nested
        steady, self.shown = not self.shown, False
        for one in self._wanted:
            steady &= self._update(one)
        return steady

    def reached(self, border: Border | None = None) -> bool:
        """Whether backward passes of a failed body needed hidden histories, and carry these.

        `border` is the one at which the pass ended, if known.
        """
        found = [
            leaf
            for leaf in self._tensors()
            if isinstance(leaf.border, Border)
            and (leaf.border is border or (border is None and leaf.border.asked))
        ]
        self.shown = bool(found) and self._nested is None
        for leaf in [] if self.shown else found:
            self._want(leaf)
        return bool(found)

    def check(self, states: Sequence[CarriedLeaf]) -> None:
        """Carry or refuse hidden histories that lead to a target of a backward pass."""
        found = _escaping([*self._tensors(), *states])
        for leaf in found:
            if leaf in states:
                raise CaptureGradientError(
                    "a tensor that the body writes to in place is differentiated there, and its "
                    f"history goes back to earlier iterations{line_of(None, self.loop.body)}",
                    op=self.loop.name,
                    hint="cut that history, x.detach(), or ask for the gradient after the loop",
                )
            self._want(leaf)
        if found:
            raise Again

    def check_asked(self, nested: NestedRecorder, states: Sequence[CarriedLeaf]) -> None:
        """Raise HistoryDiffers if the body asked for a history that iterations do not share.

        A body is recorded once, with all histories that a carried value has in any iteration.
        """
        carried = {
            leaf.border: leaf
            for leaf in (*self._tensors(), *states)
            if isinstance(leaf.border, (Border, CarriedNode))
        }
        for border, leaf in carried.items():
            if isinstance(border, Border):
                border.behind = [node for node in (leaf.began, node_of(leaf.out)) if node]
        changing = {
            border
            for border, leaf in carried.items()
            if (leaf.began is None) != (node_of(leaf.out) is None)
        }
        leaves = {b for b, leaf in carried.items() if leaf.began is not None and leaf.began.is_leaf}
        for nodes, of_leaves, where in nested.asked:
            ends = _ends(nodes, set(carried))
            if ends <= changing or (of_leaves and not leaves.isdisjoint(nodes)):
                titles = ", ".join(leaf.title for b, leaf in carried.items() if b in ends)
                raise HistoryDiffers(
                    f"Python asks in the body whether a tensor has a history (requires_grad, "
                    f"is_leaf, grad_fn; {where}), and the answer is another in the first iteration "
                    f"than in those after it: it depends on {titles}",
                    op=self.loop.name,
                    hint="ask before the loop; or start with values that have a history "
                    "(or none, x.detach()) so that all iterations are alike",
                )

    def _want(self, leaf: CarriedLeaf) -> None:
        one = _Wanted(leaf)
        self._wanted.append(one)
        self._update(one)

    def _update(self, one: _Wanted) -> bool:
        """Compare the histories from before the loop and after the body."""
        leaf, before = one.leaf, one.history
        carried = {
            (other.began, node_of(other.out)): other
            for other in self._tensors()
            if other is not leaf
        }
        captured = {} if self._nested is None else self._nested.captured
        outer = {inner: value for (value, _), (_, inner) in captured.items()}
        try:
            found = History(leaf.began, node_of(leaf.out), carried, outer)
        except NotCarried as reason:
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
        return CaptureGradientError(
            f"{one.leaf.title} is differentiated{at} in the iteration after the one that computes "
            f"it{made}, and a loop of the graph cannot carry its history: {why}",
            op=self.loop.name,
            hint="compute it in the iteration that differentiates it, or cut its history: "
            "x.detach()",
        )

    def _tensors(self) -> list[CarriedLeaf]:
        leaves = self.loop.leaves()
        return [leaf for leaf in leaves if leaf.kind is not None and not leaf.is_number]


def reached_by(loops: Sequence[RecordedLoop]) -> Border | None:
    """The border of an enclosing loop that a backward pass reached, if there is one."""
    for loop in reversed(loops):
        for leaf in loop.leaves():
            if isinstance(leaf.border, Border) and leaf.border.asked:
                return leaf.border
    return None


def check_slices(slices: Sequence[tuple[Tensor, Tensor]], loop: str) -> None:
    """Refuse gradients in the body with respect to something that the scanned tensor depends on."""
    for row, x in slices:
        asked = row._node.asked if isinstance(row._node, Border) else ()
        if any(_leads_to([x._node], target, {}) for target in asked):
            raise CaptureGradientError(
                "the body asks for a gradient with respect to a value that the tensor depends on "
                "over which the loop iterates",
                op=loop,
                hint="cut that history, x.detach(), or ask for the gradient after the loop",
            )


def _escaping(leaves: Sequence[CarriedLeaf]) -> list[CarriedLeaf]:
    """Carries whose hidden history leads to a target of a backward pass in the body."""
    hidden: dict[Any, list[Any]] = {
        leaf.border: [node_of(leaf.out), leaf.began]
        for leaf in leaves
        if isinstance(leaf.border, (Border, CarriedNode))
    }
    found = []
    for leaf in leaves:
        border = leaf.border
        for target in border.asked if isinstance(border, Border) else ():
            other = target in hidden
            wanted = hidden[target][0] if other else target
            roots = [node_of(leaf.out)] if other else hidden[border]
            if _leads_to(roots, wanted, {} if other else hidden):
                found.append(leaf)
                break
    return found


def _leads_to(roots: Sequence[Any], target: Any, hidden: Mapping[Any, Sequence[Any]]) -> bool:
    """Whether histories lead to a target, also through what borders hide."""
    seen: set[Any] = {None}
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        if node is target and node is not None:
            return True
        if node not in seen:
            seen.add(node)
            waiting.extend(hidden.get(node, node.edges))
    return False


def _ends(nodes: Sequence[Any], borders: set[Any]) -> set[Any]:
    """Where these histories begin: at borders of a loop, and at leaves and others from outside."""
    found: set[Any] = set()
    seen: set[Any] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        before = [edge for edge in node.edges if edge is not None]
        if isinstance(node, Border):
            before += node.behind
        if node in borders or not before:
            found.add(node)
        else:
            waiting += before
    return found


def _leaf(start: Any, end: Any) -> CarriedLeaf:
    """An array that a node of a history keeps, as a leaf that the loop carries."""
    leaf = CarriedLeaf("", tensor_of(start, None))
    leaf.kind = value_type(leaf.initial)
    leaf.out = tensor_of(end, None)
    return leaf
