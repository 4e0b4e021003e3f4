"""Batches out of a dataset: in order, shuffled or as a sampler says, with worker processes."""

from __future__ import annotations

import contextlib
import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Generator as _Batches
from dataclasses import replace
from typing import Any

from weft.base.errors import DTypeError, RangeError
from weft.data.combined import IterableDataset
from weft.data.fetch import Ended, InOrder, Numbered
from weft.data.parts import UNEVEN, Part, all_the_same, part_of
from weft.data.progress import (
    Progress,
    ResumeError,
    bytes_of,
    loops_of,
    other_states,
    random_states,
)
from weft.data.samplers import BatchSampler, RandomSampler, SequentialSampler
from weft.data.workers import Workers, context_of
from weft.ops.generator import get_rng_state
from weft.ops.random import Generator, permutation

Batches = _Batches[Any, None, None]
_GOLDEN = 0x9E3779B97F4A7C15  # spreads the seeds of epochs


class DataLoader:
    """Goes through a dataset in batches; each loop over it is one epoch.

    shuffle         in a new random order each time, drawn from `generator` or the default one
    sampler         numbers of samples, in place of shuffle
    batch_sampler   lists of numbers, in place of batch_size, shuffle, sampler and drop_last
    drop_last       leave out the last batch where it would be smaller
    collate_fn      makes a batch of a list of samples; `weft.data.collate` unless another is given
    batch_size      None: samples one by one
    num_workers     processes that get the samples; 0: this one does
    timeout         seconds after which a batch that has not come is an error; 0: never
    worker_init_fn  called with the number of each worker in its process when it starts
    prefetch_factor      batches that each worker gets ahead; 2 unless said
    persistent_workers   keep the processes from one epoch to the next
    multiprocessing_context   "fork" (the default on Linux), "forkserver" or "spawn"
    part            the part of each batch that this rank reads: `weft.distributed.part()`;
                    batch_size is that of all ranks together
    uneven          what to do with a batch that the ranks do not divide: "pad" repeats its first
                    samples, "drop" leaves out its last ones; an error unless said
    pin_memory      has no meaning on CPUs; nor has `in_order`, as batches always come in order

    The order is the same for any number of workers, and of ranks. In a worker, random numbers of
    weft, NumPy and Python start anew with each batch, from a seed that follows from `generator` (or
    `weft.manual_seed`), the epoch and the number of the batch; with a worker_init_fn, they start
    once, with the process. An error in a worker is raised here, with its traceback.

    `state_dict` says where a loop is. In a loader that has loaded it, the next loop goes on from
    there, with the same batches.

    >>> data = weft.data.TensorDataset(weft.arange(5), weft.arange(5) * 10)
    >>> for x, y in weft.data.DataLoader(data, batch_size=2):
    ...     print(x.tolist(), y.tolist())
    [0, 1] [0, 10]
    [2, 3] [20, 30]
    [4] [40]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        part: Part | None = None,
        uneven: str | None = None,
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = bool(shuffle)
        self.num_workers = num_workers
        self.collate_fn = collate_fn
        self.pin_memory = pin_memory
        self.drop_last = drop_last
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.generator = generator
        self.prefetch_factor = 2 if prefetch_factor is None else prefetch_factor
        self.persistent_workers = persistent_workers
        self.part = part
        self.uneven = uneven
        self._iterable = isinstance(dataset, IterableDataset)
        self._check(sampler, batch_sampler, prefetch_factor)
        self.sampler, self.batch_sampler = self._samplers(sampler, batch_sampler)
        self._own_order = sampler is None and batch_sampler is None
        self._epochs = 0
        self._workers: Workers | None = None  # those that persist
        self._resumed: dict[str, Any] | None = None  # where the next loop begins

    def _check(self, sampler: Any, batch_sampler: Any, prefetch_factor: int | None) -> None:
        numbered = hasattr(self.dataset, "__len__") and hasattr(self.dataset, "__getitem__")
        if not self._iterable and not numbered:
            raise DTypeError(
                "a dataset has a length and samples by number; "
                f"{type(self.dataset).__name__} has not",
                op="DataLoader",
                hint="wrap tensors in weft.data.TensorDataset; derive what is only read in order "
                "from weft.data.IterableDataset",
            )
        wrong = None
        if self.batch_size is not None and self.batch_size < 1:
            wrong = f"batch_size must be at least 1: {self.batch_size}"
        elif self.num_workers < 0 or self.timeout < 0 or self.prefetch_factor < 1:
            wrong = "num_workers and timeout must not be negative, prefetch_factor at least 1"
        elif self.num_workers == 0 and (self.persistent_workers or prefetch_factor is not None):
            wrong = "persistent_workers and prefetch_factor need num_workers above 0"
        elif self._iterable and (self.shuffle or sampler or batch_sampler):
            wrong = "a dataset that is read in order is not shuffled and has no sampler"
        elif sampler is not None and self.shuffle:
            wrong = "give either a sampler or shuffle=True"
        elif batch_sampler is not None and (
            self.batch_size != 1 or self.shuffle or sampler is not None or self.drop_last
        ):
            wrong = "a batch_sampler takes the place of batch_size, shuffle, sampler and drop_last"
        elif self.batch_size is None and self.drop_last:
            wrong = "drop_last needs a batch_size"
        elif self.uneven not in (None, *UNEVEN):
            wrong = f"uneven is {self.uneven!r}, not one of {', '.join(map(repr, UNEVEN))}"
        elif self.part is not None and self.batch_size is None:
            wrong = "a part is one of a batch: it needs a batch_size"
        elif self.part is not None and batch_sampler is None and self._cannot_cut(self.part):
            wrong = self._cannot_cut(self.part)
        if wrong is not None:
            raise RangeError(wrong, op="DataLoader")

    def _cannot_cut(self, part: Part) -> str | None:
        """What is wrong with the sizes of batches, where nobody says what to do with them."""
        size = self.batch_size or 1
        if size % part.count and self.uneven is None:
            return (
                f"batch_size {size} is that of all ranks, and {part.count} do not divide it: say "
                'uneven="pad" or uneven="drop", or choose another'
            )
        if size < part.count and self.uneven == "drop":
            return (
                f"of a batch of {size} samples, uneven='drop' leaves nothing for {part.count} ranks"
            )
        last = 0 if self._iterable else len(self.dataset) % size
        if last % part.count and not self.drop_last and self.uneven is None:
            return (
                f"the last batch has {last} samples, which {part.count} ranks do not divide: say "
                'uneven="pad", uneven="drop" or drop_last=True'
            )
        return None

    def _samplers(self, sampler: Any, batch_sampler: Any) -> tuple[Any, Any]:
        if self._iterable:
            return None, None
        if batch_sampler is not None:
            self.batch_size = None
            return None, batch_sampler
        if sampler is None:
            sampler = (
                RandomSampler(self.dataset, generator=self.generator)
                if self.shuffle
                else SequentialSampler(self.dataset)
            )
        if self.batch_size is None:
            return sampler, None
        return sampler, BatchSampler(sampler, self.batch_size, self.drop_last)

    def __len__(self) -> int:
        """The number of batches of an epoch: the same on all ranks."""
        if self.batch_sampler is not None:
            return len(self.batch_sampler) - self._drops_the_last()
        if not self._iterable:
            return len(self.sampler)
        count = len(self.dataset)  # a dataset without a length says so
        if self.batch_size is None:
            return count
        whole = count // self.batch_size if self.drop_last else -(-count // self.batch_size)
        return whole - self._drops_the_last()

    def _drops_the_last(self) -> bool:
        """Whether the last batch has fewer samples than there are ranks, and is left out."""
        if self.part is None or self.uneven != "drop" or self.drop_last or not self.batch_size:
            return False
        count = len(self.dataset if self.sampler is None else self.sampler)
        return 0 < count % self.batch_size < self.part.count

    def _of_this_rank(self, pieces: Iterator[Any]) -> Iterator[Any]:
        """The part of each batch that this rank reads."""
        part = self.part
        assert part is not None
        for number, piece in enumerate(pieces):
            if number == 0:
                part.check(zlib.crc32(bytes_of(piece)))  # all ranks have drawn the same order
            mine = part_of(piece, part, self.uneven)
            if mine.stop - mine.start if isinstance(mine, slice) else len(mine):
                yield mine

    # --- an epoch -----------------------------------------------------------------------------

    def _pieces(self) -> Iterator[Any]:
        """The numbers of each batch."""
        if self._iterable:
            return itertools.repeat(None)
        if self.batch_sampler is None:
            return iter(self.sampler)
        if not self._own_order or self.batch_size is None:
            return iter(self.batch_sampler)
        # The loader's own order: slices, which datasets can take all at once.
        count, size = len(self.dataset), self.batch_size
        slices = [slice(i * size, min((i + 1) * size, count)) for i in range(len(self))]
        if not self.shuffle:
            return iter(slices)
        order = permutation(count, generator=self.generator).numpy()
        return (order[piece] for piece in slices)

    def _source(self) -> Numbered | InOrder:
        if self._iterable:
            part = self.part and replace(self.part, check=all_the_same)  # it goes to workers
            cut = part, self.uneven
            return InOrder(self.dataset, self.collate_fn, self.batch_size, self.drop_last, *cut)
        return Numbered(self.dataset, self.collate_fn, self.batch_sampler is not None)

    def _seed(self) -> int:
        """The seed of the first worker. Nothing is drawn: the order is that without workers."""
        state = get_rng_state() if self.generator is None else self.generator.state
        first, used = state.tolist()
        return int((first * _GOLDEN + used * 0x5851F42D4C957F2D + self._epochs) % 2**62)

    def __iter__(self) -> Iterator[Any]:
        resumed, self._resumed = self._resumed, None
        generators = self._generators()
        samples = 0 if self._iterable else len(self.dataset)
        if resumed is None:
            self._epochs += 1
            seed = self._seed() if self.num_workers else 0
            progress = Progress(random_states(generators), seed, samples)
            pieces = progress.counted(self._pieces())
        else:
            progress = Progress(resumed["begin"], resumed["seed"], samples)
            pieces = self._pieces_again(progress, resumed)
        loops_of(self).add(progress)
        if self.part is not None and not self._iterable:
            pieces = self._of_this_rank(pieces)
        # Batches of a dataset that is read in order are read again: they have no numbers.
        skipped = resumed["given"] if resumed is not None and self._iterable else 0
        return self._loop(progress, pieces, skipped)

    def _generators(self) -> list[Generator]:
        """The generators that the order may be drawn from, besides those that all share."""
        inner = getattr(self.batch_sampler, "sampler", None)
        owners = (self, self.sampler, self.batch_sampler, inner)
        found = [getattr(owner, "generator", None) for owner in owners]
        unique = {id(generator): generator for generator in found}
        return [generator for generator in unique.values() if isinstance(generator, Generator)]

    def _pieces_again(self, progress: Progress, resumed: dict[str, Any]) -> Iterator[Any]:
        """The pieces of a loop from where it was: drawn as they were when it began."""
        if self._iterable:
            return progress.counted(self._pieces())
        with other_states(progress.begin, self._generators()):
            pieces = progress.counted(self._pieces())
            drawn = list(itertools.islice(pieces, resumed["drawn"]))
        if len(drawn) != resumed["drawn"] or progress.digest != resumed["digest"]:
            raise ResumeError(
                "the order of this epoch cannot be found again: the dataset is another one, or the "
                "sampler draws from something else than random generators",
                op="DataLoader",
            )
        progress.given = resumed["given"]
        return itertools.chain(drawn[progress.given :], pieces)

    def _loop(self, progress: Progress, pieces: Iterator[Any], skipped: int) -> Iterator[Any]:
        """The batches of a loop, counted as they are given."""
        try:
            with contextlib.ExitStack() as stack:
                read = (
                    self._by_workers(pieces, progress) if self.num_workers else self._here(pieces)
                )
                batches: Iterator[Any] = stack.enter_context(contextlib.closing(read))
                if self._iterable and not self.num_workers:
                    generators = self._generators()
                    batches = progress.watched(batches, generators)
                    if skipped:
                        with other_states(progress.begin, generators):
                            self._skip(batches, progress, skipped)
                elif skipped:
                    self._skip(batches, progress, skipped)
                for batch in batches:
                    progress.given += 1
                    yield batch
        finally:
            loops_of(self).discard(progress)

    def _skip(self, batches: Iterator[Any], progress: Progress, count: int) -> None:
        for _ in itertools.islice(batches, count):
            progress.given += 1
        if progress.given != count or progress.draws:
            raise ResumeError(
                f"the dataset gave {progress.given} batches in place of {count}, or drew random "
                "numbers: its epoch cannot be gone on with",
                op="DataLoader",
            )

    def _here(self, pieces: Iterator[Any]) -> Batches:
        get = self._source().open()
        for piece in pieces:
            try:
                batch = get(piece)
            except Ended:
                return
            yield batch

    def _by_workers(self, pieces: Iterator[Any], progress: Progress) -> Batches:
        # Ranks draw other random numbers for their samples.
        seed = progress.seed + (0 if self.part is None else _GOLDEN * self.part.place % 2**61)
        workers = self._workers or Workers(
            self._source(),
            self.num_workers,
            seed,
            self.worker_init_fn,
            self.timeout,
            context_of(self.multiprocessing_context),
        )
        self._workers = None  # a second loop at the same time has workers of its own
        whole = False
        try:
            first = progress.given  # a worker's seeds follow from the numbers of its batches
            yield from workers.batches(pieces, self.prefetch_factor, seed, first)
            whole = True
        except GeneratorExit:
            whole = True  # the loop was left: what comes late is told by its epoch
            raise
        finally:
            if whole and self.persistent_workers and self._workers is None:
                self._workers = workers
            else:
                workers.close(*(() if whole else (0.5,)))

    def __del__(self) -> None:
        workers = self.__dict__.get("_workers")
        if workers is not None:
            workers.close()

    # --- where it is --------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Where the loop over this loader is, if there is one; and the state of its generator.

        >>> data = weft.arange(6)
        >>> loader = weft.data.DataLoader(data, batch_size=2, shuffle=True)
        >>> loop = iter(loader)
        >>> first, state = next(loop), loader.state_dict()
        >>> other = weft.data.DataLoader(data, batch_size=2, shuffle=True)
        >>> other.load_state_dict(state)
        >>> [x.tolist() for x in other] == [x.tolist() for x in loop]
        True
        """
        loops = list(loops_of(self))
        if len(loops) > 1:
            raise ResumeError(
                f"there are {len(loops)} loops over this loader at the same time",
                op="DataLoader.state_dict",
            )
        resumed = self._resumed  # of a loop that is yet to go on
        return {
            "epochs": self._epochs,
            "loop": loops[0].state() if loops else resumed,
            "generators": [generator.state for generator in self._generators()],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where the loader was that gave this state: the next loop is the rest of its loop.

        After the last batch of an epoch that rest is empty, so that what a program does at the end
        of an epoch is done.
        """
        generators = self._generators()
        if set(state_dict) != {"epochs", "loop", "generators"} or len(
            state_dict["generators"]
        ) != len(generators):
            raise ResumeError("this is no state of such a loader", op="DataLoader.load_state_dict")
        self._epochs = state_dict["epochs"]
        self._resumed = state_dict["loop"]
        for generator, state in zip(generators, state_dict["generators"], strict=True):
            generator.state = state
        loops_of(self).clear()
