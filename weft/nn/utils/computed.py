"""Attributes of a module that are computed each time they are read: a weight out of others.

The module becomes an instance of a class of its own, derived from its class, that has a property of
that name. Its forward, and everybody else, reads the weight as before.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from weft.core.structure import changed
from weft.nn.module import Module

Getter = Callable[[Any], Any]
Setter = Callable[[Any, Any], None]


def names_of(module: Module) -> tuple[str, ...]:
    """The computed attributes of a module."""
    found: tuple[str, ...] = getattr(type(module), "_computed", ())
    return found


def compute(module: Module, name: str, get: Getter, set: Setter | None = None) -> None:
    """From now on `module.name` is what `get(module)` gives."""
    cls = type(module)
    plain = getattr(cls, "_plain", cls)
    table = dict(getattr(cls, "_setters", {}))
    table[name] = set
    getters = {n: cls.__dict__[n] for n in names_of(module)}
    _become(module, plain, {**getters, name: property(get)}, table)


def forget(module: Module, name: str) -> None:
    """`module.name` is an attribute as any other again; it has no value yet."""
    cls = type(module)
    kept = {n: cls.__dict__[n] for n in names_of(module) if n != name}
    setters = {n: f for n, f in cls._setters.items() if n != name}  # type: ignore[attr-defined]
    _become(module, cls._plain, kept, setters)  # type: ignore[attr-defined]


def _become(module: Module, plain: Any, getters: dict[str, Any], setters: dict[str, Any]) -> None:
    if not getters:
        object.__setattr__(module, "__class__", plain)
        changed()
        return

    def set_attribute(self: Any, name: str, value: Any) -> None:
        if name not in setters:
            plain.__setattr__(self, name, value)
        elif setters[name] is None:
            raise AttributeError(f"{name!r} of {plain.__name__} is computed, and cannot be set")
        else:
            setters[name](self, value)

    body = {
        **getters,
        "__setattr__": set_attribute,
        "__deepcopy__": _deepcopy,
        "__reduce_ex__": _no_pickle,
        "__module__": plain.__module__,
        "_computed": tuple(getters),
        "_setters": setters,
        "_plain": plain,
        "_get_name": lambda _self: f"Parametrized{plain.__name__}",
    }
    object.__setattr__(module, "__class__", type(plain.__name__, (plain,), body))
    changed()


def _deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    kind: Any = type(self)
    twin = kind.__new__(kind)
    memo[id(self)] = twin
    twin.__dict__.update({k: copy.deepcopy(v, memo) for k, v in self.__dict__.items()})
    return twin


def _no_pickle(self: Any, _protocol: Any) -> Any:
    raise TypeError(
        f"{type(self).__name__} has computed weights and cannot be pickled: save its state_dict()"
    )
