"""Parametrizations: a module in the place of a parameter, such as a weight that stays symmetric."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from weft.base.errors import ShapeError
from weft.core.bind import rebind
from weft.core.grad_mode import no_grad
from weft.core.tensor import Tensor
from weft.nn.containers import ModuleDict
from weft.nn.module import Module
from weft.nn.parameter import Parameter
from weft.nn.utils.computed import compute, forget

_caches: list[dict[int, Any]] = []


@contextlib.contextmanager
def cached() -> Iterator[None]:
    """Within this context, each parametrized tensor is computed once."""
    _caches.append({})
    try:
        yield
    finally:
        _caches.pop()


class ParametrizationList(Module):
    """The modules of one tensor, and the originals that it is computed from."""

    def __init__(self, modules: list[Any], original: Tensor, unsafe: bool = False) -> None:
        super().__init__()
        for module in modules:
            self.append(module)
        self.unsafe = unsafe
        parts = self._parts_of(original)
        self.is_tensor = isinstance(parts, Tensor)
        named = {"original": parts} if self.is_tensor else dict(_numbered(parts))
        for name, part in named.items():
            value = part.detach().clone()
            if isinstance(original, Parameter):
                self.register_parameter(name, Parameter(value, original.requires_grad))
            else:
                self.register_buffer(name, value)
        self._names = list(named)

    def append(self, module: Module) -> None:
        """Let another module follow those before."""
        self.add_module(str(len(self)), module)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __getitem__(self, index: int) -> Any:
        return list(self)[index]

    def _parts_of(self, value: Any) -> Any:
        with no_grad():
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    value = module.right_inverse(value)
        return value

    def originals(self) -> list[Tensor]:
        """What the tensor is computed from."""
        return [getattr(self, name) for name in self._names]

    def forward(self) -> Any:
        if _caches:
            found = _caches[-1].get(id(self))
            if found is not None:
                return found
        first, *others = list(self)
        value = first(*self.originals())
        for module in others:
            value = module(value)
        if _caches:
            _caches[-1][id(self)] = value
        return value

    def assign(self, value: Tensor) -> None:
        """Give the originals values from which `value` is computed."""
        for module in self:
            if not hasattr(module, "right_inverse"):
                raise NotImplementedError(
                    f"{type(module).__name__} has no right_inverse: the parametrized tensor cannot "
                    "be assigned"
                )
        parts = self._parts_of(value)
        with no_grad():
            given = [parts] if self.is_tensor else list(parts)
            for place, part in zip(self.originals(), given, strict=True):
                rebind(place, part.detach().clone(), "right_inverse")


def _numbered(parts: Any) -> Iterator[tuple[str, Tensor]]:
    for i, part in enumerate(parts):
        yield f"original{i}", part


def register_parametrization(
    module: Any, tensor_name: str, parametrization: Any, *, unsafe: bool = False
) -> Any:
    """Compute a parameter, or a buffer, of a module with another module each time it is read.

    The original is `module.parametrizations.<name>.original`. Several parametrizations of one
    tensor follow each other. One with a method `right_inverse` can be assigned to, and starts from
    the value before.

    >>> class Symmetric(weft.nn.Module):
    ...     def forward(self, x):
    ...         return (x + x.mT) / 2
    >>> layer = weft.nn.Linear(2, 2)
    >>> layer = weft.nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
    >>> bool((layer.weight == layer.weight.mT).all())
    True
    """
    if is_parametrized(module, tensor_name):
        found: ParametrizationList = module.parametrizations[tensor_name]
        if hasattr(parametrization, "right_inverse") and found.is_tensor:
            with no_grad():
                value = parametrization.right_inverse(found.originals()[0])
                rebind(found.originals()[0], value.detach().clone(), "right_inverse")
        found.append(parametrization)
        module.train(module.training)
        return module
    kind = module._member_kinds.get(tensor_name)
    original = module.__dict__.get(tensor_name)
    if kind not in ("parameter", "buffer") or original is None:
        raise AttributeError(f"{type(module).__name__} has no parameter or buffer {tensor_name!r}")
    made = ParametrizationList([parametrization], original, unsafe)
    with no_grad():
        value = made()
    if not unsafe and (value.shape, value.dtype) != (original.shape, original.dtype):
        raise ShapeError(
            f"{type(parametrization).__name__} makes {value.type} of the {original.type} "
            f"{tensor_name!r}",
            op="register_parametrization",
            hint="say unsafe=True if that is meant",
        )
    delattr(module, tensor_name)
    if "parametrizations" not in module._member_kinds:
        module.add_module("parametrizations", ModuleDict())
    module.parametrizations[tensor_name] = made
    made.train(module.training)
    compute(
        module,
        tensor_name,
        lambda self: self.parametrizations[tensor_name](),
        lambda self, value: self.parametrizations[tensor_name].assign(value),
    )
    return module


def is_parametrized(module: Any, tensor_name: str | None = None) -> bool:
    """Whether a module, or one of its tensors, is parametrized."""
    if "parametrizations" not in module._member_kinds:
        return False
    if tensor_name is None:
        return len(module.parametrizations) > 0
    return tensor_name in module.parametrizations


def remove_parametrizations(module: Any, tensor_name: str, leave_parametrized: bool = True) -> Any:
    """Make a tensor an ordinary one again: as it was computed last, or else its original."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"{type(module).__name__} has no parametrization of {tensor_name!r}")
    made: ParametrizationList = module.parametrizations[tensor_name]
    originals = made.originals()
    if not leave_parametrized and not made.is_tensor:
        raise ValueError(f"{tensor_name!r} has several originals: leave_parametrized must be True")
    with no_grad():
        value = made() if leave_parametrized else originals[0]
    value = value.detach().clone()
    forget(module, tensor_name)
    del module.parametrizations[tensor_name]
    if not len(module.parametrizations):
        delattr(module, "parametrizations")
    if isinstance(originals[0], Parameter):
        module.register_parameter(tensor_name, Parameter(value, originals[0].requires_grad))
    else:
        module.register_buffer(tensor_name, value)
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class of a module without its parametrizations."""
    found: type = getattr(type(module), "_plain", type(module))
    return found
