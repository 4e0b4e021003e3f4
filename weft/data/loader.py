"""Batches out of a dataset, in order or shuffled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from weft.base.errors import DTypeError, RangeError
from weft.core.tensor import Tensor
from weft.data.dataset import Dataset
from weft.ops.creation import asarray
from weft.ops.random import Generator, permutation
from weft.ops.shape import stack


def collate(samples: Sequence[Any]) -> Any:
    """One batch of many samples: tensors are stacked, numbers become a tensor.

    Tuples, lists and dicts are put together part by part; strings and other things stay a list.

    >>> weft.data.collate([{"x": weft.asarray([1.0, 2.0]), "y": 0}, {"x": weft.zeros(2), "y": 1}])
    {'x': tensor([[1., 2.],
           [0., 0.]]), 'y': tensor([0, 1])}
    """
    first = samples[0]
    if isinstance(first, Tensor):
        return stack(list(samples))
    if isinstance(first, (np.ndarray, np.generic)):
        return asarray(np.stack(samples))
    if isinstance(first, (bool, int, float, complex)):
        return asarray(list(samples))
    if isinstance(first, dict):
        return {key: collate([sample[key] for sample in samples]) for key in first}
    if isinstance(first, (tuple, list)):
        lengths = {len(sample) for sample in samples}
        if len(lengths) > 1:
            raise DTypeError(
                f"samples of one batch have {sorted(lengths)} parts",
                op="collate",
                hint="bring them to one length, or give the loader a collate_fn of your own",
            )
        parts = [collate(part) for part in zip(*samples, strict=True)]
        if isinstance(first, list):
            return parts
        return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
    return list(samples)


class DataLoader:
    """Goes through a dataset in batches; each loop over it is one epoch.

    shuffle     in a new random order each time, drawn from `generator` or the default one
    drop_last   leave out the last batch where it would be smaller
    collate_fn  makes a batch of a list of samples; `weft.data.collate` unless another is given
    batch_size  None: samples one by one, as they are

    >>> data = weft.data.TensorDataset(weft.arange(5), weft.arange(5) * 10)
    >>> for x, y in weft.data.DataLoader(data, batch_size=2):
    ...     print(x.tolist(), y.tolist())
    [0, 1] [0, 10]
    [2, 3] [20, 30]
    [4] [40]
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int | None = 1,
        shuffle: bool = False,
        *,
        drop_last: bool = False,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        generator: Generator | None = None,
    ) -> None:
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise DTypeError(
                f"a dataset has a length and samples by number; {type(dataset).__name__} has not",
                op="DataLoader",
                hint="wrap tensors in weft.data.TensorDataset",
            )
        if batch_size is not None and batch_size < 1:
            raise RangeError(f"batch_size must be at least 1: {batch_size}", op="DataLoader")
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.collate_fn = collate_fn
        self.generator = generator

    def __len__(self) -> int:
        """The number of batches of an epoch."""
        count = len(self.dataset)
        if self.batch_size is None:
            return count
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        count = len(self.dataset)
        order = permutation(count, generator=self.generator) if self.shuffle else None
        if self.batch_size is None:
            numbers = range(count) if order is None else order.tolist()
            return (self.dataset[i] for i in numbers)
        size = self.batch_size
        pieces = [slice(i * size, min((i + 1) * size, count)) for i in range(len(self))]
        whole = getattr(self.dataset, "batch", None) if self.collate_fn is None else None
        if whole is not None:
            return (whole(piece if order is None else order[piece]) for piece in pieces)
        put_together = self.collate_fn or collate
        listed = range(count) if order is None else order.tolist()
        return (put_together([self.dataset[i] for i in listed[piece]]) for piece in pieces)
