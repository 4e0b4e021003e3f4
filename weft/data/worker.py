"""What runs in a worker process of a DataLoader."""

from __future__ import annotations

import pickle
import queue
import random
import signal
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import connection, parent_process
from typing import Any

import numpy as np

from weft.base.lazy import Lazy
from weft.data.fetch import Ended
from weft.ops.generator import manual_seed

threads = Lazy("weft.runtime.threads")

_GOLDEN = 0x9E3779B97F4A7C15  # spreads the seeds of batches
DONE, FAILED, ENDED = "done", "failed", "ended"  # what a worker says of a batch


@dataclass(frozen=True)
class WorkerInfo:
    """Which worker this is: its number, of how many, its seed, and its copy of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """Which worker of a DataLoader this process is; None in the process of the loader itself."""
    return _info


def work(
    link: Any,
    source: Any,
    number: int,
    workers: int,
    seed: int,
    init: Callable[[int], Any] | None,
    inherited: list[Any],
) -> None:
    """Get batches until the link is closed, or the parent is gone."""
    global _info
    for end in inherited:  # the parent's ends: a link is closed only when nobody holds it
        end.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    threads.set_num_threads(1)
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    # A thread reads the tasks, so that the parent never waits to hand one over while this process
    # waits to hand over a result.
    threading.Thread(target=_read, args=(link, tasks), daemon=True).start()
    _seed(seed)
    _info = WorkerInfo(number, workers, seed, source.dataset)
    get: Any = None
    failure: BaseException | None = None
    try:
        if init is not None:
            init(number)
    except Exception as error:
        failure = error
    seed_of_epoch = seed
    while (task := tasks.get()) is not None:
        epoch, place, piece = task
        if place is None:  # a new epoch
            get, seed_of_epoch = None, piece
            continue
        if init is None:  # else its own seeds hold
            _seed(seed_of_epoch + place * _GOLDEN)
        try:
            if failure is not None:
                raise failure
            if get is None:
                get = source.open()
            answer = (epoch, place, DONE, get(piece))
        except Ended:
            answer = (epoch, place, ENDED, None)
        except Exception as error:
            answer = (epoch, place, FAILED, _described(error))
        try:
            try:
                link.send(answer)
            except (pickle.PicklingError, TypeError, AttributeError) as error:
                link.send((epoch, place, FAILED, _described(error)))
        except OSError:  # the parent has closed the link
            return


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - what transforms of users draw from
    manual_seed(seed % 2**64)


def _read(link: Any, tasks: Any) -> None:
    parent = parent_process()
    ends = [link] if parent is None else [link, parent.sentinel]
    try:
        while link in connection.wait(ends):
            task = link.recv()
            tasks.put(task)
            if task is None:
                return
    except (OSError, EOFError):
        pass
    tasks.put(None)


def _described(error: Exception) -> tuple[bytes | None, str]:
    """An error as something that can be sent: itself, if it can, and its traceback as text."""
    text = "".join(traceback.format_exception(error))
    try:
        sent = pickle.dumps(error)
        pickle.loads(sent)
    except Exception:  # errors of the user's may do anything when they are copied
        return None, text
    return sent, text
