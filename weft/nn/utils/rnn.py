"""Sequences of different lengths: padded to one length, or packed without padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.errors import RangeError, ShapeError
from weft.base.pytree import register_pytree
from weft.core.tensor import Tensor, labelled, type_of
from weft.nn.functional.padding import fitting
from weft.ops.creation import asarray, full
from weft.ops.index import take
from weft.ops.shape import concat, reshape, stack, swapaxes

Array = np.ndarray[Any, Any]


class PackedSequence:
    """Sequences without padding: all first steps, then all second steps, and so on.

    data             the steps, one after the other
    batch_sizes      how many sequences have a first, a second, … step
    sorted_indices   the sequences' numbers from the longest to the shortest; None: as given
    unsorted_indices the way back

    `pack_padded_sequence` and `pack_sequence` make one; RNN, LSTM and GRU take it and give one.
    """

    def __init__(
        self,
        data: Tensor,
        batch_sizes: Any = None,
        sorted_indices: Any = None,
        unsorted_indices: Any = None,
    ) -> None:
        self.data = data
        self.sizes = _numbers(batch_sizes)
        order = None if sorted_indices is None else _numbers(sorted_indices)
        if order is None and unsorted_indices is not None:
            order = _inverse(_numbers(unsorted_indices))
        self.order = order

    @property
    def batch_sizes(self) -> Tensor:
        """How many sequences have a first, a second, … step."""
        return _indices(self.sizes, self.data)

    @property
    def sorted_indices(self) -> Tensor | None:
        """The sequences' numbers from the longest to the shortest."""
        return None if self.order is None else _indices(self.order, self.data)

    @property
    def unsorted_indices(self) -> Tensor | None:
        """Where each sequence stands in that order."""
        return None if self.order is None else _indices(_inverse(self.order), self.data)

    def lengths(self) -> Array:
        """The length of each sequence, as they were given."""
        count = self.sizes[0] if self.sizes else 0
        found = np.array(
            [sum(size > i for size in self.sizes) for i in range(count)], dtype=np.int64
        )
        return found if self.order is None else found[list(_inverse(self.order))]

    def with_data(self, data: Tensor) -> PackedSequence:
        """Other values for the same steps."""
        return PackedSequence(data, self.sizes, self.order)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The steps in another dtype or on another device."""
        return self.with_data(self.data.to(*args, **kwargs))

    def __repr__(self) -> str:
        return f"PackedSequence(data={self.data!r}, batch_sizes={list(self.sizes)})"


register_pytree(
    PackedSequence,
    lambda packed: ([packed.data], (packed.sizes, packed.order)),
    lambda what, parts: PackedSequence(parts[0], *what),
)


def _numbers(value: Any) -> tuple[int, ...]:
    listed = value.tolist() if isinstance(value, (Tensor, np.ndarray)) else value
    return tuple(int(number) for number in listed)


def _indices(numbers: Any, data: Tensor) -> Tensor:
    """Integers that belong to a packed sequence, as a tensor of the class of its data."""
    made = asarray(np.array(numbers, dtype=np.int64))
    return labelled(made, data._result_class)


def _inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    back = np.empty(len(order), dtype=np.int64)
    back[list(order)] = np.arange(len(order))
    return tuple(int(number) for number in back)


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack (steps, batch, …) of which only the first `lengths` steps of each sequence are real.

    With `enforce_sorted`, lengths must not increase; otherwise they are sorted here.

    >>> x = weft.asarray([[1, 2, 3], [4, 0, 0]])
    >>> packed = weft.nn.utils.rnn.pack_padded_sequence(x, [3, 1], batch_first=True)
    >>> packed.data.tolist(), packed.batch_sizes.tolist()
    ([1, 4, 2, 3], [2, 1, 1])
    """
    x = swapaxes(input, 0, 1) if batch_first else input
    counts = np.array(_numbers(lengths), dtype=np.int64)
    steps, batch = x.shape[:2]
    if counts.shape != (batch,):
        raise ShapeError(
            f"{counts.size} lengths for a batch of {batch}",
            op="pack_padded_sequence",
            operands=[type_of(input)],
        )
    if not batch or counts.min() < 1 or counts.max() > steps:
        raise RangeError(
            f"lengths {counts.tolist()} are not in 1 … {steps}", op="pack_padded_sequence"
        )
    order = None if enforce_sorted else np.argsort(-counts, kind="stable")
    if order is None and (np.diff(counts) > 0).any():
        raise RangeError(
            f"lengths {counts.tolist()} are not sorted from the longest on",
            op="pack_padded_sequence",
            hint="say enforce_sorted=False",
        )
    rows = np.arange(batch) if order is None else order
    sizes = [int((counts > t).sum()) for t in range(int(counts.max()))]
    places = np.concatenate([t * batch + rows[:size] for t, size in enumerate(sizes)])
    flat = reshape(x, (steps * batch, *x.shape[2:]))
    data = take(flat, asarray(places, device=x.device), axis=0)
    return PackedSequence(data, sizes, None if order is None else _numbers(order))


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The sequences padded to one length, and their lengths."""
    data, sizes = sequence.data, sequence.sizes
    steps = len(sizes) if total_length is None else total_length
    if steps < len(sizes):
        raise RangeError(
            f"total_length {steps} is less than the longest sequence, {len(sizes)}",
            op="pad_packed_sequence",
        )
    batch = sizes[0]
    rows = np.arange(batch) if sequence.order is None else np.array(sequence.order)
    places = np.full((steps, batch), data.shape[0], dtype=np.int64)  # the row of padding
    start = 0
    for t, size in enumerate(sizes):
        places[t, rows[:size]] = np.arange(start, start + size)
        start += size
    value = fitting(padding_value, data)
    padding = full((1, *data.shape[1:]), value, dtype=data.dtype, device=data.device)
    numbers = asarray(places.reshape(-1), device=data.device)
    out = reshape(take(concat([data, padding]), numbers, axis=0), (steps, batch, *data.shape[1:]))
    return swapaxes(out, 0, 1) if batch_first else out, _indices(sequence.lengths(), data)


def pad_sequence(
    sequences: Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """A list of sequences (length, …) as one tensor, padded to the longest.

    >>> rows = [weft.asarray([1, 2, 3]), weft.asarray([4])]
    >>> weft.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    tensor([[1, 2, 3],
            [4, 0, 0]])
    """
    if padding_side not in ("right", "left"):
        raise RangeError(
            f"padding_side is 'right' or 'left', not {padding_side!r}", op="pad_sequence"
        )
    given = list(sequences)
    if not given:
        raise ShapeError("there are no sequences", op="pad_sequence")
    longest = max(x.shape[0] for x in given)
    padded = []
    for x in given:
        if x.shape[1:] != given[0].shape[1:]:
            raise ShapeError(
                "sequences differ in more than their length",
                op="pad_sequence",
                operands=[type_of(given[0]), type_of(x)],
            )
        missing = longest - x.shape[0]
        if missing:
            shape = (missing, *x.shape[1:])
            fill = full(shape, fitting(padding_value, x), dtype=x.dtype, device=x.device)
            x = concat([fill, x] if padding_side == "left" else [x, fill])
        padded.append(x)
    return stack(padded, axis=0 if batch_first else 1)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Any, batch_first: bool = False
) -> list[Tensor]:
    """The sequences of a padded tensor as a list."""
    x = padded_sequences if batch_first else swapaxes(padded_sequences, 0, 1)
    return [x[i, :length] for i, length in enumerate(_numbers(lengths))]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack a list of sequences (length, …)."""
    lengths = [x.shape[0] for x in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences of a packed one as a list."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
