"""A loop over a DataLoader that another process goes on with gives the same batches."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
from weft import data
from weft.data import DataLoader, IterableDataset
from weft.data.progress import ResumeError, random_states, set_random_states


class Noisy:
    """Numbered samples with random numbers of all three kinds."""

    def __len__(self) -> int:
        return 11

    def __getitem__(self, index: int) -> Any:
        drawn = float(weft.rand(()).item()), float(np.random.random()), random.random()  # noqa: NPY002
        return (index, *drawn)


class Stream(IterableDataset):
    def __init__(self, draws: bool = False) -> None:
        self.draws = draws

    def __iter__(self) -> Iterator[Any]:
        info = data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        own = random.Random(first)
        for i in range(first, 11, step):
            yield i, random.random() if self.draws else own.random()


def options(name: str) -> dict[str, Any]:
    """New objects each time, as another process has."""
    numbers = range(11)
    return {
        "in order": lambda: {},
        "shuffled": lambda: {"shuffle": True},
        "own generator": lambda: {"shuffle": True, "generator": weft.Generator(3)},
        "random sampler": lambda: {
            "sampler": data.RandomSampler(numbers, generator=weft.Generator(1))
        },
        "replacement": lambda: {"sampler": data.RandomSampler(numbers, replacement=True)},
        "many": lambda: {"sampler": data.RandomSampler(numbers, num_samples=25)},
        "subset": lambda: {"sampler": data.SubsetRandomSampler([3, 1, 4, 5])},
        "weights": lambda: {"sampler": data.WeightedRandomSampler([1.0] * 11, 9)},
        "batch sampler": lambda: {
            "batch_sampler": data.BatchSampler(data.RandomSampler(numbers), 2, False)
        },
        "lists": lambda: {"batch_sampler": [[1, 2], [3], [4, 5, 6]]},
    }[name]()


KINDS = [
    *("in order", "shuffled", "own generator", "random sampler", "replacement", "subset"),
    *("weights", "batch sampler", "lists"),
]


def stored(state: Any) -> Any:
    """A state as a file gives it back."""
    file = io.BytesIO()
    weft.save(state, file)
    file.seek(0)
    return weft.load(file)


def plain(batch: Any) -> Any:
    return [x.tolist() if isinstance(x, weft.Tensor) else x for x in batch]


def compare(make: Callable[[], DataLoader], moments: range) -> None:
    """Two epochs with draws in between, as a whole and gone on with at some moments."""
    weft.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    loader = make()
    states, batches = [], []

    def step(batch: Any) -> Any:
        return plain(batch), weft.rand(()).item(), random.random()

    for epoch in range(2):
        for batch in loader:
            batches.append((epoch, step(batch)))
            states.append((epoch, stored([loader.state_dict(), random_states()])))
        states.append((epoch + 1, stored([loader.state_dict(), random_states()])))
        batches.append((epoch, "end"))
    for moment in moments:
        epoch, (state, drawn) = states[moment]
        other = make()
        other.load_state_dict(state)
        set_random_states(drawn)
        found = batches[: moment + 1]
        for later in range(epoch, 2):
            found += [(later, step(batch)) for batch in other]
            found.append((later, "end"))
        assert found == batches, moment


@pytest.mark.parametrize("kind", KINDS)
def test_loops(kind: str) -> None:
    def make() -> DataLoader:
        chosen = options(kind)
        size = {} if "batch_sampler" in chosen else {"batch_size": 3}
        return DataLoader(Noisy(), **size, **chosen)

    compare(make, range(6))


@pytest.mark.parametrize(("kind", "persistent"), [("shuffled", True), ("replacement", False)])
def test_loops_with_workers(kind: str, persistent: bool) -> None:
    def make() -> DataLoader:
        more = {"num_workers": 2, "persistent_workers": persistent}
        return DataLoader(Noisy(), 2, **more, **options(kind))

    compare(make, range(1, 9, 6))


@pytest.mark.parametrize("workers", [0, 2])
def test_datasets_that_are_read_in_order(workers: int) -> None:
    draws = workers > 0  # each batch of a worker has its own seed
    compare(lambda: DataLoader(Stream(draws), 3, num_workers=workers), range(2, 3))


def test_batches_of_workers_have_seeds_of_their_own() -> None:
    def epoch(workers: int) -> Any:
        loader = DataLoader(Noisy(), 3, num_workers=workers, generator=weft.Generator(5))
        return [plain(batch) for batch in loader]

    assert epoch(1) == epoch(2)


def test_what_cannot_be_gone_on_with() -> None:
    loader = DataLoader(Stream(True), 3)
    loop = iter(loader)
    next(loop)
    with pytest.raises(ResumeError, match="draws random numbers"):
        loader.state_dict()
    list(loop)
    assert loader.state_dict()["loop"] is None

    # The second order of this sampler is drawn in the middle, between the draws of training.
    with pytest.raises(ResumeError, match="cannot be found again"):
        compare(
            lambda: DataLoader(Noisy(), 3, sampler=data.RandomSampler(range(11), num_samples=25)),
            range(6, 7),
        )

    shuffled = DataLoader(range(6), 2, shuffle=True)
    first, second = iter(shuffled), iter(shuffled)
    with pytest.raises(ResumeError, match="2 loops"):
        shuffled.state_dict()
    del first
    next(second)
    state = shuffled.state_dict()
    with pytest.raises(ResumeError, match="no state of such a loader"):
        DataLoader(range(6), 2, generator=weft.Generator(0)).load_state_dict(state)
    with pytest.raises(ResumeError, match="no state of such a loader"):
        shuffled.load_state_dict({})
    other = DataLoader(range(7), 2, shuffle=True)
    other.load_state_dict(state)
    with pytest.raises(ResumeError, match="the dataset is another one"):
        list(other)
    short = DataLoader(Stream(), 3)
    short.load_state_dict({"epochs": 1, "loop": {**state["loop"], "given": 9}, "generators": []})
    with pytest.raises(ResumeError, match="4 batches in place of 9"):
        list(short)


def test_a_loop_that_is_left_is_over() -> None:
    loader = DataLoader(range(6), 2, shuffle=True)
    for _ in loader:
        break
    assert loader.state_dict()["loop"] is None
    loop = iter(loader)
    assert loader.state_dict()["loop"]["given"] == 0
    del loop
    assert loader.state_dict()["loop"] is None


def test_the_rest_after_the_last_batch_is_empty() -> None:
    loader = DataLoader(range(4), 2)
    for _ in loader:
        state = loader.state_dict()
    other = DataLoader(range(4), 2)
    other.load_state_dict(state)
    assert other.state_dict() == {**state, "loop": state["loop"]}
    assert [len(list(other)) for _ in range(2)] == [0, 2]
