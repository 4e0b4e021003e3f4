"""The state of a module as a dictionary of tensors, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from weft.base.errors import WeftError
from weft.core.bind import rebind
from weft.core.grad_mode import no_grad
from weft.core.operands import cast
from weft.core.parts import Parts, lying_as
from weft.core.structure import changed
from weft.core.tensor import Tensor, wrap
from weft.nn.members import Members
from weft.nn.uninitialized import UninitializedBuffer, UninitializedParameter
from weft.ops.creation import asarray

__all__ = ["StateDictError"]


class StateDictError(WeftError, RuntimeError):
    """A state that does not fit the module it is loaded into."""


class Loaded(NamedTuple):
    """The names that a state lacked, and those the module does not have."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not any(self):
            return "<All keys matched successfully>"
        return f"Loaded(missing_keys={self[0]}, unexpected_keys={self[1]})"


def _entries(module: Members, prefix: str) -> Iterator[tuple[str, Tensor]]:
    """The state as PyTorch orders it: parameters, buffers, then each submodule's.

    A tensor that is shared stands under each of its names.
    """
    for tensors in (module._parameters, module._buffers):
        for name, tensor in tensors.items():
            if tensor is not None and name not in module._transient_buffers:
                yield prefix + name, tensor
    for name, child in module._modules.items():
        if child is not None:
            yield from _entries(child, f"{prefix}{name}.")


def state_dict(module: Members, prefix: str, keep_vars: bool) -> dict[str, Tensor]:
    entries = _entries(module, prefix)
    return {name: tensor if keep_vars else tensor.detach() for name, tensor in entries}


def load_state_dict(module: Members, state: Any, strict: bool, assign: bool) -> Loaded:
    kind = type(module).__name__
    if not isinstance(state, Mapping):
        raise StateDictError(
            f"a state is a dictionary of tensors, not {type(state).__name__}",
            op=f"{kind}.load_state_dict",
        )
    own = dict(_entries(module, ""))
    missing = [name for name in own if name not in state]
    unexpected = [name for name in state if name not in own]
    found = {name: _value(state[name]) for name in own if name in state}
    wrong = [
        f"{name}: the state has shape {value.shape}, the module {own[name].shape}"
        if isinstance(value, Tensor)
        else f"{name}: the state has {type(value).__name__}, not a tensor"
        for name, value in found.items()
        if not isinstance(value, Tensor) or not _fits(value, own[name])
    ]
    if strict:
        wrong += [f"missing: {', '.join(missing)}"] if missing else []
        wrong += [f"unexpected: {', '.join(unexpected)}"] if unexpected else []
    if wrong:
        raise StateDictError(
            "the state does not fit; nothing was loaded\n    " + "\n    ".join(wrong),
            op=f"{kind}.load_state_dict",
            hint="build the module with the sizes it was saved with"
            + ("; strict=False passes over missing and unexpected names" if strict else ""),
        )
    with no_grad():
        for name, value in found.items():
            target = own[name]
            if isinstance(target, (UninitializedParameter, UninitializedBuffer)):
                target.materialize(value)
                continue
            whole = target._data.__class__ is not Parts and value._data.__class__ is not Parts
            if not whole:  # this rank has a part of one of them
                value = wrap(lying_as(value._data, target._data))
            elif not assign:
                value = cast(value, target.dtype).to_device(target.device)
            fitting = value
            rebind(target, fitting, "load_state_dict")
    if assign:
        changed()  # dtypes may be others now
    return Loaded(missing, unexpected)


def _fits(value: Tensor, target: Tensor) -> bool:
    if isinstance(target, (UninitializedParameter, UninitializedBuffer)):
        return True
    return value.shape == target.shape


def _value(value: Any) -> Any:
    """A tensor from a tensor, an array or numbers; anything else as it is."""
    if isinstance(value, Tensor):
        return value
    try:
        return asarray(value)
    except (WeftError, TypeError, ValueError):
        return value
