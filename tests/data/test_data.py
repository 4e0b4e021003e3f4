"""Datasets and batches."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest

import weft
import weft.data
from weft.data import DataLoader, Subset, TensorDataset, collate, random_split

X = weft.arange(20).reshape((10, 2))
Y = weft.arange(10) * 10


class Sample(NamedTuple):
    x: Any
    y: Any


def epochs(loader: DataLoader, count: int) -> list[list[Any]]:
    return [[batch[1].tolist() for batch in loader] for _ in range(count)]


def test_tensor_dataset() -> None:
    data = TensorDataset(X, Y)
    assert len(data) == 10
    x, y = data[3]
    assert (x.tolist(), y.item()) == ([6, 7], 30)
    assert data[-1][1].item() == 90
    assert [part.tolist() for part in data.batch(weft.asarray([2, 0]))] == [
        [[4, 5], [0, 1]],
        [20, 0],
    ]
    assert isinstance(data, weft.data.Dataset)


def test_batches_in_order() -> None:
    loader = DataLoader(TensorDataset(X, Y), batch_size=4)
    assert len(loader) == 3
    batches = list(loader)
    assert [x.shape for x, _ in batches] == [(4, 2), (4, 2), (2, 2)]
    assert weft.concat([y for _, y in batches]).tolist() == Y.tolist()


def test_drop_last() -> None:
    loader = DataLoader(TensorDataset(X, Y), batch_size=4, drop_last=True)
    assert len(loader) == len(list(loader)) == 2
    assert len(DataLoader(TensorDataset(X), batch_size=11, drop_last=True)) == 0
    assert list(DataLoader(TensorDataset(X), batch_size=11, drop_last=True)) == []


@pytest.mark.parametrize("dataset", [TensorDataset(X, Y), list(zip(X, Y.tolist(), strict=True))])
def test_shuffle_follows_the_generator(dataset: Any) -> None:
    def loader(seed: int) -> DataLoader:
        return DataLoader(dataset, 3, shuffle=True, generator=weft.Generator(seed))

    first, second = epochs(loader(0), 2)
    assert first != second  # a new order each epoch
    for order in (first, second):
        assert sorted(itertools.chain(*order)) == Y.tolist()
    assert epochs(loader(0), 2) == [first, second]
    assert epochs(loader(1), 1) != [first]


def test_shuffle_keeps_samples_together() -> None:
    for x, y in DataLoader(TensorDataset(X, Y), 3, shuffle=True):
        assert (x[:, 0] * 5).tolist() == y.tolist()


def test_the_default_generator_is_seeded() -> None:
    orders = []
    for _ in range(2):
        weft.manual_seed(3)
        orders.append(epochs(DataLoader(TensorDataset(X, Y), 5, shuffle=True), 1))
    assert orders[0] == orders[1]


def test_a_batch_is_nobody_else_s() -> None:
    data = TensorDataset(weft.zeros(4))
    (batch,) = next(iter(DataLoader(data, 4)))
    batch += 1
    assert data.tensors[0].tolist() == [0, 0, 0, 0]


def test_samples_one_by_one() -> None:
    data = ["a", "b", "c"]
    assert list(DataLoader(data, batch_size=None)) == data
    shuffled = DataLoader(data, None, shuffle=True, generator=weft.Generator(0))
    assert sorted(shuffled) == data
    assert len(shuffled) == 3


def test_collate_fn() -> None:
    loader = DataLoader(TensorDataset(X, Y), 5, collate_fn=len)
    assert list(loader) == [5, 5]


@pytest.mark.parametrize(
    ("samples", "want"),
    [
        ([1, 2], weft.asarray([1, 2])),
        ([1.5, 2.5], weft.asarray([1.5, 2.5])),
        ([True, False], weft.asarray([True, False])),
        ([np.float64(1), np.float64(2)], weft.asarray(np.array([1.0, 2.0]))),
        ([np.ones(2, np.int8), np.zeros(2, np.int8)], weft.asarray([[1, 1], [0, 0]], dtype="int8")),
        ([weft.ones(2), weft.zeros(2)], weft.asarray([[1.0, 1.0], [0.0, 0.0]])),
    ],
)
def test_collate_makes_tensors(samples: list[Any], want: Any) -> None:
    found = collate(samples)
    assert found.dtype is want.dtype
    assert found.tolist() == want.tolist()


def test_collate_goes_into_structures() -> None:
    samples = [{"a": (weft.ones(2) * i, [i, "s"]), "b": Sample(i, -i)} for i in range(3)]
    found = collate(samples)
    assert found["a"][0].shape == (3, 2)
    assert found["a"][1][0].tolist() == [0, 1, 2]
    assert found["a"][1][1] == ["s"] * 3
    assert isinstance(found["b"], Sample)
    assert found["b"].y.tolist() == [0, -1, -2]


def test_random_split() -> None:
    data = TensorDataset(X, Y)
    parts = random_split(data, [6, 4], weft.Generator(0))
    assert [len(part) for part in parts] == [6, 4]
    kept = [part[i][1].item() for part in parts for i in range(len(part))]
    assert sorted(kept) == Y.tolist()
    assert kept != Y.tolist()
    again = random_split(data, [6, 4], weft.Generator(0))
    assert [part.indices for part in again] == [part.indices for part in parts]
    batches = list(DataLoader(parts[0], 4))
    assert [x.shape for x, _ in batches] == [(4, 2), (2, 2)]
    assert [i for _, y in batches for i in y.tolist()] == kept[:6]
    nested = Subset(parts[0], [5, 0])
    assert next(iter(DataLoader(nested, 2)))[1].tolist() == [kept[5], kept[0]]
    shuffled = DataLoader(parts[0], 4, shuffle=True)
    assert sorted(i for _, y in shuffled for i in y.tolist()) == sorted(kept[:6])


@pytest.mark.parametrize(
    ("lengths", "want"),
    [
        ([0.8, 0.2], [8, 2]),
        ([1 / 3, 1 / 3, 1 / 3], [4, 3, 3]),
        ([0.55, 0.45], [6, 4]),
        ([10], [10]),
    ],
)
def test_lengths_of_a_split(lengths: list[float], want: list[int]) -> None:
    assert [len(part) for part in random_split(range(10), lengths)] == want


def test_subset() -> None:
    part = Subset("abcdef", [3, 1])
    assert (len(part), part[0], part[1]) == (2, "d", "b")


@pytest.mark.parametrize(
    ("action", "kind", "message"),
    [
        (lambda: TensorDataset(), TypeError, "at least one tensor"),
        (lambda: TensorDataset([1, 2]), TypeError, "not list"),
        (lambda: TensorDataset(X, weft.ones(3)), ValueError, "length of their first axis"),
        (lambda: TensorDataset(weft.asarray(1.0)), ValueError, "length of their first axis"),
        (lambda: DataLoader(iter([1])), TypeError, "list_iterator has not"),
        (lambda: DataLoader([1], 0), ValueError, "at least 1"),
        (lambda: random_split([1, 2], [1, 2]), ValueError, "add up to 3"),
        (lambda: random_split([1, 2], [3, -1]), ValueError, "negative"),
        (lambda: random_split([1, 2], [1.5, 0.5]), ValueError, "add up"),
        (lambda: collate([(1, 2), (1,)]), TypeError, r"\[1, 2\] parts"),
    ],
)
def test_errors(action: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        action()
