"""Datasets that are read in order, and datasets made of others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any

from weft.base.errors import DTypeError, ShapeError
from weft.data.dataset import Dataset


class IterableDataset:
    """Samples that can only be read one after the other: override `__iter__`.

    With `num_workers`, each worker process reads all of its own copy. To share the work, ask
    `weft.data.get_worker_info()` in `__iter__` which part is this worker's.

    >>> class Lines(weft.data.IterableDataset):
    ...     def __iter__(self):
    ...         return iter(["a", "b", "c"])
    >>> list(weft.data.DataLoader(Lines(), batch_size=2))
    [['a', 'b'], ['c']]
    """

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__")

    def __add__(self, other: Any) -> ChainDataset:
        return ChainDataset([self, other])


class ChainDataset(IterableDataset):
    """One dataset that is read in order after the other."""

    def __init__(self, datasets: Iterable[IterableDataset]) -> None:
        self.datasets = list(datasets)

    def __iter__(self) -> Iterator[Any]:
        for dataset in self.datasets:
            yield from dataset

    def __len__(self) -> int:
        sizes: list[Any] = self.datasets  # those without a length say so
        return sum(len(dataset) for dataset in sizes)


class ConcatDataset:
    """The samples of several datasets, one dataset after the other.

    >>> both = weft.data.ConcatDataset(["ab", "cde"])
    >>> len(both), both[3], both[-1]
    (5, 'd', 'e')
    """

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ShapeError("there are no datasets to put together", op="ConcatDataset")
        for dataset in self.datasets:
            if isinstance(dataset, IterableDataset):
                raise DTypeError(
                    f"{type(dataset).__name__} is only read in order",
                    op="ConcatDataset",
                    hint="use ChainDataset",
                )
        self.cumulative_sizes = list(accumulate(len(dataset) for dataset in self.datasets))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int, /) -> Any:
        size = len(self)
        if not -size <= index < size:
            raise IndexError(f"there is no sample {index} of {size}")
        index %= size
        which = bisect_right(self.cumulative_sizes, index)
        before = self.cumulative_sizes[which - 1] if which else 0
        return self.datasets[which][index - before]


class StackDataset:
    """Datasets side by side: sample i is the tuple, or the dict, of their i-th samples.

    >>> pairs = weft.data.StackDataset("abc", [1, 2, 3])
    >>> pairs[1], weft.data.StackDataset(letter="abc")[0]
    (('b', 2), {'letter': 'a'})
    """

    def __init__(self, *datasets: Dataset, **named: Dataset) -> None:
        if bool(datasets) == bool(named):
            raise DTypeError("give datasets, or named datasets", op="StackDataset")
        self.datasets: Any = datasets or named
        lengths = {len(dataset) for dataset in (*datasets, *named.values())}
        if len(lengths) > 1:
            raise ShapeError(f"datasets of lengths {sorted(lengths)}", op="StackDataset")
        self._length = lengths.pop()

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int, /) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)
