"""Samplers: in which order, and in which batches, the numbers of samples come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

import numpy as np

from weft.base.errors import RangeError
from weft.ops.creation import asarray
from weft.ops.random import Generator, permutation, randint, uniform
from weft.ops.search import searchsorted

T = TypeVar("T", covariant=True)


class Sampler(Generic[T]):
    """Base of samplers: override `__iter__`, and `__len__` where the number is known."""

    def __init__(self, data_source: Sized | None = None) -> None:
        pass

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__")


class SequentialSampler(Sampler[int]):
    """0, 1, 2, …"""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """All numbers in a random order; with `replacement`, `num_samples` draws that may repeat.

    >>> list(weft.data.RandomSampler(range(5), generator=weft.Generator(0)))
    [3, 4, 2, 1, 0]
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        if num_samples is not None and num_samples < 1:
            raise RangeError(f"num_samples must be at least 1: {num_samples}", op="RandomSampler")
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator

    @property
    def num_samples(self) -> int:
        """How many numbers come: by default as many as there are samples."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        count, wanted = len(self.data_source), self.num_samples
        if self.replacement:
            drawn: list[int] = randint(0, count, (wanted,), generator=self.generator).tolist()
            yield from drawn
            return
        while wanted > 0:  # more than there are: one order after the other
            order: list[int] = permutation(count, generator=self.generator).tolist()
            yield from order[:wanted]
            wanted -= count

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """Some numbers, in a random order."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        order = permutation(len(self.indices), generator=self.generator).tolist()
        return (self.indices[i] for i in order)

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """`num_samples` numbers, each with a probability in proportion to its weight.

    >>> sampler = weft.data.WeightedRandomSampler([0.0, 1.0, 0.0], 4)
    >>> list(sampler)
    [1, 1, 1, 1]
    """

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ) -> None:
        self.weights = np.asarray(asarray(weights).numpy(), dtype=np.float64)
        usable = int((self.weights > 0).sum())
        if self.weights.ndim != 1 or not np.isfinite(self.weights).all() or self.weights.min() < 0:
            raise RangeError(
                "weights are a list of finite numbers from 0 up", op="WeightedRandomSampler"
            )
        if num_samples < 1 or not usable or (not replacement and num_samples > usable):
            raise RangeError(
                f"num_samples {num_samples} of {usable} weights above 0",
                op="WeightedRandomSampler",
                hint="without replacement, there are at most as many as weights above 0",
            )
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        drawn = uniform(
            0.0,
            1.0,
            (self.num_samples if self.replacement else len(self.weights),),
            dtype="float64",
            generator=self.generator,
        )
        if self.replacement:
            ends = np.cumsum(self.weights) / self.weights.sum()
            last = int(np.flatnonzero(self.weights)[-1])  # 0.999… may lie beyond by rounding
            found = searchsorted(asarray(ends), drawn, side="right").tolist()
            return (min(number, last) for number in found)
        # The largest of u ** (1 / w): draws without replacement (Efraimidis and Spirakis, 2006).
        with np.errstate(divide="ignore"):
            keys = np.log(drawn.numpy()) / self.weights
        order = np.argsort(-keys, kind="stable")[: self.num_samples]
        return iter([int(number) for number in order])

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """The numbers of another sampler, in lists of `batch_size`.

    >>> list(weft.data.BatchSampler(range(5), 2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[Any], batch_size: int, drop_last: bool) -> None:
        if batch_size < 1:
            raise RangeError(f"batch_size must be at least 1: {batch_size}", op="BatchSampler")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[Any]]:
        batch: list[Any] = []
        for number in self.sampler:
            batch.append(number)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]  # a sampler without a length says so
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)
