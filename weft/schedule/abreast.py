"""Which steps run at the same time: neighbours that have nothing to do with one another.

A *wave* is a range of steps, none of which reads what another one writes. Threads share the kernels
of all its steps: first the first kernels, then the second ones. So one begins where others have
little left to do, and a small kernel takes one thread and not the time of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.base.dims import has_dims
from weft.ir.graph import Value
from weft.schedule.plan import Step
from weft.schedule.target import Target

__all__ = ["MOST", "waves_of"]

#: The most steps of a wave: what they use is in memory at the same time.
MOST = 8


def waves_of(
    steps: Sequence[Step], overwritten: Iterable[tuple[Value, Value]], target: Target
) -> list[tuple[int, int]]:
    """The waves of at least two steps: the first step of each, and the one after its last.

    `overwritten`: pairs of a result and the input that it is written in place of.
    """
    if not target.abreast:
        return []
    taken: dict[Value, list[Value]] = {}
    for value, given in overwritten:
        taken.setdefault(value, []).append(given)
    found: list[tuple[int, int]] = []
    first = 0
    reads: set[Value] = set()
    writes: set[Value] = set()

    def close(end: int) -> None:
        time = sum(kernel.nanoseconds for step in steps[first:end] for kernel in step.kernels)
        if end - first >= 2 and time >= target.costs.share:
            found.append((first, end))

    for place, step in enumerate(steps):
        own_reads = set(step.group.reads())
        own_writes = {*step.outputs, *(x for v in step.outputs for x in taken.get(v, ()))}
        apart = not (own_reads & writes or own_writes & (reads | writes))
        fits = _may_share(step, target)
        if not (fits and apart and place - first < MOST):
            close(place)
            first, reads, writes = place, set(), set()
            if not fits:
                first = place + 1
                continue
        reads |= own_reads
        writes |= own_writes
    close(len(steps))
    return found


def _may_share(step: Step, target: Target) -> bool:
    """Whether threads may run a step beside others. After a failure nothing may be written in place
    of inputs, so steps that may fail run alone."""
    kinds = ("loop", "product", "kernel", "attention", "attention_grad")
    return (
        step.kind in kinds
        and bool(step.kernels)
        and not step.tells
        and not has_dims((step.room,))
        and not any(kernel.varies for kernel in step.kernels)
        and not target.may_fail(step.group)
    )
