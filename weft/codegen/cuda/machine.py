"""The GPU that code is made for."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GpuMachine"]


@dataclass(frozen=True, slots=True)
class GpuMachine:
    """
    arch        what LLVM's NVPTX target makes code for; drivers translate it to newer GPUs
    warp        threads that run together, and may read each other's registers
    blocks      blocks of a grid that share one sum: enough to fill a large GPU
    threads     threads of a block
    row         threads of a block that goes over a row, at most
    each        elements of a row that a thread keeps in registers, at most
    many        elements from which on each thread computes several neighbours
    items       items of work that run at the same time: of kernels that are written for CPUs
    whole       whether one block runs a whole program that is small
    convolves   whether there is a library for convolutions
    emulated    the code is for a CPU, where each thread of a block is a call: for tests
    """

    arch: str = "sm_80"
    warp: int = 32
    blocks: int = 528
    threads: int = 256
    row: int = 1024
    each: int = 8
    many: int = 1 << 18
    items: int = 1 << 17
    whole: bool = True
    convolves: bool = False
    emulated: bool = False

    @property
    def capability(self) -> int:
        """The compute capability of `arch`, times 10."""
        return int(self.arch[3:].rstrip("a"))

    @property
    def warpgroups(self) -> bool:
        """Whether four warps multiply together: on those of 9.0 alone, in code for these alone."""
        return self.arch == "sm_90a"

    @property
    def has_vectors(self) -> bool:
        """Whether vectors are more than a few scalars."""
        return True

    def lanes(self, itemsize: int) -> int:
        """How many elements of a size code that is written for CPUs handles at once."""
        return max(1, 16 // itemsize)

    def piece(self, _size: int, itemsize: int = 1) -> int:
        """How many elements one item of work moves: few, as there are many threads."""
        return self.lanes(itemsize)

    def parts(self, _count: int) -> int:
        """How many items some work is cut into at most."""
        return self.items

    @property
    def has_many_cores(self) -> bool:
        """Whether items are cut as for CPUs of many cores: `parts` has more of them here."""
        return False

    def fuses(self, _itemsize: int = 4) -> bool:
        """Whether it multiplies and adds in one instruction, rounded once."""
        return True

    def has(self, feature: str) -> bool:
        """Whether it has a feature: conversions of half, by the name that CPUs have for them, those
        of bfloat16, powers of 2 in float32."""
        if self.emulated:
            return False
        return feature in ("f16c", "ex2") or (feature == "cvt.bf16" and self.capability >= 80)
