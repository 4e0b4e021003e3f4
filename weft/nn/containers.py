"""Modules that hold other modules, or parameters: Sequential, lists and dictionaries."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from weft.core.tensor import Tensor
from weft.nn.module import Module
from weft.nn.parameter import Parameter

__all__ = ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


class _Numbered(Module):
    """Members that are named by their number."""

    def _position(self, index: Any) -> str:
        number = operator.index(index)
        size = len(self._member_kinds)
        if not -size <= number < size:
            raise IndexError(f"index {number} is out of range for {size} modules")
        return str(number % size)

    def _renumber(self, members: Iterable[Any]) -> None:
        kept = list(members)
        for name in list(self._member_kinds):
            delattr(self, name)
        for member in kept:
            self._add(member)

    def _add(self, member: Any) -> None:
        self.add_module(str(len(self._member_kinds)), member)

    def _values(self) -> list[Any]:
        return [self.__dict__[name] for name in self._member_kinds]

    def __len__(self) -> int:
        return len(self._member_kinds)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values())

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._made_of(self._values()[index])
        return self.__dict__[self._position(index)]

    def __setitem__(self, index: Any, member: Any) -> None:
        setattr(self, self._position(index), member)

    def __delitem__(self, index: Any) -> None:
        members = self._values()
        if not isinstance(index, slice):
            index = int(self._position(index))
        del members[index]
        self._renumber(members)

    def _made_of(self, members: list[Any]) -> Any:
        kind: Any = type(self)
        return kind(members)

    def append(self, module: Any) -> Any:
        """Add one at the end."""
        self._add(module)
        return self

    def extend(self, modules: Iterable[Any]) -> Any:
        """Add several at the end."""
        for module in list(modules):
            self._add(module)
        return self

    def insert(self, index: int, module: Any) -> Any:
        """Add one before the position `index`."""
        members = self._values()
        members.insert(index, module)
        self._renumber(members)
        return self

    def pop(self, index: int = -1) -> Any:
        """Take one out and return it."""
        member = self[index]
        del self[index]
        return member

    def __iadd__(self, modules: Iterable[Any]) -> Any:
        return self.extend(modules)

    def __add__(self, modules: Iterable[Any]) -> Any:
        return self._made_of([*self, *modules])


class Sequential(_Numbered):
    """Modules called one after the other, each with the result of the one before.

    >>> from weft import nn
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> model
    Sequential(
      (0): Linear(in_features=4, out_features=8, bias=True)
      (1): ReLU()
      (2): Linear(in_features=8, out_features=2, bias=True)
    )
    """

    def __init__(self, *modules: Any) -> None:
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            for name, module in modules[0].items():
                self.add_module(name, module)
        else:
            self.extend(modules)

    def _made_of(self, members: list[Any]) -> Sequential:
        return Sequential(*members)

    def _position(self, index: Any) -> str:
        return list(self._member_kinds)[int(super()._position(index))]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Sequential(
                {name: self.__dict__[name] for name in list(self._member_kinds)[index]}
            )
        return super().__getitem__(index)

    def __delitem__(self, index: Any) -> None:
        names = list(self._member_kinds)
        gone = names[index] if isinstance(index, slice) else [self._position(index)]
        for name in gone:
            delattr(self, name)
        if all(name.isdigit() for name in names):
            self._renumber(self._values())

    def forward(self, x: Any) -> Any:
        own = self.__dict__
        for name in self._member_kinds:
            x = own[name](x)
        return x


class ModuleList(_Numbered):
    """A list of modules. It is not called: loop over it, or index it, in your forward."""

    def __init__(self, modules: Iterable[Any] | None = None) -> None:
        super().__init__()
        self.extend(modules or ())


class ParameterList(_Numbered):
    """A list of parameters; tensors become parameters when they are added."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self.extend(values or ())

    def _add(self, member: Any) -> None:
        self.register_parameter(str(len(self._member_kinds)), _parameter(member))

    def __setitem__(self, index: Any, member: Any) -> None:
        super().__setitem__(index, _parameter(member))

    def extra_repr(self) -> str:
        return "\n".join(_line(name, value) for name, value in self._parameters.items())


class _Named(Module):
    """Members under names of the user's own."""

    def __len__(self) -> int:
        return len(self._member_kinds)

    def __iter__(self) -> Iterator[str]:
        return iter(self._member_kinds)

    def __contains__(self, key: object) -> bool:
        return key in self._member_kinds

    def __getitem__(self, key: str) -> Any:
        if key not in self._member_kinds:
            raise KeyError(key)
        return self.__dict__[key]

    def __delitem__(self, key: str) -> None:
        if key not in self._member_kinds:
            raise KeyError(key)
        delattr(self, key)

    def __setitem__(self, key: str, member: Any) -> None:
        if key in self._member_kinds:
            setattr(self, key, member)
        else:
            self.add_module(key, member)

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._member_kinds.keys()

    def values(self) -> list[Any]:
        """The members."""
        return [self.__dict__[name] for name in self._member_kinds]

    def items(self) -> list[tuple[str, Any]]:
        """Names and members."""
        return [(name, self.__dict__[name]) for name in self._member_kinds]

    def clear(self) -> None:
        """Take all members out."""
        for name in list(self._member_kinds):
            delattr(self, name)

    def pop(self, key: str) -> Any:
        """Take one out and return it."""
        member = self[key]
        del self[key]
        return member

    def update(self, members: Any) -> None:
        """Add members from a dictionary or from pairs, replacing those of the same name."""
        pairs = members.items() if hasattr(members, "items") else members
        for name, member in pairs:
            self[name] = member


class ModuleDict(_Named):
    """A dictionary of modules. It is not called: use its members in your forward."""

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        self.update(modules or {})


class ParameterDict(_Named):
    """A dictionary of parameters; tensors become parameters when they are added."""

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self.update(parameters or {})

    def __setitem__(self, key: str, member: Any) -> None:
        if key in self._member_kinds:
            setattr(self, key, _parameter(member))
        else:
            self.register_parameter(key, _parameter(member))

    def extra_repr(self) -> str:
        return "\n".join(_line(name, value) for name, value in self._parameters.items())


def _parameter(value: Any) -> Any:
    return Parameter(value) if not isinstance(value, Parameter) and value is not None else value


def _line(name: str, value: Tensor | None) -> str:
    return f"({name}): {'None' if value is None else f'Parameter of {value.type}'}"
