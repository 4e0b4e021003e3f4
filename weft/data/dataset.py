"""What is trained on: samples that can be asked for by number."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from weft.base.errors import DTypeError, RangeError, ShapeError
from weft.core.tensor import Tensor
from weft.ops.creation import asarray
from weft.ops.index import take
from weft.ops.random import Generator, permutation


@runtime_checkable
class Dataset(Protocol):
    """Anything with a length and samples by number, from 0 up. A list is one.

    A dataset may also have `batch(indices)`, which gives several samples at once, already put
    together: `indices` is a slice or a tensor of numbers. Then nothing is asked for one by one.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class TensorDataset:
    """Tensors side by side: sample i is the tuple of their i-th parts.

    >>> data = weft.data.TensorDataset(weft.arange(6).reshape((3, 2)), weft.arange(3))
    >>> len(data), data[1]
    (3, (tensor([2, 3]), tensor(1)))
    """

    def __init__(self, *tensors: Tensor) -> None:
        if not tensors:
            raise DTypeError("a dataset needs at least one tensor", op="TensorDataset")
        for tensor in tensors:
            if not isinstance(tensor, Tensor):
                raise DTypeError(
                    f"a tensor is needed, not {type(tensor).__name__}",
                    op="TensorDataset",
                    hint="make one of it with weft.asarray",
                )
        lengths = [tensor.shape[0] if tensor.ndim else None for tensor in tensors]
        if None in lengths or len(set(lengths)) > 1:
            raise ShapeError(
                "the tensors differ in the length of their first axis",
                op="TensorDataset",
                operands=[tensor.type for tensor in tensors],
            )
        self.tensors = tensors

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitem__(self, index: Any, /) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def batch(self, indices: slice | Tensor) -> tuple[Tensor, ...]:
        """Several samples at once."""
        if isinstance(indices, slice):
            return tuple(tensor[indices] for tensor in self.tensors)
        return tuple(take(tensor, indices, axis=0) for tensor in self.tensors)


class Subset:
    """Some samples of another dataset, in the order of `indices`."""

    def __init__(self, dataset: Dataset, indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = list(indices)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int, /) -> Any:
        return self.dataset[self.indices[index]]

    @property
    def batch(self) -> Callable[[slice | Tensor], Any] | None:
        """Several samples at once, where the dataset has them."""
        whole = getattr(self.dataset, "batch", None)
        if whole is None:
            return None
        numbers = asarray(self.indices, dtype="int64")
        return lambda indices: whole(numbers[indices])


def random_split(
    dataset: Dataset, lengths: Sequence[float], generator: Generator | None = None
) -> list[Subset]:
    """Parts of a dataset that share no sample, chosen at random.

    `lengths` are numbers of samples that add up to all of them, or fractions that add up to 1
    (what is left over by rounding down goes to the first parts, one each).

    >>> parts = weft.data.random_split("abcde", [0.6, 0.4], weft.Generator(0))
    >>> [list(part) for part in parts]
    [['d', 'e', 'c'], ['b', 'a']]
    """
    count = len(dataset)
    sizes = _sizes(lengths, count)
    order = permutation(count, generator=generator).tolist()
    ends = list(itertools.accumulate(sizes))
    return [Subset(dataset, order[end - size : end]) for size, end in zip(sizes, ends, strict=True)]


def _sizes(lengths: Sequence[float], count: int) -> list[int]:
    if any(length < 0 for length in lengths):
        raise RangeError(f"lengths must not be negative: {list(lengths)}", op="random_split")
    if math.isclose(sum(lengths), 1) and any(length != int(length) for length in lengths):
        sizes = [math.floor(count * length) for length in lengths]
        for i in range(count - sum(sizes)):
            sizes[i % len(sizes)] += 1
        return sizes
    if sum(lengths) != count or any(length != int(length) for length in lengths):
        raise RangeError(
            f"lengths {list(lengths)} add up to {sum(lengths)}; the dataset has {count} samples",
            op="random_split",
            hint="give whole numbers that add up to it, or fractions that add up to 1",
        )
    return [int(length) for length in lengths]
