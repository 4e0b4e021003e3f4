"""DataLoader with worker processes: order, errors, seeds, shutdown; samplers, other datasets."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from typing import Any

import numpy as np
import pytest

import weft
import weft.data
from weft.data import DataLoader, IterableDataset, TensorDataset, get_worker_info

X = weft.arange(20).reshape((10, 2))


class Squares:
    """Numbered samples; a few do something special."""

    def __init__(self, count: int = 10, bad: int = -1, action: str = "raise") -> None:
        self.count, self.bad, self.action = count, bad, action

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if index == self.bad:
            if self.action == "raise":
                raise KeyError(f"no sample {index}")
            if self.action == "die":
                os._exit(3)
            if self.action == "odd error":
                raise OddError(1, 2)
            time.sleep(60)
        return weft.asarray(float(index * index)), index


class OddError(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__("odd")


class Count(IterableDataset):
    def __init__(self, stop: int, share: bool = True) -> None:
        self.stop, self.share = stop, share

    def __iter__(self) -> Any:
        info = get_worker_info() if self.share else None
        if info is None:
            return iter(range(self.stop))
        return iter(range(info.id, self.stop, info.num_workers))


class Draws:
    """What a worker draws for a sample."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        return float(weft.rand(()).item()), float(np.random.random()), random.random()  # noqa: NPY002


def listed(loader: DataLoader) -> list[Any]:
    return [batch[1].tolist() for batch in loader]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("shuffle", [False, True])
def test_the_order_is_that_without_workers(workers: int, shuffle: bool) -> None:
    def epochs(count: int) -> list[Any]:
        options = {"generator": weft.Generator(3), "num_workers": count, "shuffle": shuffle}
        loader = DataLoader(Squares(), 3, **options)
        return [listed(loader) for _ in range(2)]

    assert epochs(workers) == epochs(0)


def test_datasets_that_give_batches_at_once() -> None:
    data = TensorDataset(X, X[:, 0] * 10)
    batches = list(DataLoader(data, 4, num_workers=2, shuffle=True, generator=weft.Generator(0)))
    assert [x.shape for x, _ in batches] == [(4, 2), (4, 2), (2, 2)]
    for x, y in batches:
        assert (x[:, 0] * 10).tolist() == y.tolist()


def test_samples_one_by_one() -> None:
    assert list(DataLoader(["a", "b", "c"], None, num_workers=2)) == ["a", "b", "c"]
    found = list(DataLoader([np.ones(2), np.zeros(2)], None))
    assert [x.tolist() for x in found] == [[1, 1], [0, 0]]
    assert all(isinstance(x, weft.Tensor) for x in found)


# --- errors ------------------------------------------------------------------------------------


def test_an_error_comes_with_the_worker_s_traceback() -> None:
    loader = DataLoader(Squares(bad=5), 2, num_workers=2)
    batches = iter(loader)
    assert [next(batches)[1].tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(KeyError, match="no sample 5") as caught:
        next(batches)
    (note,) = caught.value.__notes__
    assert "in worker 0 of a DataLoader" in note
    assert 'raise KeyError(f"no sample {index}")' in note
    assert len(listed(DataLoader(Squares(4), 2, num_workers=2))) == 2  # others go on


def test_an_error_that_cannot_be_copied() -> None:
    loader = DataLoader(Squares(bad=1, action="odd error"), 2, num_workers=1)
    with pytest.raises(weft.data.WorkerError, match=r"in worker 0(.|\n)*OddError: odd"):
        list(loader)


def test_a_batch_that_cannot_be_sent() -> None:
    loader = DataLoader(Squares(), 2, num_workers=1, collate_fn=lambda _: lambda: 0)
    with pytest.raises((AttributeError, TypeError, weft.data.WorkerError), match="lambda"):
        list(loader)


def test_a_worker_that_dies() -> None:
    loader = DataLoader(Squares(bad=2, action="die"), 1, num_workers=2)
    with pytest.raises(weft.data.WorkerError, match=r"worker 0 .* exit code 3"):
        list(loader)


def test_timeout() -> None:
    loader = DataLoader(Squares(bad=1, action="sleep"), 1, num_workers=2, timeout=0.5)
    start = time.monotonic()
    with pytest.raises(weft.data.WorkerError, match=r"worker 1 .* no batch within 0.5 seconds"):
        list(loader)
    assert time.monotonic() - start < 30


def test_worker_init_fn() -> None:
    def init(number: int) -> None:
        if number == 1:
            raise ValueError("not this one")

    with pytest.raises(ValueError, match="not this one"):
        list(DataLoader(Squares(), 1, num_workers=2, worker_init_fn=init))
    numbers = list(
        DataLoader(
            Squares(4),
            1,
            num_workers=2,
            collate_fn=lambda _: (random.random(), get_worker_info().id),  # type: ignore[union-attr]
            worker_init_fn=random.seed,
        )
    )
    want = []
    for worker in (0, 1):
        random.seed(worker)
        want.append([(random.random(), worker) for _ in range(2)])
    assert numbers == [want[0][0], want[1][0], want[0][1], want[1][1]]
    assert get_worker_info() is None


# --- random numbers ----------------------------------------------------------------------------


def test_seeds() -> None:
    def drawn(seed: int, epochs: int = 2) -> list[Any]:
        loader = DataLoader(Draws(), None, num_workers=2, generator=weft.Generator(seed))
        return [list(loader) for _ in range(epochs)]

    first, second = drawn(0)
    assert [first, second] == drawn(0)
    assert drawn(1) != [first, second]
    for numbers in (first, second):
        assert len({n for sample in numbers for n in sample}) == 18  # each worker has its own
    assert first != second


# --- datasets that are read in order -----------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2, 3])
def test_iterable_datasets(workers: int) -> None:
    batches = [b.tolist() for b in DataLoader(Count(10), 3, num_workers=workers)]
    assert sorted(n for batch in batches for n in batch) == list(range(10))
    if workers == 2:
        assert batches == [[0, 2, 4], [1, 3, 5], [6, 8], [7, 9]]
    assert [b.tolist() for b in DataLoader(Count(7), 3, drop_last=True)] == [[0, 1, 2], [3, 4, 5]]
    alone = list(DataLoader(Count(4), None, num_workers=workers))
    assert sorted(alone) == [0, 1, 2, 3]


def test_each_worker_reads_all_unless_the_dataset_shares() -> None:
    numbers = list(DataLoader(Count(3, share=False), None, num_workers=2))
    assert numbers == [0, 0, 1, 1, 2, 2]
    chained = Count(2) + Count(3)
    assert list(DataLoader(chained, None)) == [0, 1, 0, 1, 2]
    with pytest.raises(TypeError, match="len"):
        len(DataLoader(Count(3)))


# --- processes come and go ---------------------------------------------------------------------


def pids(loader: DataLoader) -> list[int]:
    return list(loader)


def test_persistent_workers() -> None:
    options: dict[str, Any] = {"num_workers": 2, "collate_fn": lambda _: os.getpid()}
    kept = DataLoader(Squares(4), 1, persistent_workers=True, **options)
    first = set(pids(kept))
    assert len(first) == 2
    for _ in kept:
        break  # a loop that is left: what comes late is not mixed into the next
    assert set(pids(kept)) == first
    assert os.getpid() not in first
    anew = DataLoader(Squares(4), 1, **options)
    assert not set(pids(anew)) & set(pids(anew))
    order = DataLoader(Squares(8), 1, num_workers=2, persistent_workers=True)
    for _ in order:
        break
    assert listed(order) == [[i] for i in range(8)]


def gone(pid: int) -> bool:
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def test_workers_end_when_a_loop_is_left() -> None:
    loader = DataLoader(Squares(100), 1, num_workers=2, collate_fn=lambda _: os.getpid())
    seen = set()
    for pid in loader:
        seen.add(pid)
        if len(seen) == 2:
            break
    assert all(gone(pid) for pid in seen)


def test_spawned_workers() -> None:
    loader = DataLoader(range(5), 2, num_workers=1, multiprocessing_context="spawn")
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4]]
    with pytest.raises(ValueError, match="not 'threads'"):
        list(DataLoader(range(5), num_workers=1, multiprocessing_context="threads"))


def test_ctrl_c() -> None:
    """It ends the program and its workers at once, with one traceback: that of the program."""
    script = textwrap.dedent(
        """
        import os, time, weft.data

        class Slow:
            def __len__(self):
                return 100

            def __getitem__(self, index):
                if index:
                    time.sleep(0.2)
                return os.getpid()

        for batch in weft.data.DataLoader(Slow(), 1, num_workers=2):
            print(batch.tolist()[0], flush=True)
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    workers = {int(process.stdout.readline()) for _ in range(2)}
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert errors.count("Traceback") == 1
    assert "KeyboardInterrupt" in errors
    assert all(gone(pid) for pid in workers)


# --- samplers and datasets of datasets ---------------------------------------------------------


def test_samplers() -> None:
    data = weft.data
    assert list(data.SequentialSampler("abc")) == [0, 1, 2]
    drawn = data.RandomSampler(range(5), generator=weft.Generator(0))
    assert sorted(drawn) == list(range(5))
    more = list(data.RandomSampler(range(4), num_samples=10))
    assert (len(more), Counter(more[:4])) == (10, Counter(range(4)))
    again = list(data.RandomSampler(range(3), replacement=True, num_samples=50))
    assert (len(again), set(again)) == (50, {0, 1, 2})
    assert sorted(data.SubsetRandomSampler([7, 3, 5])) == [3, 5, 7]
    batches = data.BatchSampler(data.SequentialSampler(range(5)), 2, drop_last=True)
    assert (list(batches), len(batches)) == ([[0, 1], [2, 3]], 2)


def test_weighted_samples() -> None:
    sampler = weft.data.WeightedRandomSampler([1, 0, 3], 4000, generator=weft.Generator(0))
    counts = Counter(sampler)
    assert counts[1] == 0
    assert abs(counts[2] / 4000 - 0.75) < 0.03
    once = weft.data.WeightedRandomSampler([1, 0, 3, 2], 3, replacement=False)
    assert sorted(once) == [0, 2, 3]
    firsts = Counter(
        next(iter(weft.data.WeightedRandomSampler([1, 3], 2, False, weft.Generator(seed))))
        for seed in range(400)
    )
    assert abs(firsts[1] / 400 - 0.75) < 0.08


def test_loaders_take_samplers() -> None:
    by_number = DataLoader(Squares(), 2, sampler=[5, 3, 1])
    assert (listed(by_number), len(by_number)) == ([[5, 3], [1]], 2)
    by_lists = DataLoader(Squares(), batch_sampler=[[1, 2], [3]], num_workers=1)
    assert (listed(by_lists), len(by_lists)) == ([[1, 2], [3]], 2)
    at_once = DataLoader(TensorDataset(X), batch_sampler=[[1, 2], [0]])
    assert [x.tolist() for (x,) in at_once] == [[[2, 3], [4, 5]], [[0, 1]]]


def test_datasets_of_datasets() -> None:
    both = weft.data.ConcatDataset([Squares(3), Squares(4)])
    assert [both[i][1] for i in (2, 3, -1)] == [2, 0, 3]
    with pytest.raises(IndexError, match="no sample 7 of 7"):
        both[7]
    named = weft.data.StackDataset(a=range(3), b="xyz")
    assert next(iter(DataLoader(named, 2)))["b"] == ["x", "y"]
    with pytest.raises(ValueError, match="lengths"):
        weft.data.StackDataset("ab", "abc")
    with pytest.raises(TypeError, match="ChainDataset"):
        weft.data.ConcatDataset([Count(2)])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_workers": -1}, "must not be negative"),
        ({"persistent_workers": True}, "need num_workers"),
        ({"prefetch_factor": 3}, "need num_workers"),
        ({"sampler": [1], "shuffle": True}, "either a sampler or shuffle"),
        ({"batch_sampler": [[1]], "batch_size": 3}, "takes the place of"),
        ({"batch_size": None, "drop_last": True}, "needs a batch_size"),
    ],
)
def test_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataLoader(range(3), **options)
    with pytest.raises(ValueError, match="read in order"):
        DataLoader(Count(3), shuffle=True)


def test_what_is_accepted_without_a_meaning() -> None:
    assert len(list(DataLoader(range(3), pin_memory=True, in_order=False))) == 3
