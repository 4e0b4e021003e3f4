"""How the dataflow executor runs: `weft.compile(f, backend=weft.Dataflow(...))`."""

from __future__ import annotations

import os

from weft.base.dataclass import dataclass
from weft.base.errors import RangeError

__all__ = ["Dataflow"]


@dataclass(frozen=True)
class Dataflow:
    """The dataflow executor as a backend, with its options: `backend="dataflow"` has the defaults.

    scheduler             which ready node runs next: "fifo", "pool", "priority", "deterministic",
                          or one that `weft.register_scheduler` made known
    threads               threads of "pool" and "priority"; by default one for each core
    parallel_iterations   how many iterations of one loop may be in flight

    >>> @weft.compile(backend=weft.Dataflow(scheduler="pool", threads=2))
    ... def f(x):
    ...     while x.sum() < 10:
    ...         x = x * 2
    ...     return x
    >>> f(weft.tensor([1.0, 2.0]))
    tensor([4., 8.])
    """

    scheduler: str = "fifo"
    threads: int | None = None
    parallel_iterations: int = 10

    def __post_init__(self) -> None:
        for name in ("threads", "parallel_iterations"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise RangeError(f"{name} is {value!r}, not a number from 1 on", op="Dataflow")

    @property
    def thread_count(self) -> int:
        return self.threads or os.cpu_count() or 1
