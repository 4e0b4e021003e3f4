"""What a `for` loop of a graph goes over: ranges, rows of tensors, lists of the graph, several of
those in step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from weft.base import dtypes
from weft.base.dim_algebra import Dim, dim_max
from weft.base.dims import ceil_div
from weft.base.errors import CaptureError
from weft.core.number import HELD_AS, Number, as_held, kind_of
from weft.core.operands import cast
from weft.core.tensor import Tensor, type_of
from weft.ir.types import TensorType
from weft.ops.creation import arange, asarray
from weft.ops.elementwise import floor_divide, maximum
from weft.ops.shape import flip, reshape
from weft.record.control.graph_list import GraphList
from weft.record.control.nested import known_number, size_number


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

    def __init__(self, items: GraphList, turned: bool = False) -> None:
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


def zipped(parts: Sequence[LoopRows]) -> LoopRows:
    streams: list[Stream] = []
    forms: list[Any] = []
    for part in parts:
        forms.append(_shifted(part.form, len(streams)))
        streams += part.streams
    return LoopRows(streams, tuple(forms))


def _shifted(form: Any, by: int) -> Any:
    return tuple(_shifted(f, by) for f in form) if isinstance(form, tuple) else form + by


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
