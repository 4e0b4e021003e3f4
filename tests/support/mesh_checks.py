"""What programs over a mesh must do on any number of ranks: checks that each rank makes.

Run as a script, it makes all of them on the ranks that MPI started.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import distributed

CHECKS: dict[str, Callable[[], None]] = {}


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS[function.__name__] = function
    return function


def raises(words: str, call: Callable[[], Any]) -> None:
    """The call raises an error of ours with these words, on this rank."""
    with pytest.raises(weft.errors.WeftError, match=re.escape(words)):
        call()


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function as machine code: each call compiles for itself, so ranks that are threads do not
    share what they record."""
    return weft.compile(function, backend="native")


@check
def messages_of_a_call_that_fails_are_forgotten() -> None:
    """Sums are on their way when an index turns out to be wrong, on all ranks."""

    @compiled
    def f(x: weft.Tensor, i: weft.Tensor) -> weft.Tensor:
        summed = distributed.all_reduce(x)
        return summed + (weft.take(x @ x, i, axis=0) @ x)

    rank, ranks = distributed.rank(), distributed.world_size()
    x = weft.ones((64, 64)) * (1 + rank)
    wanted = ranks * (ranks + 1) / 2 + 64 * 64 * (1 + rank) ** 3
    for _ in range(2):
        for _ in range(3):
            found = f(x, weft.tensor([3])).numpy()
            np.testing.assert_array_equal(found, np.full((64, 64), wanted, np.float32))
        for _ in range(3):
            raises("index 64 is out of bounds", lambda: f(x, weft.tensor([64])))


if __name__ == "__main__":
    for call in CHECKS.values():
        call()
    if distributed.rank() == 0:
        sys.stdout.write(f"{len(CHECKS)} checks\n")
