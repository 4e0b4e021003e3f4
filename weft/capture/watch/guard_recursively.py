"""Guards on everything that is reachable from a value, for code that is not followed."""

from __future__ import annotations

import functools
import re
import types
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.capture.watch import operators, stores
from weft.capture.watch.follow import FOLLOW, IMMUTABLE_C, policy
from weft.capture.watch.origin import static_lookup
from weft.capture.watch.stores import instance_dict
from weft.capture.watch.texts import TextParts
from weft.capture.watch.values import CONTAINERS, is_of_weft, is_plain
from weft.convert.convert import HOOKS, is_converted
from weft.core.tensor import Tensor
from weft.ops.generator import Generator

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks
    from weft.capture.watch.watch import Known

#: Methods that code without hooks calls implicitly; those of user classes would not be watched.
CALLED_BY_OTHERS = (
    *operators.COMPARING,
    *(
        "__hash__",
        "__bool__",
        "__len__",
        "__iter__",
        "__next__",
        "__getitem__",
        "__contains__",
        "__call__",
    ),
    *("__str__", "__repr__", "__format__", "__int__", "__float__", "__index__", "__array__"),
    *("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__"),
    *("__enter__", "__exit__", "__getattr__", "__getattribute__", "__neg__", "__abs__"),
    *("__copy__", "__deepcopy__", "__reduce__", "__getstate__", "__round__", "__fspath__"),
)
Calls = bool | tuple[str, ...]
OPAQUE = (*IMMUTABLE_C, re.Pattern, type, functools.partial, property, staticmethod, classmethod)


def read(hooks: Hooks, value: Any, user: str, calls: Calls) -> list[Known]:
    """Guard all of a value. Returns the outside containers and arrays in it.

    user    what reads the value, for messages
    calls   methods that the reader may call on objects in it: names, all or none
    """
    found: list[Known] = []
    _Reader(hooks, user, calls, found).visit(value)
    return found


class _Reader:
    def __init__(self, hooks: Hooks, user: str, calls: Calls, found: list[Known]) -> None:
        self.hooks = hooks
        self.watch = hooks.watch
        self.user = user
        self.calls: tuple[str, ...] = CALLED_BY_OTHERS if calls is True else calls or ()
        self.found = found
        self.seen: dict[int, Any] = {}

    def visit(self, value: Any) -> None:
        if is_plain(value) or isinstance(value, (Tensor, TextParts)) or id(value) in self.seen:
            return
        self.seen[id(value)] = value
        known = self.watch.known(value)
        if isinstance(value, np.ndarray):
            if known is not None:
                self.watch.content(known)
                self.found.append(known)
        elif isinstance(value, CONTAINERS):
            self._container(value, known)
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, types.MethodType):
            self._function(value.__func__)  # which is called, if anything is
        elif isinstance(value, Generator):
            if known is not None:  # its state is a tensor, which the recorder asks for
                self.watch.note(value._state, known.origin.attr("_state"))
        elif isinstance(value, functools.partial):
            for part in (value.func, value.args, value.keywords):
                self.visit(part)
        elif not isinstance(value, OPAQUE) and not is_of_weft(value):
            self._object(value, known)

    def _container(self, value: Any, known: Known | None) -> None:
        if known is not None:
            stores.whole(self.watch, known)
            self.found.append(known)
        parts = dict.values(value) if isinstance(value, dict) else value
        for part in list(stores.base_of(value).__iter__(parts) if parts is value else parts):
            self.visit(part)
        if isinstance(value, dict):
            for key in list(dict.keys(value)):
                self.visit(key)
        if "__iter__" in self.calls and operators.special(type(value), "__iter__") is not None:
            self._refuse(type(value), "__iter__")

    def _function(self, value: Any) -> None:
        code = getattr(value, "__code__", None)
        if code is None:
            return
        if (
            "__call__" in self.calls
            and policy(code.co_filename) == FOLLOW
            and not is_converted(value)
        ):
            made = self.hooks.callback(value)
            if made is not value and HOOKS not in made.__code__.co_freevars:
                return  # nothing in it needs a hook
            self.watch.refuse(
                f"{value.__qualname__} is handed to {self.user}, where its calls are not watched"
            )

    def _object(self, value: Any, known: Known | None) -> None:
        cls = type(value)
        if self.calls:
            for name in self.calls:
                if operators.special(cls, name) is not None:
                    self._refuse(cls, name)
                    break
        own = instance_dict(value)
        slots = _slots(cls)
        if known is not None:
            if own is not None:
                attributes = self.watch.attributes(known)
                if attributes is not None:
                    stores.whole(self.watch, attributes)
                    self.found.append(attributes)
            elif not slots and "__call__" in self.calls and not isinstance(value, BaseException):
                self.watch.refuse(
                    f"{known.origin.text}, a {cls.__name__}, is handed to {self.user}, "
                    "and what it holds is not watched"
                )
        for name in slots:
            if hasattr(value, name):
                part = getattr(value, name)
                if known is not None and (id(value), name) not in self.watch.written:
                    self.watch.note(part, known.origin.attr(name))
                self.visit(part)
        for part in list((own or {}).values()):
            self.visit(part)

    def _refuse(self, cls: type, name: str) -> None:
        self.watch.refuse(
            f"{self.user} may call {cls.__qualname__}.{name}, which is not watched there"
        )


def _slots(cls: type) -> list[str]:
    names: list[str] = []
    for base in cls.__mro__:
        found = base.__dict__.get("__slots__", ())
        names += [found] if isinstance(found, str) else list(found)
    return [
        name for name in names if isinstance(static_lookup(cls, name), types.MemberDescriptorType)
    ]


def refuse_computed(hooks: Hooks, value: Any) -> None:
    """Refuse properties that a match statement reads, which would run without hooks."""
    cls = type(value)
    if is_plain(value) or isinstance(value, CONTAINERS):
        return
    for base in cls.__mro__:
        for found in base.__dict__.values():
            if isinstance(found, property) and operators.special(cls, "__init__") is not None:
                hooks.watch.refuse(f"a match statement may read properties of {cls.__qualname__}")
                return
