"""The state of what takes part in training: what to save of an object, and how to put it back."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from weft.base.errors import ShapeError
from weft.core.bind import rebind
from weft.core.grad_mode import no_grad
from weft.core.tensor import Tensor
from weft.ops.generator import Generator

__all__ = ["is_stateful", "put_state", "state_of"]


class _Kind(NamedTuple):
    """How the state of a kind of object is read and written."""

    get: Callable[[Any], Any]
    put: Callable[[Any, Any], None]


def _put_tensor(tensor: Tensor, value: Tensor) -> None:
    if not isinstance(value, Tensor) or value.type != tensor.type:
        found = value.type if isinstance(value, Tensor) else type(value).__name__
        raise ShapeError(f"a tensor is {tensor.type}, and its state {found}", op="restore")
    with no_grad():
        rebind(tensor, value.detach(), "restore")


#: The first class that fits counts.
_KINDS: dict[type, _Kind] = {
    Tensor: _Kind(lambda tensor: tensor.detach(), _put_tensor),
    Generator: _Kind(
        lambda generator: generator.state,
        lambda generator, state: setattr(generator, "state", state),
    ),
    np.random.Generator: _Kind(
        lambda generator: generator.bit_generator.state,
        lambda generator, state: setattr(generator.bit_generator, "state", state),
    ),
    np.random.RandomState: _Kind(
        lambda generator: generator.get_state(legacy=False),
        lambda generator, state: generator.set_state(state),
    ),
    random.Random: _Kind(
        lambda generator: generator.getstate(), lambda generator, state: generator.setstate(state)
    ),
}
_BY_NAME = _Kind(lambda obj: obj.state_dict(), lambda obj, state: obj.load_state_dict(state))


def _kind(obj: Any) -> _Kind | None:
    for cls, kind in _KINDS.items():
        if isinstance(obj, cls):
            return kind
    has_both = hasattr(obj, "state_dict") and hasattr(obj, "load_state_dict")
    return _BY_NAME if has_both and not isinstance(obj, type) else None


def is_stateful(obj: Any) -> bool:
    """Whether a state can be put into an object."""
    if isinstance(obj, tuple):
        return all(map(is_stateful, obj))
    return isinstance(obj, (dict, list)) or _kind(obj) is not None


def state_of(obj: Any) -> Any:
    """The state of an object; of plain values, the values themselves."""
    kind = _kind(obj)
    if kind is not None:
        return kind.get(obj)
    if isinstance(obj, dict):
        return {key: state_of(part) for key, part in obj.items()}
    if isinstance(obj, (list, tuple)):
        return [state_of(part) for part in obj]
    return obj


def put_state(obj: Any, state: Any) -> Any:
    """Put a state into an object, and return what stands for it from now on: the object itself,
    or a plain value."""
    kind = _kind(obj)
    if kind is not None:
        kind.put(obj, state)
    elif isinstance(obj, dict):
        values = {key: put_state(obj.get(key), part) for key, part in state.items()}
        obj.clear()
        obj.update(values)
    elif isinstance(obj, (list, tuple)):
        old = [*obj, *[None] * (len(state) - len(obj))]
        parts = [put_state(one, part) for one, part in zip(old, state, strict=False)]
        if isinstance(obj, tuple):
            return tuple(parts)
        obj[:] = parts
    else:
        return state
    return obj
