"""DataLoaders on several ranks: each reads its part of the batches of one process."""

from __future__ import annotations

import random
from typing import Any

import pytest

import weft
from weft import distributed
from weft.data import BatchSampler, DataLoader, Dataset, IterableDataset, Part, RandomSampler
from weft.errors import DistributedError, RangeError

X = weft.arange(22)


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        return iter(range(22))


def _stream(**given: Any) -> DataLoader:
    return DataLoader(Stream(), batch_size=6, **given)


def _shuffled(**given: Any) -> DataLoader:
    return DataLoader(X, batch_size=6, shuffle=True, generator=weft.Generator(3), **given)


def _sampled(**given: Any) -> DataLoader:
    sampler = RandomSampler(range(22), generator=weft.Generator(5))
    return DataLoader(X, batch_size=6, sampler=sampler, **given)


def _batches(**given: Any) -> DataLoader:
    return DataLoader(X, batch_sampler=BatchSampler(range(22), 6, drop_last=False), **given)


MAKERS = {
    "in order": lambda **given: DataLoader(X, batch_size=6, **given),
    "shuffled": _shuffled,
    "sampler": _sampled,
    "batch sampler": _batches,
    "stream": _stream,
    "workers": lambda **given: _shuffled(num_workers=2, **given),
}


def read(loader: DataLoader, epochs: int = 2) -> list[list[int]]:
    return [batch.tolist() for _ in range(epochs) for batch in loader]


def joined(parts: list[list[list[int]]]) -> list[list[int]]:
    """The batches of all ranks together."""
    return [[x for batch in batches for x in batch] for batches in zip(*parts, strict=True)]


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("uneven", ["pad", "drop"])
def test_parts_are_those_of_one_process(name: str, ranks: int, uneven: str) -> None:
    """Batches of 6, which four ranks do not divide, and a last one of 4, which three do not."""
    make = MAKERS[name]
    parts = [read(make(part=Part(place, ranks), uneven=uneven)) for place in range(ranks)]
    found = joined(parts)
    wanted = [
        batch + batch[: -len(batch) % ranks]
        if uneven == "pad"
        else batch[: len(batch) // ranks * ranks]
        for batch in read(make())
    ]
    assert found == wanted
    if name != "stream" and name != "batch sampler":
        assert len(make(part=Part(0, ranks), uneven=uneven)) == len(wanted) // 2


def test_a_last_batch_of_fewer_samples_than_ranks() -> None:
    loaders = [DataLoader(X, batch_size=20, part=Part(p, 4), uneven="drop") for p in range(4)]
    assert [len(loader) for loader in loaders] == [1] * 4
    assert [len(read(loader, 1)) for loader in loaders] == [1] * 4
    padded = [read(DataLoader(X, 20, part=Part(p, 4), uneven="pad"), 1)[-1] for p in range(4)]
    assert padded == [[20], [21], [20], [21]]


def test_on_ranks_of_a_mesh() -> None:
    """Ranks along "model" read the same samples."""

    def loop() -> list[list[int]]:
        with distributed.Mesh({"data": 2, "model": 2}):
            return read(_shuffled(part=distributed.part("data"), drop_last=True), 1)

    first, second, third, fourth = distributed.run_virtual(4, loop)
    assert (first, third) == (second, fourth)
    whole = read(_shuffled(drop_last=True), 1)
    assert [a + b for a, b in zip(first, third, strict=True)] == whole


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_middle_of_an_epoch_on_another_number_of_ranks(ranks: int) -> None:
    state: Any = None

    def begun() -> Any:
        loader = _shuffled(part=distributed.part(), uneven="pad")
        loop = iter(loader)
        next(loop), next(loop)
        return loader.state_dict()

    def gone_on() -> list[list[int]]:
        loader = _shuffled(part=distributed.part(), uneven="pad")
        loader.load_state_dict(state)
        return read(loader, 1)

    state = distributed.run_virtual(ranks, begun)[0]
    parts = distributed.run_virtual(3 - ranks, gone_on)
    rest = joined(parts)
    assert rest == read(_shuffled(), 1)[2:]


class Noisy(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, number: int) -> Any:
        return weft.tensor([float(number), random.random()])


def test_workers_of_ranks_draw_other_random_numbers() -> None:
    weft.manual_seed(1)
    loaders = [DataLoader(Noisy(), 4, num_workers=1, part=Part(p, 2)) for p in range(2)]
    drawn = {row[1] for loader in loaders for batch in loader for row in batch.tolist()}
    assert len(drawn) == 8


def test_other_orders_are_noticed() -> None:
    def loop() -> None:
        generator = weft.Generator(distributed.rank())
        part = distributed.part()
        list(DataLoader(X, 2, shuffle=True, generator=generator, part=part))

    with pytest.raises(DistributedError, match="different orders of the samples"):
        distributed.run_virtual(2, loop, timeout=20)


ERRORS = {
    "3 do not divide it": {"batch_size": 4, "part": Part(0, 3)},
    "leaves nothing for 3 ranks": {"batch_size": 2, "part": Part(0, 3), "uneven": "drop"},
    "last batch has 4 samples, which 3": {"batch_size": 6, "part": Part(0, 3)},
    "not one of 'pad', 'drop'": {"batch_size": 6, "part": Part(0, 2), "uneven": "wrap"},
    "needs a batch_size": {"batch_size": None, "part": Part(0, 2)},
}


@pytest.mark.parametrize("words", ERRORS)
def test_errors(words: str) -> None:
    with pytest.raises(RangeError, match=words):
        DataLoader(X, **ERRORS[words])  # type: ignore[arg-type]


def test_an_uneven_stream_is_an_error_unless_said() -> None:
    with pytest.raises(RangeError, match="a batch of 4 samples cannot be cut into 3"):
        read(_stream(part=Part(0, 3)))
    with pytest.raises(RangeError, match="no part 2 of 2"):
        Part(2, 2)
