"""How a step is laid out over devices: degrees, cuts, and what is traded for memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from weft.base.errors import DistributedError
from weft.distributed.schedules import SCHEDULES

__all__ = ["SHARDED", "ParallelPlan"]

#: What the ranks of a data group share out among them: nothing, the optimizer's state, or
#: parameters and gradients as well.
SHARDED = ("none", "state", "all")


@dataclass(frozen=True)
class ParallelPlan:
    """Degrees and choices; the product of the degrees is the number of devices.

    data, tensor, pipeline   how many devices lie along each axis
    micro_batch    samples that one pipeline takes at a time
    recompute      whether the backward computes each unit's forward again, instead of keeping it
    sharded        what ranks of a data group share out: "none", "state" or "all"
    sequence       whether values between products are cut over the tensor axis, along their axis 1
    schedule       "1f1b", "gpipe" or "interleaved"
    chunks         parts of the model on each stage, with the interleaved schedule
    overlap        whether messages travel while devices compute: sums of gradients during the
                   backward, what a stage sends to the next
    cuts           for each stage (with chunks: each part), the number of its first unit; None:
                   where the slowest stage is fastest; "even": the units of a list of modules
                   shared evenly
    layouts        weights that are pinned: the name of the module -> the axis that is cut, or None
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    micro_batch: int = 1
    recompute: bool = False
    sharded: str = "none"
    sequence: bool = False
    schedule: str = "1f1b"
    chunks: int = 1
    overlap: bool = True
    cuts: tuple[int, ...] | str | None = None
    layouts: Mapping[str, int | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("data", "tensor", "pipeline", "micro_batch", "chunks"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise DistributedError(f"{name} is {value!r}: at least 1", op="ParallelPlan")
        for name, known in (("sharded", SHARDED), ("schedule", SCHEDULES)):
            if getattr(self, name) not in known:
                raise DistributedError(
                    f"{name} is {getattr(self, name)!r}", op="ParallelPlan", hint=f"one of {known}"
                )
        if (self.chunks > 1) != (self.schedule == "interleaved"):
            raise DistributedError(
                f"the schedule {self.schedule!r} with {self.chunks} chunks",
                op="ParallelPlan",
                hint="schedule='interleaved' needs chunks of 2 or more; others have 1",
            )

    @property
    def devices(self) -> int:
        return self.data * self.tensor * self.pipeline

    @property
    def mesh(self) -> dict[str, int]:
        """The axes, for `weft.distributed.Mesh`."""
        return {"pipeline": self.pipeline, "data": self.data, "tensor": self.tensor}

    def __str__(self) -> str:
        parts = [f"data {self.data} × tensor {self.tensor} × pipeline {self.pipeline}"]
        parts.append(f"micro-batch {self.micro_batch}")
        if self.pipeline > 1:
            chunks = f" of {self.chunks} chunks" if self.chunks > 1 else ""
            parts.append(self.schedule + chunks)
        parts += ["recomputed"] if self.recompute else []
        parts += ["sequence cut"] if self.sequence else []
        if self.sharded != "none" and self.data > 1:
            parts.append("sharded state" if self.sharded == "state" else "all sharded")
        return ", ".join(parts)
