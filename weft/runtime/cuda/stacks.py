"""The memory on a GPU that the stacks of a run lie in: it is filled from its start in each run."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Stacks"]

FIRST, TIMES = 1 << 20, 4


class Stacks:
    """Memory, and its bounds where kernels find them: the end of what is used, start and end."""

    def __init__(self, driver: Any, family: Any, device: Any) -> None:
        self._driver = driver
        self._family = family
        self._device = device
        self.size = 0
        self._memory: Any = None
        self._bounds = family.from_numpy(np.zeros(3, np.int64), device)
        self.grow()

    def address(self, *, empty: bool) -> int:
        """The address of the bounds; or of the one that says that nothing is used."""
        found: int = self._driver.address(self._bounds)
        return found + 8 * empty

    def grow(self) -> None:
        """Take more memory. What was in it is lost."""
        before = self.size
        self._memory = None
        try:
            self._take(before * TIMES or FIRST)
        except MemoryError:
            if before:
                self._take(before)
            raise

    def _take(self, size: int) -> None:
        self._memory = self._driver.empty((size,), np.uint8)
        self.size = size
        start = -(-self._driver.address(self._memory) // 256) * 256
        bounds = np.array([start, start, start + size - 256], np.int64)
        self._bounds[...] = self._family.from_numpy(bounds, self._device)
