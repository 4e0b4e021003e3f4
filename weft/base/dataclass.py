"""Dataclasses whose methods are compiled when one of them is first called.

The standard library compiles up to six methods for each dataclass, with one `exec` each: for the
classes that `import weft` loads, that took a quarter of its time. Modules that it loads take
`dataclass` from here. Type checkers see the one of the standard library, and it means the same:

>>> from weft.base.dataclass import dataclass
>>> @dataclass(frozen=True, slots=True)
... class Point:
...     x: int
...     y: int = 0
>>> Point(1), Point(1) == Point(1, 0), hash(Point(1)) == hash(Point(1))
(Point(x=1, y=0), True, True)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import Signature, signature
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, NoReturn

__all__ = ["dataclass"]


def _dataclass(
    cls: Any = None,
    /,
    *,
    eq: bool = True,
    repr: bool = True,
    frozen: bool = False,
    slots: bool = False,
) -> Any:
    """`dataclasses.dataclass`, with the parameters that Weft uses."""
    if cls is None:
        return lambda found: _dataclass(found, eq=eq, repr=repr, frozen=frozen, slots=slots)
    own = vars(cls)
    compiled = ["__init__"] * ("__init__" not in own)
    compiled += ["__eq__"] * (eq and "__eq__" not in own)
    hashed = eq and (own.get("__hash__") is None or "__hash__" not in own)
    compiled += ["__hash__"] * (hashed and frozen)
    given: dict[str, Any] = {}
    if hashed and not frozen:
        given["__hash__"] = None
    if repr and "__repr__" not in own:
        given["__repr__"] = recursive_repr()(_repr)
    if frozen:
        given |= {"__setattr__": _refuse_assignment, "__delattr__": _refuse_deletion}
        if slots:
            given |= {"__getstate__": _state, "__setstate__": _set_state}
    if not cls.__doc__:  # else it is made of the signature, which is not known yet
        cls.__doc__ = f"{cls.__name__}({', '.join(own.get('__annotations__', ()))})"
    with _as_not_frozen(cls.__mro__[1:]):
        made = dataclasses.dataclass(init=False, eq=False, repr=False, slots=slots)(cls)
    made.__dataclass_params__.frozen = frozen
    for name, value in given.items():
        setattr(made, name, value)
    for name in compiled:
        setattr(made, name, _first_call(made, name, compiled, frozen))
    if "__init__" in compiled:
        made.__signature__ = _Signature()
    return made


@contextmanager
def _as_not_frozen(bases: tuple[type, ...]) -> Iterator[None]:
    """The standard library refuses a class that is not frozen, as it is told, with such a base."""
    found = [vars(base).get("__dataclass_params__") for base in bases]
    frozen: list[Any] = [params for params in found if params is not None and params.frozen]
    for params in frozen:
        params.frozen = False
    try:
        yield
    finally:
        for params in frozen:
            params.frozen = True


def _first_call(cls: type, name: str, compiled: list[str], frozen: bool) -> Callable[..., Any]:
    """A method that compiles those of its class, and then does what it is for."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        for each, function in _compile_methods(cls, compiled, frozen).items():
            setattr(cls, each, function)
        return getattr(cls, name)(self, *args, **kwargs)

    method.__name__, method.__qualname__ = name, f"{cls.__qualname__}.{name}"
    return method


def _compile_methods(cls: Any, compiled: list[str], frozen: bool) -> dict[str, Any]:
    fields = dataclasses.fields(cls)
    names: dict[str, Any] = {"_MISSING": dataclasses.MISSING, "_assign": object.__setattr__}
    parameters, keywords, body = ["self"], ["*"], []
    for field in fields:
        name = value = field.name
        names[f"{name}_default"] = field.default
        declared = f"{name}={name}_default"
        if field.default_factory is not dataclasses.MISSING:
            names[f"{name}_factory"] = field.default_factory
            names[f"{name}_default"] = dataclasses.MISSING
            value = f"{name}_factory()"
            if field.init:
                value += f" if {name} is _MISSING else {name}"
        elif field.default is dataclasses.MISSING:
            declared = name
            if not field.init:
                continue
        elif not field.init:
            value = f"{name}_default"
        if field.init:
            (keywords if field.kw_only else parameters).append(declared)
        body.append(f"_assign(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters += keywords if len(keywords) > 1 else []
    compared = [field.name for field in fields if field.compare]
    hashed = [f.name for f in fields if (f.compare if f.hash is None else f.hash)]
    lines = {
        "__init__": [f"({', '.join(parameters)}):", *(body or ["pass"])],
        "__eq__": [
            "(self, other):",
            "if other.__class__ is not self.__class__: return NotImplemented",
            f"return {_values('self', compared)} == {_values('other', compared)}",
        ],
        "__hash__": ["(self):", f"return hash({_values('self', hashed)})"],
    }
    text = "\n".join(f"def {name}" + "\n    ".join(lines[name]) for name in compiled)
    made: dict[str, Any] = {}
    # The file says that it is code of ours, to tracebacks and captures.
    exec(compile(text, __file__, "exec"), names, made)
    for name, function in made.items():
        function.__qualname__, function.__module__ = f"{cls.__qualname__}.{name}", cls.__module__
    return made


def _values(owner: str, names: list[str]) -> str:
    return f"({''.join(f'{owner}.{name}, ' for name in names)})"


class _Signature:
    """The signature of a class, made when it is asked for."""

    def __get__(self, _instance: Any, cls: Any) -> Signature:
        init = _compile_methods(cls, ["__init__"], frozen=False)["__init__"]
        types = {field.name: field.type for field in dataclasses.fields(cls)}
        _, *parameters = signature(init).parameters.values()
        return Signature([p.replace(annotation=types[p.name]) for p in parameters])


def _repr(self: Any) -> str:
    shown = (f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _refuse_assignment(_self: Any, name: str, _value: Any) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(_self: Any, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _dataclass
