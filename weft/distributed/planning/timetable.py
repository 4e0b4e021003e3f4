"""A pipeline's schedule, run event by event: each stage works through its list, and waits for
messages.

Nothing is assumed of bubbles: they are what stages wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from weft.base.errors import DistributedError
from weft.distributed.schedules import order_of

__all__ = ["Task", "Timetable", "timetable"]


@dataclass(frozen=True, slots=True)
class Task:
    """One forward or backward of one micro-batch on one device.

    chunk   which part of the model: a device with interleaved stages has several
    """

    device: int
    forward: bool
    micro_batch: int
    chunk: int
    start: float
    stop: float


@dataclass
class Timetable:
    """When everything ran.

    seconds   when the last backward ends
    ends      for each device, when its last backward began and ended
    busy      seconds that each device works
    tasks     all tasks, in the order in which they began, if they were asked for
    """

    seconds: float
    ends: list[tuple[float, float]]
    busy: list[float]
    tasks: list[Task] = field(default_factory=list)

    @property
    def bubble(self) -> float:
        """The share of the devices' time in which they wait."""
        return 1 - sum(self.busy) / (len(self.busy) * self.seconds)


def timetable(
    forward: Sequence[Sequence[float]],
    backward: Sequence[Sequence[float]],
    send: float,
    count: int,
    schedule: str = "1f1b",
    *,
    overlap: bool = True,
    keep_tasks: bool = False,
) -> Timetable:
    """Run a schedule: `forward[device][chunk]` seconds for one micro-batch, `backward` alike.

    send      seconds of a message from a stage to the next; a link carries one at a time
    count     how many micro-batches
    overlap   whether a device goes on while what it sends is under way

    >>> from weft.distributed.planning.timetable import timetable
    >>> run = timetable([[1.0]] * 4, [[2.0]] * 4, 0.0, 8)
    >>> run.seconds, round(run.bubble, 3)      # (p - 1) / m of the work: 3 / 8 of 24
    (33.0, 0.273)
    """
    stages, chunks = len(forward), len(forward[0])
    if schedule == "interleaved" and count % stages:
        raise DistributedError(
            f"{count} micro-batches are not a multiple of {stages} stages",
            op="interleaved schedule",
            hint="choose another micro_batch, or schedule='1f1b'",
        )
    last = stages * chunks - 1
    orders = [order_of(schedule, stages, count, device, chunks) for device in range(stages)]
    at = [0] * stages
    free = [0.0] * stages
    links: dict[tuple[int, bool], float] = {}
    there: dict[tuple[bool, int, int], float] = {}  # (forward, stage of the model, micro-batch)
    begun = [0.0] * stages
    tasks: list[Task] = []
    for i in range(count):
        there[True, 0, i] = 0.0
    waiting = set(range(stages))
    while waiting:
        device = waiting.pop()
        order = orders[device]
        while at[device] < len(order):
            is_forward, i, chunk = order[at[device]]
            stage = chunk * stages + device
            arrived = there.get((is_forward, stage, i))
            if arrived is None:
                break
            start = max(arrived, free[device])
            stop = start + (forward if is_forward else backward)[device][chunk]
            free[device] = stop
            begun[device] = start
            at[device] += 1
            if keep_tasks:
                tasks.append(Task(device, is_forward, i, chunk, start, stop))
            target = stage + 1 if is_forward else stage - 1
            if is_forward and stage == last:
                there[False, stage, i] = stop
            elif target >= 0:
                link = (device, is_forward)
                begins = max(stop, links.get(link, 0.0))
                links[link] = there[is_forward, target, i] = begins + send
                if not overlap:
                    free[device] = begins + send
                waiting.add(target % stages)
    if any(at[device] < len(order) for device, order in enumerate(orders)):
        raise DistributedError(f"the schedule {schedule} of {stages} stages waits for itself")
    busy = [count * (sum(forward[device]) + sum(backward[device])) for device in range(stages)]
    tasks.sort(key=lambda task: (task.start, task.device))
    return Timetable(max(free), list(zip(begun, free, strict=True)), busy, tasks)
