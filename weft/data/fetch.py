"""How the samples of a batch are got, in the loader's own process or in a worker's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from weft.data.collate import collate, default_convert
from weft.data.parts import Part, part_of
from weft.ops.creation import asarray

#: One batch as its numbers: a slice, a list of them, or one number where nothing is put together.
Piece = Any


class Ended(Exception):
    """A dataset that is read in order has no more samples."""


@dataclass(frozen=True)
class Numbered:
    """Batches of a dataset whose samples have numbers."""

    dataset: Any
    collate_fn: Callable[[Any], Any] | None
    batched: bool

    def open(self) -> Callable[[Piece], Any]:
        """What gets the batch of a piece."""
        if not self.batched:
            convert = self.collate_fn or default_convert
            return lambda number: convert(self.dataset[number])
        whole = getattr(self.dataset, "batch", None) if self.collate_fn is None else None
        if whole is not None:
            return lambda piece: whole(piece if isinstance(piece, slice) else asarray(piece))
        put_together = self.collate_fn or collate

        def get(piece: Piece) -> Any:
            if isinstance(piece, slice):
                piece = range(piece.start, piece.stop)
            return put_together([self.dataset[int(number)] for number in piece])

        return get


@dataclass(frozen=True)
class InOrder:
    """Batches of a dataset that is only read in order. A piece has no numbers."""

    dataset: Any
    collate_fn: Callable[[Any], Any] | None
    batch_size: int | None
    drop_last: bool
    part: Part | None = None
    uneven: str | None = None

    def open(self) -> Callable[[Piece], Any]:
        """What reads the next batch, or raises Ended."""
        samples = iter(self.dataset)
        return lambda _piece: self._next(samples)

    def _next(self, samples: Iterator[Any]) -> Any:
        if self.batch_size is None:
            for sample in samples:
                return (self.collate_fn or default_convert)(sample)
            raise Ended
        batch = []
        for sample in samples:
            batch.append(sample)
            if len(batch) == self.batch_size:
                break
        if not batch or (self.drop_last and len(batch) < self.batch_size):
            raise Ended
        if self.part is not None:
            batch = part_of(batch, self.part, self.uneven)
            if not batch:
                raise Ended
        return (self.collate_fn or collate)(batch)
