"""Iterables of recorded `for` loops: ranges, rows of tensors, dynamic lists, zips of those."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from weft.base import dtypes
from weft.base.dim_algebra import Dim, dim_max
from weft.base.dims import ceil_div
from weft.base.errors import CaptureError
from weft.capture.from_source.dynamic_list import DynamicList, dynamic_list_of
from weft.core.bind import recorder
from weft.core.number import HELD_AS, Number, as_held, kind_of
from weft.core.operands import cast
from weft.core.tensor import Tensor, type_of
from weft.ir.types import TensorType
from weft.ops.creation import arange, asarray
from weft.ops.elementwise import floor_divide, maximum
from weft.ops.shape import flip, reshape
from weft.record.control.nested import (
    NestedRecorder,
    graph_recorder,
    known_number,
    size_number,
)

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


class Stream:
    """One sequence that a loop iterates over."""

    count: Any

    def tensor(self) -> Tensor:
        """All items as one tensor, along its first axis."""
        raise NotImplementedError

    def at(self, index: Any) -> Any:
        raise NotImplementedError

    def as_item(self, part: Tensor) -> Any:
        return part


class Steps(Stream):
    """A range, whose bounds may be tensors."""

    def __init__(self, start: Any, stop: Any, step: Any) -> None:
        self.start, self.stop, self.step = start, stop, step
        if all(isinstance(x, int) for x in (start, stop, step)):
            self.count: Any = len(range(start, stop, step))
        elif all(isinstance(x, (int, Dim)) for x in (start, stop, step)):
            self.count = dim_max(
                ceil_div(*(stop - start, step) if step > 0 else (start - stop, -step)), 0
            )
        else:
            self.count = self._length()

    def _length(self) -> Number:
        """max(0, ceil((stop - start) / step))"""
        span = _integer(self.stop) - _integer(self.start)
        step = _integer(self.step)
        return known_number(maximum(-floor_divide(-span, step), as_held(0, dtypes.int64)))

    def tensor(self) -> Tensor:
        return arange(self.start, self.stop, self.step, dtype=dtypes.int64)

    def at(self, index: Any) -> Any:
        start = self.start if isinstance(self.start, int) else known_number(_integer(self.start))
        step = self.step if isinstance(self.step, int) else known_number(_integer(self.step))
        if type(step) is int and step == 1:
            return index if type(start) is int and start == 0 else start + index
        return start + index * step

    def as_item(self, part: Tensor) -> Any:
        item = known_number(part)
        if all(isinstance(x, int) for x in (self.start, self.stop)):
            item.bound = max(abs(self.start), abs(self.stop))
        return item


class Along(Stream):
    """The rows of a tensor; each is read in its own iteration, as the loop may write to them."""

    def __init__(self, rows: Tensor, turned: bool = False, skipped: int = 0) -> None:
        self.rows = rows
        self.turned = turned  # from the last to the first
        self.skipped = skipped  # how many iterations there were before
        self.count = rows.shape[0] - skipped

    def tensor(self) -> Tensor:
        rows = flip(self.rows, axis=0) if self.turned else self.rows
        return rows[self.skipped :] if self.skipped else rows

    def at(self, index: Any) -> Any:
        return self.rows[self.count - 1 - index if self.turned else index + self.skipped]


class Listed(Stream):
    """The elements of a list whose length the graph decides."""

    def __init__(self, items: DynamicList, turned: bool = False) -> None:
        self.items = items
        self.turned = turned
        self.count = items.length()

    def tensor(self) -> Tensor:
        rows = self.items.tensors()[0]
        return flip(rows, axis=0) if self.turned else rows

    def at(self, index: Any) -> Any:
        return self.items.item(self.count - 1 - index if self.turned else index)


def _integer(value: Any) -> Tensor:
    if isinstance(value, Number) or not isinstance(value, Tensor):
        return as_held(value, HELD_AS["int"])
    one = value if value.shape == () else reshape(value, ())
    return cast(one, dtypes.int64)


#: Loops over fewer Python numbers than this are unrolled at once: their numbers may be sizes.
MANY_NUMBERS = 17


class Numbers(Stream):
    """Python numbers of one kind that are all in one list."""

    def __init__(self, values: Sequence[Any], turned: bool = False) -> None:
        self.values = values
        self.turned = turned
        self.count = len(values)

    def tensor(self) -> Tensor:
        kind = kind_of(self.values[0])
        assert kind is not None
        made = asarray(list(self.values), dtype=HELD_AS[kind])
        return flip(made, axis=0) if self.turned else made

    def at(self, index: Any) -> Any:
        if isinstance(index, int):
            return self.values[self.count - 1 - index if self.turned else index]
        return known_number(self.tensor()[index])

    def as_item(self, part: Tensor) -> Any:
        return known_number(part)


def numbers_in(values: Any) -> Numbers | None:
    """The numbers in a list, if it holds nothing else, and all of one kind."""
    if type(values) not in (list, tuple) or not values:
        return None
    kinds = {kind_of(value) if value.__class__ is not bool else None for value in values}
    if kinds == {"float"}:
        return Numbers(values)
    if kinds == {"int"} and all(_fits(value) for value in values):
        return Numbers(values)
    return None


def _fits(value: Any) -> bool:
    return value.__class__ is Number or -(1 << 62) <= value <= 1 << 62


class LoopRows:
    """Several streams in step, and how to build an item from one part of each."""

    def __init__(self, streams: Sequence[Stream], form: Any) -> None:
        self.streams = list(streams)
        self.form = form  # the number of a stream, or a tuple of forms
        counts = [stream.count for stream in self.streams]
        known = [count for count in counts if isinstance(count, (int, Dim))]
        self.count: Any = min(known) if len(known) == len(counts) else _least(counts)

    @property
    def is_short(self) -> bool:
        return isinstance(self.count, (int, Dim)) and self.count < 2

    def item(self, parts: Sequence[Any]) -> Any:
        return _formed(self.form, parts)

    def at(self, index: Any) -> Any:
        return self.item([stream.at(index) for stream in self.streams])

    def __iter__(self) -> Iterator[Any]:
        for index in range(int(self.count)):
            yield self.at(index)

    def tensors(self) -> list[Tensor]:
        made = [stream.tensor() for stream in self.streams]
        return [x if x.shape[0] == self.count else x[: self.count] for x in made]

    def live_tensors(self) -> list[Tensor]:
        """The tensors whose rows are read during the loop."""
        return [stream.rows for stream in self.streams if isinstance(stream, Along)]

    def slice_kinds(self, tensors: Sequence[Tensor]) -> list[TensorType]:
        return [type_of(x).like(shape=x.shape[1:]) for x in tensors]

    def count_number(self) -> Any:
        return size_number(self.count) if isinstance(self.count, Dim) else self.count

    def reversed(self) -> LoopRows:
        return LoopRows([_turned(stream) for stream in self.streams], self.form)

    def rest(self) -> LoopRows:
        """All but the first item, of at least two."""
        found = LoopRows([_without_first(stream) for stream in self.streams], self.form)
        found.count = self.count - 1
        return found


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


def _formed(form: Any, parts: Sequence[Any]) -> Any:
    return tuple(_formed(f, parts) for f in form) if isinstance(form, tuple) else parts[form]


def _least(counts: Sequence[Any]) -> Any:
    least = counts[0]
    for count in counts[1:]:
        a, b = _integer(least), _integer(count)
        least = known_number(-maximum(-a, -b))
    return least


def _turned(stream: Stream) -> Stream:
    if isinstance(stream, Along):
        assert not stream.skipped
        return Along(stream.rows, not stream.turned)
    if isinstance(stream, Listed):
        return Listed(stream.items, not stream.turned)
    if isinstance(stream, Numbers):
        return Numbers(stream.values, not stream.turned)
    assert isinstance(stream, Steps)
    last = stream.at(stream.count - 1)
    return Steps(last, stream.start - stream.step, -stream.step)


def _without_first(stream: Stream) -> Stream:
    if isinstance(stream, Along):
        return Along(stream.rows, stream.turned, stream.skipped + 1)
    if isinstance(stream, Numbers):
        return Numbers(stream.values[:-1] if stream.turned else stream.values[1:], stream.turned)
    if isinstance(stream, Steps):
        return Steps(stream.start + stream.step, stream.stop, stream.step)
    raise CaptureError("the first item of such a loop cannot be taken from the others", op="for")


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


def zipped(parts: Sequence[LoopRows]) -> LoopRows:
    streams: list[Stream] = []
    forms: list[Any] = []
    for part in parts:
        forms.append(_shifted(part.form, len(streams)))
        streams += part.streams
    return LoopRows(streams, tuple(forms))


def _shifted(form: Any, by: int) -> Any:
    return tuple(_shifted(f, by) for f in form) if isinstance(form, tuple) else form + by
