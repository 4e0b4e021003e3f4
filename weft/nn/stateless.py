"""`functional_call`: a module as a function of its parameters."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from weft.core.bind import rebind
from weft.core.global_lock import turn
from weft.core.grad_mode import no_grad
from weft.core.operands import as_tensor
from weft.core.structure import changed
from weft.core.tensor import Tensor
from weft.nn.module import Module
from weft.nn.state import StateDictError

__all__ = ["functional_call"]


def functional_call(module: Module, params: Mapping[str, Any], /, *args: Any, **kwargs: Any) -> Any:
    """`module(*args, **kwargs)` with these tensors in the place of its parameters and buffers.

    `params` has names as `named_parameters` and `named_buffers` give them; what it does not name
    is the module's own. The module is as before afterwards. A buffer that the call writes, as
    BatchNorm does, is written in the tensor of `params`.

    Several threads may call it at once, also with one module: they take turns, as the module's own
    parameters hold the given values meanwhile. A thread that uses the module itself at that time,
    without `functional_call`, would see them, and needs a copy of the module.

    >>> layer = weft.nn.Linear(2, 1)
    >>> params = {"weight": weft.tensor([[1.0, 2.0]]), "bias": weft.tensor([0.5])}
    >>> weft.functional_call(layer, params, weft.tensor([10.0, 1.0]))
    tensor([12.5])
    """
    with turn(), _holding(module, params):
        return module(*args, **kwargs)


@contextlib.contextmanager
def _holding(module: Module, params: Mapping[str, Any]) -> Iterator[None]:
    if not isinstance(params, Mapping):
        raise StateDictError(
            f"parameters are a dictionary of tensors, not {type(params).__name__}",
            op="functional_call",
            hint="dict(module.named_parameters()) is one",
        )
    places = _places(module)
    unknown = [name for name in params if name not in places]
    if unknown:
        raise StateDictError(
            f"{type(module).__name__} has no parameter or buffer {', '.join(map(repr, unknown))}",
            op="functional_call",
            hint=f"it has {', '.join(places) or 'none'}",
        )
    given: dict[int, tuple[Tensor, Tensor]] = {}  # the place, and what is to be there
    for name, value in params.items():
        tensor, place = as_tensor(value, "functional_call"), places[name]
        before = given.get(id(place))
        if before is not None and before[1] is not tensor:
            raise StateDictError(
                f"{name} is shared under several names, and they are given different tensors",
                op="functional_call",
            )
        given[id(place)] = (place, tensor)
    own = [(place, place._data, place._node) for place, _ in given.values()]
    put: list[Any] = []
    # Captured functions look at the types of parameters only when this is told.
    other = any(place.type != tensor.type for place, tensor in given.values())
    if other:
        changed()
    try:
        for place, tensor in given.values():
            stand_in = tensor.clone()  # while someone records, a value of theirs
            place._data, place._node = stand_in._data, stand_in._node
            put.append(place._data)
        yield
        for (place, tensor), data in zip(given.values(), put, strict=True):
            if place._data is not data:
                _write(tensor, place)
    finally:
        for place, data, node in own:
            place._data, place._node = data, node
        if other:
            changed()


def _places(module: Module) -> dict[str, Tensor]:
    """Each parameter and buffer under all of its names."""
    found: dict[str, Tensor] = dict(module.named_parameters(remove_duplicate=False))
    found.update(module.named_buffers(remove_duplicate=False))
    return found


def _write(target: Tensor, value: Tensor) -> None:
    held = Tensor()
    held._data, held._node = value._data, value._node
    with no_grad():
        rebind(target, held, "functional_call")
