"""All modules of `weft.nn`, each as a class of the same name that makes tensors of this namespace.

A class of it is Weft's own class with `Module` of this file among its bases. Nothing is written a
second time: what a module computes is written in `weft.nn`.
"""

from __future__ import annotations

import sys
from typing import Any

import weft.nn as core_nn
from weft.torch.nn.parameter import Parameter, label_members
from weft.torch.tensor import labelled


class ModuleClass(type):
    """The class of module classes: it labels what a new module has made."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().__call__(*args, **kwargs)
        label_members(made)
        return made

    def __instancecheck__(cls, obj: Any) -> bool:
        """Modules that Weft's own code made count, too: the Linear inside of an attention."""
        if super().__instancecheck__(obj):
            return True
        core = cls.__dict__.get("_core")
        return core is not None and isinstance(obj, core)


class Module(core_nn.Module, metaclass=ModuleClass):
    """`weft.nn.Module`."""

    _core = core_nn.Module

    def register_parameter(self, name: str, param: Any) -> None:
        super().register_parameter(name, param)
        label_members(self)


def _same(core: type) -> Any:
    body = {"__module__": "weft.torch.nn", "__doc__": core.__doc__, "_core": core}
    return ModuleClass(core.__name__, (core, Module), body)


_others = {"Module": Module, "Parameter": Parameter}
_names = [
    name
    for name, value in vars(core_nn).items()
    if isinstance(value, type) and issubclass(value, core_nn.Module) and name not in _others
]
for _name in _names:
    setattr(sys.modules[__name__], _name, _same(getattr(core_nn, _name)))


def _causal_mask(size: int, device: Any = None, dtype: Any = None) -> Any:
    return labelled(core_nn.Transformer.generate_square_subsequent_mask(size, device, dtype))


sys.modules[__name__].Transformer.generate_square_subsequent_mask = staticmethod(_causal_mask)

__all__ = ["Module", *_names]
