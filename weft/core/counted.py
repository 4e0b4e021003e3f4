"""Objects and containers whose changes increase the version number of `weft.core.structure`.

Optimizers are made of them: while the number stays the same, no parameter was added, and no option
or moment replaced. Replacing a number by another of its class does not count: a learning rate and a
step count may change at each step, and captured functions compare them at each call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from weft.base.pytree import register_pytree
from weft.core.structure import changed

#: A number of one of these in the place of another does not count.
NUMBERS = frozenset({int, float})
_NOTHING: Any = object()


def _told(old: Any, new: Any) -> None:
    """Count, unless nothing changed that counts."""
    if old is not new and not (type(old) is type(new) and type(new) in NUMBERS):
        changed()


class Counted:
    """An object whose attributes count."""

    def __setattr__(self, name: str, value: Any) -> None:
        old = self.__dict__.get(name, _NOTHING)
        object.__setattr__(self, name, value)
        _told(old, value)

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        changed()


def _telling(base: type, name: str) -> Callable[..., Any]:
    """A method of a builtin container whose calls count, also if they raise."""
    method = getattr(base, name)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        finally:
            changed()

    call.__name__, call.__doc__ = name, method.__doc__
    return call


class CountedList(list[Any]):
    """A list that counts."""

    __slots__ = ()


class CountedDict(dict[Any, Any]):
    """A dict that counts."""

    __slots__ = ()

    def __setitem__(self, key: Any, value: Any) -> None:
        old = dict.get(self, key, _NOTHING)
        dict.__setitem__(self, key, value)
        _told(old, value)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return dict.__getitem__(self, key)

    def update(self, *args: Any, **kwargs: Any) -> None:
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc,override,unused-ignore]
        self.update(other)
        return self


class CountedState(defaultdict[Any, Any]):
    """A dict of dicts that counts: each key that is asked for gets one."""

    __slots__ = ()

    def __init__(self, *args: Any) -> None:
        super().__init__(*(args or (CountedDict,)))  # copies and pickles say the factory first


#: The containers above, each with the builtin class whose methods it has.
CONTAINERS: dict[type, type] = {CountedList: list, CountedDict: dict, CountedState: defaultdict}

_LIST = ("__setitem__", "__delitem__", "__iadd__", "__imul__", "append", "clear", "extend")
_DICT = ("__delitem__", "clear", "pop", "popitem")
_WHOLE_DICT = ("__setitem__", "setdefault", "update", "__ior__", "__missing__")
_METHODS: dict[type, tuple[str, ...]] = {
    CountedList: (*_LIST, "insert", "pop", "remove", "reverse", "sort"),
    CountedDict: _DICT,
    CountedState: (*_DICT, *_WHOLE_DICT),
}
for _class, _names in _METHODS.items():
    for _name in _names:
        setattr(_class, _name, _telling(CONTAINERS[_class], _name))

# In trees they are what they stand for: a result has lists and dicts of its own.
register_pytree(CountedList, lambda tree: (tree, None), lambda _what, parts: parts)
for _class in (CountedDict, CountedState):
    register_pytree(
        _class,
        lambda tree: (tree.values(), tuple(tree)),
        lambda keys, parts: dict(zip(keys, parts, strict=True)),
    )
