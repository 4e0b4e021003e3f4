"""The works of `large.py`, one file per group. A new group is one file and one row here."""

from __future__ import annotations

from large_works import depth, eager, models
from large_works.base import Large

__all__ = ["GROUPS", "LARGE", "WORKS"]

#: Works by group: `python benchmarks/large.py depth` runs one.
GROUPS: dict[str, list[Large]] = {
    "depth": depth.WORKS,
    "eager": eager.WORKS,
    "models": models.WORKS,
}
LARGE = [large for group in GROUPS.values() for large in group]
WORKS = [large.work for large in LARGE]
