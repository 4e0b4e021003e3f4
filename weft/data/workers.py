"""The worker processes of a DataLoader, seen from the process that has started them."""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import sys
import warnings
from collections.abc import Iterator
from multiprocessing import connection
from typing import Any

from weft.base.errors import RangeError, WeftError
from weft.data.worker import ENDED, FAILED, work

_PATIENCE_S = 5.0  # how long a worker may take to end by itself


class WorkerError(WeftError, RuntimeError):
    """A worker process of a DataLoader that failed, died, or took too long."""


def context_of(given: Any) -> Any:
    """How processes are started: as a copy of this one where that is the custom, else anew."""
    if given is None:
        return multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    if isinstance(given, str):
        known = multiprocessing.get_all_start_methods()
        if given not in known:
            raise RangeError(
                f"multiprocessing_context is one of {', '.join(known)}, not {given!r}",
                op="DataLoader",
            )
        return multiprocessing.get_context(given)
    return given


class Workers:
    """A set of processes that get batches; results come in the order of their numbers."""

    def __init__(
        self, source: Any, count: int, seed: int, init: Any, timeout: float, context: Any
    ) -> None:
        self.timeout = timeout
        self.epoch = 0
        self.links: list[Any] = []
        self.processes: list[Any] = []
        try:
            for number in range(count):
                mine, theirs = context.Pipe()
                self.links.append(mine)
                copied = context.get_start_method() == "fork"
                process = context.Process(
                    target=work,
                    args=(
                        *(theirs, source, number, count, seed + number, init),
                        self.links[:] if copied else [],
                    ),
                    daemon=True,
                )
                with warnings.catch_warnings():  # of copies of processes that have threads
                    warnings.simplefilter("ignore", DeprecationWarning)
                    process.start()
                theirs.close()
                self.processes.append(process)
        except BaseException:
            self.close()
            raise

    def batches(
        self, pieces: Iterator[Any], ahead: int, seed: int, first: int = 0
    ) -> Iterator[Any]:
        """The batches of an epoch. Each worker has up to `ahead` of them to get.

        `first` is the number of the first piece: with the epoch's seed, a batch's number says what
        random numbers are drawn for it.
        """
        self.epoch += 1
        for number in range(len(self.links)):
            self._send(number, None, seed)
        turn = first
        active = dict.fromkeys(range(len(self.links)))  # that have not come to their end
        owners: dict[int, int] = {}
        ready: dict[int, tuple[str, Any]] = {}
        given = wanted = first
        more = True
        while True:
            while more and active and given - wanted < ahead * len(self.links):
                piece = next(pieces, _NO_MORE)
                if piece is _NO_MORE:
                    more = False
                    break
                while turn % len(self.links) not in active:
                    turn += 1
                owners[given] = turn % len(self.links)
                self._send(owners[given], given, piece)
                turn += 1
                given += 1
            if wanted == given:
                return
            while wanted not in ready:
                self._receive(ready, owners[wanted])
            kind, value = ready.pop(wanted)
            owner = owners.pop(wanted)
            wanted += 1
            if kind == FAILED:
                raise _failure(value, owner)
            if kind == ENDED:
                active.pop(owner, None)
            else:
                yield value

    def _send(self, number: int, place: int | None, piece: Any) -> None:
        try:
            self.links[number].send((self.epoch, place, piece))
        except OSError:
            raise self._died(number) from None

    def _receive(self, ready: dict[int, tuple[str, Any]], owner: int) -> None:
        """Wait for results, of which the next one that is due comes from `owner`."""
        arrived: list[Any] = connection.wait(self.links, self.timeout or None)
        if not arrived:
            raise WorkerError(
                f"worker {owner} (process {self.processes[owner].pid}) gave no batch within "
                f"{self.timeout:g} seconds",
                op="DataLoader",
                hint="raise timeout=, or find what takes so long with num_workers=0",
            )
        for link in arrived:
            try:
                epoch, place, kind, value = link.recv()
            except (EOFError, OSError):
                raise self._died(self.links.index(link)) from None
            if epoch == self.epoch:  # else it was asked for before a loop was left
                ready[place] = (kind, value)

    def _died(self, number: int) -> WorkerError:
        process = self.processes[number]
        process.join(_PATIENCE_S)
        return WorkerError(
            f"worker {number} (process {process.pid}) has died, with exit code {process.exitcode}",
            op="DataLoader",
            hint="-9 is often a lack of memory; num_workers=0 shows errors where they happen",
        )

    def close(self, patience: float = _PATIENCE_S) -> None:
        """End all processes: by themselves, or after that many seconds by force."""
        for link in self.links:
            with contextlib.suppress(OSError):
                link.send(None)
        for link in self.links:
            link.close()  # a worker that is handing over a result gives up
        for process in self.processes:
            process.join(patience)
            if process.is_alive():
                process.terminate()
                process.join(_PATIENCE_S)
        self.links, self.processes = [], []


_NO_MORE = object()


def _failure(described: tuple[bytes | None, str], worker: int) -> BaseException:
    """The worker's error, with its traceback as a note."""
    sent, text = described
    if sent is None:
        return WorkerError(f"an error in worker {worker}\n{text}", op="DataLoader")
    error: BaseException = pickle.loads(sent)
    error.add_note(f"raised in worker {worker} of a DataLoader:\n{text.rstrip()}")
    return error
