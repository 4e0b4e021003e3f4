"""The time of messages: a latency for each, and bytes over the bandwidth (the α–β model).

Ranks are numbered so that those of one tensor group are neighbours, then those of one data group,
then the stages of a pipeline. A group whose members stand in several nodes sends over the links
between nodes; all groups of one axis do so at once, and share the links of their nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

from weft.distributed.planning.cluster import Cluster

__all__ = ["Group", "group_of"]


@dataclass(frozen=True)
class Group:
    """Devices that call collectives together.

    size      how many
    rate      bytes per second that each sends to the next, at the slowest place of their ring
    latency   seconds of one message there
    """

    size: int
    rate: float
    latency: float

    def all_reduce(self, moved: float) -> float:
        """The time in which each gets the sum of what all have: a ring, or a tree if that is
        faster."""
        n = self.size
        if n == 1 or not moved:
            return 0.0
        ring = 2 * (n - 1) / n * moved / self.rate + 2 * (n - 1) * self.latency
        tree = 2 * moved / self.rate + 2 * log2(n) * self.latency
        return min(ring, tree)

    def all_gather(self, moved: float) -> float:
        """The time in which each gets all parts of a whole of these bytes; reduce_scatter as
        well."""
        n = self.size
        if n == 1 or not moved:
            return 0.0
        return (n - 1) / n * moved / self.rate + (n - 1) * self.latency

    def all_to_all(self, moved: float) -> float:
        """The time in which parts along one axis become parts along another."""
        n = self.size
        if n == 1 or not moved:
            return 0.0
        return (n - 1) / n * moved / n / self.rate + (n - 1) * self.latency

    def send(self, moved: float) -> float:
        """The time of a message to the next."""
        return moved / self.rate + self.latency


def group_of(cluster: Cluster, size: int, step: int) -> Group:
    """The group of `size` devices whose numbers are `step` apart."""
    inside = cluster.inside
    if size * step <= cluster.per_node or size == 1:
        return Group(size, inside.rate, inside.latency)
    # A ring goes through the members of a node, then to the next node. Each group has as many links
    # out of a node as it has members there, and may use them all.
    here = max(1, cluster.per_node // step)
    rate = min(inside.rate, here * cluster.between.rate)
    return Group(size, rate, cluster.between.latency)
