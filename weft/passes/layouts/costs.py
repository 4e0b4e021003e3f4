"""What communication and work cost, to choose between layouts."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Costs"]


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of collectives and of work; a planner gives those of its machines.

    latency  of one message
    link     for a byte that a rank sends
    memory   for a byte that is read or written
    flop     for one operation
    """

    latency: float = 5e-6
    link: float = 1e-10
    memory: float = 1e-11
    flop: float = 1e-12

    def all_gather(self, nbytes: int, ranks: int) -> float:
        """`nbytes` are those of the whole, here and below."""
        return self._rounds(ranks) + self.link * nbytes * (ranks - 1) / ranks

    reduce_scatter = all_gather

    def all_reduce(self, nbytes: int, ranks: int) -> float:
        return self._rounds(ranks) + self.link * nbytes * 2 * (ranks - 1) / ranks

    def all_to_all(self, nbytes: int, ranks: int) -> float:
        return self._rounds(ranks) + self.link * nbytes * (ranks - 1) / ranks**2

    def _rounds(self, ranks: int) -> float:
        return self.latency * (ranks - 1).bit_length()

    def change(
        self, before: int | str | None, after: int | str | None, nbytes: int, n: int
    ) -> float:
        """Of another layout along one mesh axis of n ranks."""
        if before == after:
            return 0.0
        if before is None:
            return self.memory * nbytes / (n if isinstance(after, int) else 1)
        if isinstance(before, int):
            if isinstance(after, int):
                return self.all_to_all(nbytes, n)
            return self.all_gather(nbytes, n)
        if after is None:
            return self.all_reduce(nbytes, n)
        return self.reduce_scatter(nbytes, n)

    def work(self, flops: int, nbytes: int) -> float:
        return max(self.flop * flops, self.memory * nbytes)
