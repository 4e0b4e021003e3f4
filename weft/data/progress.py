"""How far a loop over a DataLoader has come, so that another process can go on from there.

The order of a loop follows from the states of the random generators when it began. So a state has
these, and how many batches were drawn and given. To go on, the order is drawn again from those
states, as far as it had been drawn; then the generators get back the states of now.
"""

from __future__ import annotations

import contextlib
import random
import zlib
from collections.abc import Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import numpy as np

from weft.base.errors import WeftError
from weft.core.tensor import Tensor
from weft.ops.generator import Generator, get_rng_state, set_rng_state

__all__ = [
    "Progress",
    "ResumeError",
    "bytes_of",
    "loops_of",
    "other_states",
    "random_states",
    "set_random_states",
]


class ResumeError(WeftError, RuntimeError):
    """A loop over a DataLoader that cannot be saved, or not be gone on with."""


def random_states(generators: Sequence[Generator] = ()) -> dict[str, Any]:
    """The states of the random generators of weft, NumPy and Python, and of others."""
    return {
        "weft": get_rng_state(),
        "numpy": np.random.get_state(legacy=False),  # noqa: NPY002 - the one that users draw from
        "python": random.getstate(),
        "own": [generator.state for generator in generators],
    }


def set_random_states(states: dict[str, Any], generators: Sequence[Generator] = ()) -> None:
    """Let the generators go on from the states that `random_states` gave."""
    if len(states["own"]) != len(generators):
        raise ResumeError(
            f"the state has {len(states['own'])} generators, and here are {len(generators)}",
            op="load_state_dict",
        )
    set_rng_state(states["weft"])
    np.random.set_state(states["numpy"])  # noqa: NPY002
    random.setstate(states["python"])
    for generator, state in zip(generators, states["own"], strict=True):
        generator.state = state


@contextlib.contextmanager
def other_states(states: dict[str, Any], generators: Sequence[Generator]) -> Iterator[None]:
    """Draw from other states for a while."""
    now = random_states(generators)
    set_random_states(states, generators)
    try:
        yield
    finally:
        set_random_states(now, generators)


class Progress:
    """How far a loop has come."""

    def __init__(self, begin: dict[str, Any], seed: int, samples: int) -> None:
        self.begin = begin  # the states of the random generators
        self.seed = seed  # of the workers
        self.drawn = 0  # pieces that were asked for: workers are ahead
        self.given = 0  # batches that came out
        self.digest = samples  # of their number and the pieces
        #: Whether the dataset itself, read in order, drew from generators that others draw from.
        self.draws = False

    def counted(self, pieces: Iterator[Any]) -> Iterator[Any]:
        """Pieces, counted as they are drawn."""
        for piece in pieces:
            self.drawn += 1
            self.digest = zlib.crc32(bytes_of(piece), self.digest)
            yield piece

    def watched(self, batches: Iterator[Any], generators: Sequence[Generator]) -> Iterator[Any]:
        """Batches of a dataset that is read in order, noting whether that draws random numbers."""
        while True:
            before = None if self.draws else _fingerprint(generators)
            batch = next(batches, _END)
            if before is not None and _fingerprint(generators) != before:
                self.draws = True
            if batch is _END:
                return
            yield batch

    def state(self) -> dict[str, Any]:
        if self.draws:
            raise ResumeError(
                "the dataset draws random numbers while it is read, among those that training "
                "draws: the middle of its epoch cannot be found again",
                op="DataLoader.state_dict",
                hint="let its __iter__ draw from a generator of its own, or save between epochs",
            )
        return {
            "begin": self.begin,
            "seed": self.seed,
            "drawn": self.drawn,
            "given": self.given,
            "digest": self.digest,
        }


_END = object()


def bytes_of(piece: Any) -> bytes:
    """Bytes that differ if pieces do, as far as they are numbers or text."""
    if isinstance(piece, Tensor):
        piece = piece.numpy()
    if isinstance(piece, np.ndarray):
        return np.ascontiguousarray(piece).tobytes()
    parts = piece if isinstance(piece, (list, tuple)) else [piece]
    known = all(isinstance(part, (int, str, slice, np.integer)) for part in parts)
    return repr(
        [int(p) if isinstance(p, np.integer) else p for p in parts] if known else ""
    ).encode()


def _fingerprint(generators: Sequence[Generator]) -> Any:
    states = random_states(generators)
    numpy = states["numpy"]["state"]
    own = [state.tolist() for state in (states["weft"], *states["own"])]
    return own, states["python"], bytes(numpy["key"]), numpy["pos"]


#: The loops over each loader that have not come to their end.
_loops: WeakKeyDictionary[Any, WeakSet[Progress]] = WeakKeyDictionary()


def loops_of(loader: Any) -> WeakSet[Progress]:
    """The loops over a loader that have begun and not ended; one that nobody holds is none."""
    return _loops.setdefault(loader, WeakSet())
