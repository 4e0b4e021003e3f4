"""Reads, writes and calls of source-captured code: what they touch is noted in open journals."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from weft.base.errors import CaptureError
from weft.base.pytree import tree_leaves
from weft.capture.control.nested import graph_recorder
from weft.capture.from_source.builtin_calls import BUILTINS
from weft.capture.from_source.dynamic_list import DynamicList, dynamic_list_of, settle
from weft.capture.from_source.journal import Globals
from weft.capture.from_source.merge import Maybe, undefined
from weft.capture.from_source.run import Flow
from weft.capture.from_source.split import resolve_all
from weft.capture.from_source.tokens import py_call_like
from weft.capture.watch.follow import LIBRARY, module_of, policy
from weft.capture.watch.hooks import Hooks
from weft.capture.watch.values import CONTAINERS
from weft.core.number import Number, plain
from weft.core.tensor import Tensor

if TYPE_CHECKING:
    from weft.capture.from_source.hooks import SourceHooks, SourceWatch

#: Methods of containers that change them.
WRITING = frozenset(
    {
        *("append", "appendleft", "extend", "extendleft", "insert", "pop", "popleft", "popitem"),
        *("remove", "clear", "sort", "reverse", "rotate", "add", "discard", "update", "setdefault"),
        *("__setitem__", "__delitem__", "__iadd__", "__imul__", "__ior__", "__iand__", "__isub__"),
        *("__ixor__", "difference_update", "intersection_update", "symmetric_difference_update"),
        *("move_to_end", "fill", "put", "resize", "partition", "itemset"),
    }
)
_NUMPY_FUNCTION = type(np.sum)


class Access(Hooks):
    """The part of the hooks that is not control flow."""

    watch: SourceWatch

    @property
    def flow(self) -> Flow:
        return self.watch.flow

    def asks(self, value: Any) -> bool:
        """Whether a condition becomes part of the graph: it is a tensor, and a graph is made."""
        return isinstance(value, Tensor) and self.watch.active and graph_recorder() is not None

    def setcell(self, value: Any, cell: Callable[[], Any]) -> Any:
        """A variable of a converted function around is about to get a value."""
        closure = cell.__closure__ or ()
        for name, held in zip(cell.__code__.co_freevars, closure, strict=True):
            self.flow.touch_variable(held, name)
        return value

    def setfree(self, name: str, value: Any) -> Any:
        self.flow.touch_variable(self._cells[name][0], name, self)
        return super().setfree(name, value)

    def setglobal(self, name: str, value: Any) -> Any:
        self.flow.touch_entry(Globals(self.globals, self))
        return super().setglobal(name, value)

    def delglobal(self, name: str) -> None:
        self.flow.touch_entry(Globals(self.globals, self))
        super().delglobal(name)

    # --- reads and writes ---------------------------------------------------------------------

    def use(self, *objects: Any) -> None:
        """Objects are about to be read or written: are they what they seem?"""
        if self.flow.poisoned or self.flow.splits:
            for obj in objects:
                self.flow.check(obj)

    def test(self, value: Any) -> bool:
        self.use(value)
        return super().test(value)

    def compare(self, symbol: str, a: Any, b: Any) -> Any:
        if symbol not in ("is", "is not"):
            self.use(a, b)
        return super().compare(symbol, a, b)

    def mapping(self, value: Any) -> Any:
        self.use(value)
        return super().mapping(value)

    def attr(self, obj: Any, name: str) -> Any:
        self.use(obj)
        found = super().attr(obj, name)
        if found.__class__ is Maybe:
            raise undefined(f"the attribute {name!r}", found.why)
        return found

    def key(self, value: Any) -> Any:
        if value.__class__ is Number:
            return value_of(value)
        return super().key(value)

    def item(self, obj: Any, key: Any) -> Any:
        self.use(obj)
        if key.__class__ is Number and isinstance(obj, dict):
            key = value_of(key)
        grown = dynamic_list_of(obj)
        if grown is not None:
            if isinstance(key, (int, Tensor)):
                return self.taken(grown, grown.item(key))
            self.settled(obj)
        return super().item(obj, key)

    def settled(self, items: list[Any]) -> None:
        """Python needs a list itself, whose length the graph decides: it asks for that."""
        self.flow.touch(items)
        grown = dynamic_list_of(items)
        settle(items)
        if grown is not None:
            self.taken(grown, items)

    def taken(self, grown: DynamicList, elements: Any) -> Any:
        """What was an element of a list of the graph."""
        for leaf in tree_leaves(elements):
            if isinstance(leaf, Tensor):
                self.flow.mixed.element(leaf, grown.held)
        return elements

    def setitem(self, value: Any, obj: Any, key: Any) -> None:
        self.use(obj)
        if dynamic_list_of(obj) is not None:
            self.settled(obj)
        if key.__class__ is Number and isinstance(obj, dict):
            key = value_of(key)
        if isinstance(obj, (*CONTAINERS, np.ndarray)):
            self.flow.touch(obj)
        super().setitem(value, obj, key)

    def delitem(self, obj: Any, key: Any) -> None:
        self.use(obj)
        if dynamic_list_of(obj) is not None:
            self.settled(obj)
        if isinstance(obj, CONTAINERS):
            self.flow.touch(obj)
        super().delitem(obj, key)

    def inplace(self, symbol: str, a: Any, b: Any) -> Any:
        self.use(a, b)
        for part in (a, b):
            if dynamic_list_of(part) is not None:
                self.settled(part)
        if isinstance(a, (*CONTAINERS, np.ndarray)):
            self.flow.touch(a)
        return super().inplace(symbol, a, b)

    def iter(self, value: Any) -> Any:
        self.use(value)
        if dynamic_list_of(value) is not None:
            self.settled(value)
        return super().iter(value)

    def binary(self, symbol: str, a: Any, b: Any) -> Any:
        self.use(a, b)
        for part in (a, b):
            if dynamic_list_of(part) is not None:
                self.settled(part)
        return super().binary(symbol, a, b)

    def call(self, /, function: Any, *args: Any, **kwargs: Any) -> Any:
        if self.flow.splits and not is_followed(function):
            resolve_all(self.flow, [args, kwargs], set())
        handler = BUILTINS.get(function) if function.__hash__ is not None else None
        if handler is not None:
            made = handler(cast("SourceHooks", self), args, kwargs)
            if made is not NotImplemented:
                return made
        holder = getattr(function, "__self__", None)
        if isinstance(holder, (*CONTAINERS, np.ndarray)) and isinstance(
            function, (types.BuiltinMethodType, types.MethodWrapperType)
        ):
            self.use(holder)
            grown = dynamic_list_of(holder)
            if grown is not None and isinstance(holder, list):
                if function.__name__ in ("append", "pop") and len(args) == (
                    function.__name__ == "append"
                ):
                    self.flow.touch(grown)
                    return grown.push(*args) if args else self.taken(grown, grown.pop())
                self.settled(holder)
            if function.__name__ in WRITING:
                self.flow.touch(holder)
        for value in args:
            if dynamic_list_of(value) is not None:
                self.settled(value)
        if is_foreign(function) and any(map(self.asks, (*args, *kwargs.values()))):
            return self.foreign(function, args, kwargs)
        return super().call(function, *args, **kwargs)

    def foreign(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Other people's code is called on tensors."""
        if self.flow.fallback == "python":
            return py_call_like(function, args, kwargs)
        name = f"{module_of(function).partition('.')[0]}.{getattr(function, '__name__', '?')}"
        raise CaptureError(
            f"{name} is called on tensors of the graph, which have no numbers yet",
            op=name,
            hint=f"use the function of Weft; or weft.py_call({name}, weft.spec(...), x), or "
            'weft.compile(..., fallback="python"), which call back into Python',
        )


#: Modules of the library whose functions do not look at tensors, or look as Python itself does.
_HARMLESS = frozenset(
    {
        *("builtins", "operator", "_operator", "functools", "_functools", "itertools", "copy"),
        *("collections", "_collections", "typing", "types", "dataclasses", "contextlib", "enum"),
        *("abc", "_abc", "logging", "warnings", "inspect", "weakref", "threading", "heapq"),
        *("_heapq", "bisect", "_bisect", "", "weft"),
    }
)


def is_followed(function: Any) -> bool:
    """Whether a function is the user's own: what it does to its arguments is seen there."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code is not None and policy(code.co_filename) != LIBRARY


def is_foreign(function: Any) -> bool:
    """Whether a function is of the library, and made for numbers."""
    if isinstance(function, types.FunctionType):
        if policy(function.__code__.co_filename) != LIBRARY:
            return False
    elif not isinstance(function, (types.BuiltinFunctionType, np.ufunc, _NUMPY_FUNCTION)):
        return False
    holder = getattr(function, "__self__", None)
    if holder is not None and not isinstance(holder, types.ModuleType):
        return False
    if isinstance(function, np.ufunc):
        return True
    return module_of(function).partition(".")[0] not in _HARMLESS


def value_of(value: Number) -> Any:
    """A number as Python's own: this asks for its value."""
    return plain(value).item()
