"""Clusters as plain data: processors, links, and how many of each.

The constants of presets are published ones: data sheets for peaks and bandwidths; for what is
reached of them, the public measurements that docs/planning.md names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from weft.base.errors import DistributedError

__all__ = ["Cluster", "Link", "Processor", "tile_efficiency"]

#: Tiles that libraries of products cut results into, and the share of the sustained rate that each
#: reaches: small tiles read more from memory for the same work.
TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.9), (128, 64, 0.75), (64, 64, 0.6))
#: The share of the peak that the largest products reach. With normally distributed numbers, cuBLAS
#: reaches 258 of 312 TF/s on an A100 for 8192 × 8192 × 8192 in bfloat16 (H. He, "Strangely, Matrix
#: Multiplications on GPUs Run Faster When Given Predictable Data", 2024): by the rule below, this
#: share times 0.97.
SUSTAINED = 0.852
#: Steps along the inner size that a tile spends on its prologue and epilogue.
PROLOGUE = 256


def tile_efficiency(processor: Processor, m: int, n: int, k: int, batch: int) -> float:
    """The share of the peak that a product of (m, k) and (k, n) reaches, `batch` times.

    The result is cut into tiles; what stands out over its edge is wasted, and so are units that
    have no tile in the last wave. Each tile has a prologue and an epilogue.
    """
    best = 0.0
    for rows, columns, quality in TILES:
        down, across = -(-m // rows), -(-n // columns)
        count = down * across * batch
        edges = (m * n) / (down * rows * across * columns)
        waves = count / (-(-count // processor.units) * processor.units)
        best = max(best, quality * edges * waves)
    return processor.sustained * best * k / (k + PROLOGUE)


@dataclass(frozen=True)
class Processor:
    """One device.

    peak        flops per second of products, by dtype
    memory      bytes
    bandwidth   bytes per second from its memory
    streamed    the share of this bandwidth that kernels reach
    units       how many tiles run at once
    sustained   the share of the peak that the best product reaches
    launch      seconds that a kernel costs besides
    efficiency  (processor, m, n, k, batch) -> the share of the peak that a product reaches
    """

    name: str
    peak: Mapping[str, float]
    memory: float
    bandwidth: float
    streamed: float = 0.85
    units: int = 1
    sustained: float = SUSTAINED
    launch: float = 3e-6
    efficiency: Callable[[Processor, int, int, int, int], float] = tile_efficiency

    def peak_of(self, dtype: str) -> float:
        """Flops per second for a dtype; of one that is not listed, those of the widest."""
        return self.peak.get(dtype) or min(self.peak.values())

    def product_seconds(self, m: int, n: int, k: int, batch: int, dtype: str, size: int) -> float:
        """The time of a product whose elements have `size` bytes: work, or memory."""
        if not m * n * k * batch:
            return 0.0
        share = self.efficiency(self, m, n, k, batch)
        work = 2.0 * batch * m * n * k / (self.peak_of(dtype) * share)
        moved = size * batch * (m * k + k * n + m * n)
        return max(work, self.moving_seconds(moved)) + self.launch

    def moving_seconds(self, moved: float) -> float:
        """The time in which its memory gives or takes these bytes."""
        return moved / (self.bandwidth * self.streamed)


@dataclass(frozen=True)
class Link:
    """What one device sends, in one direction.

    bandwidth   bytes per second
    latency     seconds for one message
    reached     the share of the bandwidth that large messages reach
    """

    bandwidth: float
    latency: float
    reached: float = 0.8

    @property
    def rate(self) -> float:
        return self.bandwidth * self.reached


@dataclass(frozen=True)
class Cluster:
    """Nodes with devices, a link from each device to others inside of its node, and one to other
    nodes.

    >>> cluster = weft.distributed.Cluster.a100(gpus=64)
    >>> cluster.nodes, cluster.processor.peak["bfloat16"] / 1e12
    (8, 312.0)
    """

    processor: Processor
    devices: int
    per_node: int
    inside: Link
    between: Link
    name: str = field(default="cluster")

    def __post_init__(self) -> None:
        if self.devices < 1 or self.per_node < 1:
            raise DistributedError(
                f"a cluster has devices: {self.devices} on {self.per_node} per node"
            )
        if self.devices > self.per_node and self.devices % self.per_node:
            raise DistributedError(
                f"{self.devices} devices do not fill nodes of {self.per_node}",
                hint=f"take a multiple of {self.per_node}",
            )

    @property
    def nodes(self) -> int:
        return math.ceil(self.devices / self.per_node)

    def of(self, devices: int) -> Cluster:
        """The same cluster with another number of devices."""
        return replace(self, devices=devices)

    @staticmethod
    def a100(gpus: int) -> Cluster:
        """NVIDIA A100 80 GB in nodes of 8: NVLink inside, 8 HDR InfiniBand links between."""
        processor = Processor(
            "A100 80 GB",
            {"bfloat16": 312e12, "float16": 312e12, "float32": 19.5e12, "float64": 19.5e12},
            memory=80e9,
            bandwidth=2.0e12,
            units=108,
        )
        return Cluster(
            processor, gpus, 8, Link(300e9, 3e-6), Link(25e9, 8e-6), f"{gpus} × A100 80 GB"
        )

    @staticmethod
    def h100(gpus: int) -> Cluster:
        """NVIDIA H100 80 GB in nodes of 8: NVLink inside, 8 NDR InfiniBand links between."""
        processor = Processor(
            "H100 80 GB",
            {"bfloat16": 989e12, "float16": 989e12, "float32": 67e12, "float64": 67e12},
            memory=80e9,
            bandwidth=3.35e12,
            units=132,
            sustained=0.75,
        )
        return Cluster(
            processor, gpus, 8, Link(450e9, 3e-6), Link(50e9, 8e-6), f"{gpus} × H100 80 GB"
        )

    @staticmethod
    def cpus(ranks: int) -> Cluster:
        """Ranks on the cores of one usual machine; rough figures, for comparing plans."""
        processor = Processor(
            "CPU core",
            {"float32": 6e10, "float64": 3e10},
            memory=8e9,
            bandwidth=1e10,
            sustained=0.8,
            launch=1e-6,
            efficiency=_flat,
        )
        return Cluster(processor, ranks, ranks, Link(5e9, 2e-6), Link(1e9, 2e-5), f"{ranks} ranks")


def _flat(processor: Processor, m: int, n: int, k: int, batch: int) -> float:
    """Of a core: the same for all sizes, but the smallest."""
    return processor.sustained * k / (k + 16)
