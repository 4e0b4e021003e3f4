"""`Generator`: the source of random numbers. Its whole state is one tensor, `uint64[2]`.

A draw is two pure ops: one makes numbers from the state, the other advances the state past the used
blocks. So a compiled graph takes the state as an input and returns it as an output, and draws the
same numbers as eager code. `weft.ops.philox` specifies the numbers for each state.
"""

from __future__ import annotations

import contextlib
import operator
import os
import threading
from collections.abc import Iterator
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from weft.base import dtypes
from weft.base.device import Device, as_device
from weft.base.errors import DTypeError, RangeError, ShapeError
from weft.base.world import own_copy
from weft.core.bind import bind, new_tensor
from weft.core.operands import as_tensor, assign
from weft.core.public import public
from weft.core.tensor import StateTensor, Tensor
from weft.ir.dispatch import family_for
from weft.ir.op import Op
from weft.ir.types import TensorType
from weft.ops import philox
from weft.ops.batch_random import advance_rule
from weft.ops.identity import detached


def check_state(state: TensorType) -> None:
    if state.dtype is not dtypes.uint64 or state.shape != (2,):
        raise ShapeError(
            f"the state of a generator is u64[2], not {state}",
            hint="use what generator.state or weft.get_rng_state() gave",
        )


def _advance_type(state: TensorType, *, blocks: int) -> TensorType:
    check_state(state)
    return state


ADVANCE = Op(
    "random_advance",
    _advance_type,
    philox.advance,
    kinds="unsigned integer",
    vjp=(None,),
    batch=advance_rule,
)


@public()
class Generator:
    """A stream of random numbers that its seed determines, on every device and in every mode.

    Streams of different seeds are independent. Without a seed the operating system gives one. A
    generator may be used from several threads: each draw gets numbers of its own.

    >>> generator = weft.Generator(seed=0)
    >>> weft.rand(2, generator=generator)
    tensor([0.39904642, 0.88052016])
    >>> saved = generator.state
    >>> saved.tolist()
    [0, 1]
    >>> weft.rand(2, generator=generator)
    tensor([0.97224116, 0.36209106])
    >>> generator.state = saved
    >>> weft.rand(2, generator=generator)
    tensor([0.97224116, 0.36209106])
    """

    __slots__ = ("__weakref__", "_lock", "_shared")

    def __init__(self, seed: int | None = None, device: Any = None) -> None:
        # Reentrant, for recorders that draw while they handle a draw.
        self._lock = threading.RLock()
        self._shared = _new_state(_entropy() if seed is None else _key(seed), as_device(device))

    @property
    def _state(self) -> Tensor:
        """The state of this rank: ranks that are threads draw the same numbers, each for itself."""
        found: Tensor = own_copy(self._shared, self._own_state)
        return found

    def _own_state(self) -> Tensor:
        with self._lock:
            key, blocks = _copied(self._shared._data), self._shared.device
        state = _new_state(0, blocks)
        state._data = key
        return state

    @property
    def state(self) -> Tensor:
        """`uint64[2]`: the seed, and the number of 128-bit blocks used so far."""
        with self._lock:
            return detached(self._state)

    @state.setter
    def state(self, state: Tensor) -> None:
        tensor = as_tensor(state, "Generator.state")
        check_state(tensor.type)
        with self._lock:
            assign(self._state, tensor.to_device(self._state.device), "Generator.state")

    @property
    def device(self) -> Device:
        """Where the state lies, and where numbers are drawn unless the call says otherwise."""
        return self._state.device

    def manual_seed(self, seed: int) -> Generator:
        """Restart from a seed: an int from -2**63 to 2**64 - 1 (-1 is the same as 2**64 - 1)."""
        # A number, not a new state: a recorder would take a state for the one that it replaces.
        fresh = new_tensor(np.array([_key(seed), 0], dtype=np.uint64), self.device)
        with self._lock:
            assign(self._state, fresh, "manual_seed")
        return self

    def seed(self) -> int:
        """Restart from a seed of the operating system; returns the seed."""
        chosen = _entropy()
        self.manual_seed(chosen)
        return chosen

    def initial_seed(self) -> int:
        """The seed that the stream began with, from 0 to 2**64 - 1."""
        return int(self.state.numpy()[0])

    def clone(self) -> Generator:
        """Another generator that will give the same numbers."""
        return _restored(self.state)

    def advance(self, blocks: int) -> Tensor:
        """Reserve `blocks` blocks of 128 bits: returns the state that makes them.

        A random op of your own needs nothing else.
        """
        with self._lock:
            before = detached(self._state)
            assign(self._state, bind(ADVANCE, before, blocks=blocks), "random_advance")
        return before

    def __reduce__(self) -> Any:
        return _restored, (self.state,)

    def __repr__(self) -> str:
        key, block = self.state.tolist()
        place = "" if self.device == as_device(None) else f", device='{self.device}'"
        return f"<weft.Generator seed={key}, {block} blocks used{place}>"


def _restored(state: Tensor) -> Generator:
    generator = Generator(0, state.device)
    generator.state = state
    return generator


def _new_state(key: int, device: Device) -> Tensor:
    array = np.array([key, 0], dtype=np.uint64)
    state = StateTensor()
    state._data = family_for(device).from_numpy(array, device)
    state._node = None
    _states[id(state)] = state
    return state


#: The states of all live generators.
_states: WeakValueDictionary[int, Tensor] = WeakValueDictionary()


class Draws:
    """The states of all generators at some time, to draw the same numbers again."""

    def __init__(self) -> None:
        self._held = [(state, _copied(state._data)) for state in list(_states.values())]

    def end(self) -> None:
        """Keep only the generators that were drawn from since."""
        self._held = [(state, data) for state, data in self._held if _differ(state._data, data)]

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """Draw again what was drawn since; afterwards the generators are as they were before."""
        now = [(state, _copied(state._data)) for state, _ in self._held]
        for state, data in self._held:
            state._data = _copied(data)
        try:
            yield
        finally:
            for state, data in now:
                state._data = data


def _differ(now: Any, before: Any) -> bool:
    if isinstance(now, np.ndarray) and isinstance(before, np.ndarray):
        return not np.array_equal(now, before)
    return now is not before


def _copied(data: Any) -> Any:
    """A copy: compiled code writes states in place."""
    return data.copy() if isinstance(data, np.ndarray) else data


def _entropy() -> int:
    return int.from_bytes(os.urandom(8), "little")


def _key(seed: Any) -> int:
    try:
        number = operator.index(seed)
    except TypeError:
        raise DTypeError(f"a seed is an int, not {seed!r:.60}", op="manual_seed") from None
    if not -(2**63) <= number < 2**64:
        raise RangeError(
            f"the seed {number} does not fit into 64 bits",
            op="manual_seed",
            hint="use an int from -2**63 to 2**64 - 1, e.g. seed % 2**64",
        )
    return number % 2**64


#: The generator of functions that are called without one.
default_generator = Generator()


@public()
def manual_seed(seed: int) -> Generator:
    """Seed the default generator, which all functions without `generator=` draw from; returns it.

    >>> weft.manual_seed(0)
    <weft.Generator seed=0, 0 blocks used>
    >>> weft.rand(2)
    tensor([0.39904642, 0.88052016])
    """
    return default_generator.manual_seed(seed)


@public()
def get_rng_state() -> Tensor:
    """The state of the default generator, for `set_rng_state`."""
    return default_generator.state


@public()
def set_rng_state(state: Tensor) -> None:
    """Let the default generator continue from `state`."""
    default_generator.state = state
