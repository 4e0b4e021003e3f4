"""In which order a device of a pipeline runs the forwards and backwards of micro-batches.

- "gpipe": all forwards, then all backwards: simple, but all micro-batches are held at once.
- "1f1b": as soon as a micro-batch comes back, its backward: a stage holds as many of them as there
  are stages from it to the end.
- "interleaved": as "1f1b", with several chunks of the model on each device: device d of p has the
  stages d, d + p, d + 2p, ...
"""

from __future__ import annotations

__all__ = ["SCHEDULES", "Step", "in_flight", "order_of"]

SCHEDULES = ("1f1b", "gpipe", "interleaved")

#: What a device does: (is forward, micro-batch, chunk).
Step = tuple[bool, int, int]


def order_of(schedule: str, stages: int, count: int, device: int, chunks: int = 1) -> list[Step]:
    """What a device does, in order, for `count` micro-batches."""
    if schedule == "gpipe":
        return [(True, i, 0) for i in range(count)] + [(False, i, 0) for i in range(count)]
    if schedule == "interleaved":
        turn = stages * chunks
        work = [
            (k // turn * stages + k % stages, k % turn // stages) for k in range(count * chunks)
        ]
        forward = [(True, i, chunk) for i, chunk in work]
        backward = [(False, i, chunks - 1 - chunk) for i, chunk in work]
    else:
        forward = [(True, i, 0) for i in range(count)]
        backward = [(False, i, 0) for i in range(count)]
    ahead = _ahead(schedule, stages, count, device, chunks)
    found = forward[:ahead]
    for one, two in zip(forward[ahead:], backward, strict=False):
        found += [one, two]
    return found + backward[len(forward) - ahead :]


def _ahead(schedule: str, stages: int, count: int, device: int, chunks: int) -> int:
    """How many forwards a device does before it begins to alternate."""
    if schedule == "gpipe" or (schedule == "interleaved" and count == stages):
        return count * chunks
    if schedule == "interleaved":
        return min((stages - 1 - device) * 2 + (chunks - 1) * stages, count * chunks)
    return min(stages - 1 - device, count)


def in_flight(schedule: str, stages: int, count: int, device: int, chunks: int = 1) -> list[int]:
    """For each chunk of a device, how many micro-batches have had their forward, but not their
    backward, when it begins to alternate; from there on, one ends for each that begins."""
    first = min(_ahead(schedule, stages, count, device, chunks) + 1, count * chunks)
    turns, rest = divmod(first, stages * chunks)
    return [turns * stages + min(max(rest - c * stages, 0), stages) for c in range(chunks)]
