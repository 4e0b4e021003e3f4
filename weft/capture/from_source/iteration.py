"""Python values that a recorded `for` loop may go over, as rows of the graph (`loop_rows`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from weft.base.errors import CaptureError
from weft.capture.from_source.dynamic_list import dynamic_list_of
from weft.core.bind import recorder
from weft.core.number import kind_of
from weft.core.tensor import Tensor
from weft.record.control.loop_rows import Along, Listed, LoopRows, Steps, numbers_in
from weft.record.control.nested import NestedRecorder, graph_recorder

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks

__all__ = ["unroll"]


class Unrolled:
    """The result of `weft.unroll`: Python always runs a loop over it."""

    def __init__(self, iterable: Any) -> None:
        self.iterable = iterable

    def __iter__(self) -> Iterator[Any]:
        return iter(self.iterable)


def unroll(iterable: Any) -> Any:
    """Unroll a `for` loop over this in a compiled function; eagerly it changes nothing.

    >>> [i for i in weft.unroll(range(3))]
    [0, 1, 2]
    """
    return iterable if recorder() is None else Unrolled(iterable)


#: Loops over fewer Python numbers than this are unrolled at once: their numbers may be sizes.
MANY_NUMBERS = 17


class IteratorRows(LoopRows):
    """The result of `zip`, `enumerate` or `reversed`, which can be gone through once.

    depth   how many branches and loop bodies of the graph were being recorded when it was made
    """

    def __init__(self, rows: LoopRows, depth: int) -> None:
        super().__init__(rows.streams, rows.form)
        self.depth = depth
        self._left: Iterator[Any] | None = None

    @property
    def started(self) -> bool:
        return self._left is not None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._left is None:
            self._left = super().__iter__()
        return next(self._left)

    def spend(self, whole: bool) -> None:
        """A loop of the graph has gone through it: through all of it, or who knows how far."""
        self._left = iter(()) if whole else _Unknown()


class _Unknown(Iterator[Any]):
    """What is left of an iterator that a loop of the graph may have left early."""

    def __next__(self) -> Any:
        raise CaptureError(
            "an iterator is used after a loop of the graph that may have left it early",
            hint="make a new one, or unroll the loop: weft.unroll(range(n))",
        )


def rows_of(hooks: Hooks, value: Any) -> LoopRows | None:
    """The streams of a loop over this value, if the loop can be part of a graph."""
    if isinstance(value, LoopRows):
        return None if isinstance(value, IteratorRows) and value.started else value
    dynamic = dynamic_list_of(value)
    if dynamic is not None and len(dynamic.kinds) == 1 and not dynamic.numbers[0]:
        if isinstance(graph_recorder(), NestedRecorder):
            return LoopRows([Listed(dynamic)], 0)
        count = dynamic.asked_length()
        return LoopRows([Along(dynamic.columns(count)[0]) if count else Steps(0, 0, 1)], 0)
    if isinstance(value, range):
        return LoopRows([Steps(value.start, value.stop, value.step)], 0)
    if isinstance(value, Tensor) and value.ndim:
        return LoopRows([Along(value)], 0)
    if type(value) in (list, tuple) and len(value) >= MANY_NUMBERS:
        return _numbers(hooks, value)
    return None


def _numbers(hooks: Hooks, value: Any) -> LoopRows | None:
    """A list of numbers, or of tuples of numbers."""
    first = value[0]
    pairs = type(first) is tuple
    if not pairs and kind_of(first) is None:
        return None
    listed = list(hooks.iter(value))
    if not pairs:
        found = numbers_in(listed)
        return None if found is None else LoopRows([found], 0)
    if not all(type(part) is tuple and len(part) == len(first) for part in listed):
        return None
    columns = [numbers_in(column) for column in zip(*map(hooks.iter, listed), strict=True)]
    known = [column for column in columns if column is not None]
    if not known or len(known) < len(columns):
        return None
    return LoopRows(known, tuple(range(len(known))))
