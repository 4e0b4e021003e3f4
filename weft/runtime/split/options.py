"""How a graph is split over devices: `weft.compile(f, backend=weft.Split(...))`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from weft.base.dataclass import dataclass
from weft.runtime.dataflow.options import Dataflow

__all__ = ["Split"]


@dataclass(frozen=True)
class Split:
    """Segments on several devices as a backend; `backend="split"` has the defaults.

    placement     rules, or "auto": see `weft.place`. `with weft.device(...)` counts in any case
    devices       the devices that may be used; by default all
    scheduler, threads, parallel_iterations   of the executor: see `weft.Dataflow`

    >>> @weft.compile(backend=weft.Split({"products": "cpu"}))
    ... def f(x, w):
    ...     return weft.exp(x @ w).sum()
    >>> f(weft.zeros(2, 3), weft.ones(3, 4))
    tensor(8.)
    """

    placement: str | Mapping[Any, str] = field(default_factory=dict)
    devices: str | tuple[str, ...] = ()
    scheduler: str = "pool"
    threads: int | None = None
    parallel_iterations: int = 10

    def __post_init__(self) -> None:
        Dataflow(*self.executor())  # checks them

    @property
    def names(self) -> tuple[str, ...]:
        """The devices that may be used."""
        return (self.devices,) if isinstance(self.devices, str) else tuple(self.devices)

    def executor(self) -> tuple[str, int | None, int]:
        """The options of the executor."""
        return self.scheduler, self.threads, self.parallel_iterations
