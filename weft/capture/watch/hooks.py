"""Hooks: what rewritten code calls instead of reading, writing, calling and comparing by itself.

One object for each followed function, so that it knows the function's globals and closure; all of
one run share its `Watch`. After the run they do what plain Python does.
"""

from __future__ import annotations

import builtins
import importlib.util
import sys
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base.source import is_own
from weft.capture.convert.statements import Statements
from weft.capture.watch import (
    attributes,
    builtin_calls,
    calls,
    counting,
    guard_recursively,
    library,
    operators,
    printing,
    stores,
)
from weft.capture.watch.escaping_values import Handing
from weft.capture.watch.lost_writes import LostWrites
from weft.capture.watch.origin import MISSING, Origin
from weft.capture.watch.values import CONTAINERS, is_of_weft, is_plain
from weft.core.tensor import Tensor

if TYPE_CHECKING:
    from weft.capture.watch.watch import Known, Watch

_NOTHING: dict[str, Any] = {}


class Hooks(Handing, LostWrites):
    """The hooks of one function in one run."""

    transformer: type[Statements] = Statements

    def __init__(self, watch: Watch, function: types.FunctionType | None) -> None:
        self.watch = watch
        self.function = function
        self.globals: dict[str, Any] = _NOTHING if function is None else function.__globals__
        self.own = function is not None and is_own(function.__code__.co_filename)
        #: functions that were rebuilt for this run, by id
        self.rebuilt: dict[int, tuple[Any, Any, Any]] = {}
        self._kept: Any = None
        self._kept_right: Any = None
        self._cells: dict[str, tuple[types.CellType, Origin]] = {}

    def of(self, function: types.FunctionType) -> Hooks:
        """The hooks of another function in the same run."""
        made = type(self)(self.watch, function)
        made.rebuilt = self.rebuilt
        place = self.watch.know_again(function)
        names = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        for i, (name, cell) in enumerate(names):
            if place.pinned:
                origin = self.watch.pin(cell, name).contents(name)
            else:
                closure = place.origin.attr("__closure__").item(i)
                origin = closure.contents(f"{name} of {place.origin.text}")
            made._cells[name] = (cell, origin)
        return made

    # --- names --------------------------------------------------------------------------------

    def glob(self, name: str) -> Any:
        names = self.globals
        if name in names:
            return self.watch_global(names, "global ", name, names[name])
        watch = self.watch
        known = watch.namespace(names, "global ")
        if known.store is not None and known.store.written:  # deleted by this run, perhaps
            stores.read_item(watch, known, name)
        found = names.get("__builtins__", builtins)
        table = found if isinstance(found, dict) else vars(found)
        if name not in table:
            stores.read_item(watch, known, name)
            raise NameError(f"name {name!r} is not defined", name=name)
        return table[name]

    def watch_global(self, names: dict[str, Any], prefix: str, name: str, value: Any) -> Any:
        watch = self.watch
        # Weft's own functions, classes and constants do not change under its own code.
        if self.own and (
            isinstance(value, (types.FunctionType, type, types.ModuleType))
            or is_plain(value)
            or (is_of_weft(value) and not isinstance(value, Tensor))
        ):
            return value
        stores.read_item(watch, watch.namespace(names, prefix), name)
        return value

    def setglobal(self, name: str, value: Any) -> Any:
        stores.write_item(self.watch, self.watch.namespace(self.globals, "global "), name, value)
        return value

    def delglobal(self, name: str) -> None:
        known = self.watch.namespace(self.globals, "global ")
        if name not in self.globals:
            stores.read_item(self.watch, known, name)
            raise NameError(f"name {name!r} is not defined", name=name)
        stores.delete_item(self.watch, known, name)

    def free(self, name: str, value: Any) -> Any:
        """A variable of a function around the followed one was read."""
        cell, origin = self._cells[name]
        if (id(cell), name) not in self.watch.written:
            self.watch.note(value, origin)
        return value

    def setfree(self, name: str, value: Any) -> Any:
        """A variable of a function around is about to get a value."""
        cell, _ = self._cells[name]
        watch = self.watch
        try:
            old = cell.cell_contents
        except ValueError:
            old = MISSING
        watch.undo(lambda: _fill(cell, old))
        watch.written.add((id(cell), name))
        origin = self._cells[name][1]
        assert origin.parent is not None
        watch.effect(f"{name} = …", _fill, origin.parent, value)
        return value

    def imported(self, value: Any, module: str, name: str) -> Any:
        """`from module import name` in a function."""
        package = self.globals.get("__package__") or self.globals.get("__name__", "")
        found = sys.modules.get(importlib.util.resolve_name(module, package))
        if found is None or isinstance(value, types.ModuleType):
            return value
        return attributes.load(self, found, name)

    # --- attributes and items -----------------------------------------------------------------

    def attr(self, obj: Any, name: str) -> Any:
        return attributes.load(self, obj, name)

    def setattr(self, value: Any, obj: Any, name: str) -> None:
        attributes.store(self, obj, name, value)

    def delattr(self, obj: Any, name: str) -> None:
        attributes.delete(self, obj, name)

    def slice(self, lower: Any, upper: Any, step: Any) -> slice:
        return slice(lower, upper, step)

    def item(self, obj: Any, key: Any) -> Any:
        cls = type(obj)
        if isinstance(obj, Tensor):
            return obj[self.index(key)]
        if isinstance(obj, type) and operators.special(type(obj), "__getitem__") is None:
            return obj[key]  # type: ignore[index]  # list[int], Color["RED"]
        method = operators.special(cls, "__getitem__")
        if method is not None:
            attributes.class_attribute(self.watch, cls, "__getitem__", method)
            return self.call(method, obj, key)
        known = self.watch.known(obj)
        if known is not None:
            if isinstance(obj, CONTAINERS):
                return self.container_item(obj, known, key)
            if isinstance(obj, np.ndarray):
                self.watch.content(known)
            elif not isinstance(obj, types.MappingProxyType):
                self.deep(obj, "[]")
        if isinstance(obj, dict):
            self.key(key)
            return self.container_item(obj, None, key)
        if isinstance(obj, np.ndarray):
            key = self.operand(key, obj)
        return obj[key]

    def index(self, key: Any) -> Any:
        """What a tensor is indexed by: lists in it are read, and arrays, unless recorded."""
        whole = self.watch.known(key) if type(key) is tuple else None
        if whole is not None:
            stores.whole(self.watch, whole)
        for part in key if type(key) is tuple else (key,):
            known = self.watch.known(part)
            if known is not None and isinstance(part, np.ndarray):
                if not library.taken(self, known, "index"):
                    self.watch.content(known)
            elif not isinstance(part, Tensor):
                self.deep(part, "an index", calls=False)
        return key

    def container_item(self, obj: Any, known: Known | None, key: Any) -> Any:
        if known is not None:
            stores.read_item(self.watch, known, key)
        if isinstance(obj, dict) and not dict.__contains__(obj, key):
            return self._missing(obj, key)
        return stores.base_of(obj).__getitem__(obj, key)

    def _missing(self, obj: Any, key: Any) -> Any:
        """What a dict does for a key that it lacks."""
        cls = type(obj)
        factory = getattr(obj, "default_factory", None)
        if operators.special(cls, "__missing__") is not None:
            method = operators.special(cls, "__missing__")
            attributes.class_attribute(self.watch, cls, "__missing__", method)
            return self.call(method, obj, key)
        if factory is None or not hasattr(cls, "__missing__"):
            return dict.__getitem__(obj, key)  # its error, or the `__missing__` of the library
        value = self.call(factory)
        self.setitem(value, obj, key)
        return value

    def setitem(self, value: Any, obj: Any, key: Any) -> None:
        cls = type(obj)
        method = operators.special(cls, "__setitem__")
        if method is not None:
            attributes.class_attribute(self.watch, cls, "__setitem__", method)
            self.call(method, obj, key, value)
            return
        known = self.watch.known(obj)
        if isinstance(obj, (dict, set)):
            self.key(key)
        if known is not None and isinstance(obj, CONTAINERS) and not isinstance(obj, tuple):
            if isinstance(key, slice):
                value = list(self.iter(value))
            stores.write_item(self.watch, known, key, value)
            return
        if known is not None and isinstance(obj, np.ndarray):
            self.write_array(known, lambda: obj.__setitem__(key, self.operand(value, obj)), "[…] =")
            return
        if isinstance(obj, Tensor):
            key, value = self.index(key), self.operand(value, obj)
        elif isinstance(obj, np.ndarray):
            self.write_view(obj)
            value = self.operand(value, obj)
        elif known is not None:
            self.watch.refuse(f"an item of {known.origin.text} ({cls.__name__}) is set")
        obj[key] = value

    def delitem(self, obj: Any, key: Any) -> None:
        cls = type(obj)
        method = operators.special(cls, "__delitem__")
        if method is not None:
            attributes.class_attribute(self.watch, cls, "__delitem__", method)
            self.call(method, obj, key)
            return
        known = self.watch.known(obj)
        if known is not None and isinstance(obj, CONTAINERS):
            stores.delete_item(self.watch, known, key)
            return
        if known is not None:
            self.watch.refuse(f"an item of {known.origin.text} is deleted")
        del obj[key]

    def old_attr(self, obj: Any, name: str) -> tuple[Any, ...]:
        before = counting.of_attribute(self, obj, name) or self.attr(obj, name)
        return before, attributes.store, obj, name

    def old_item(self, obj: Any, key: Any) -> tuple[Any, ...]:
        before = counting.of_item(self, obj, key) or self.item(obj, key)
        return before, None, obj, key

    def augment(self, symbol: str, old: tuple[Any, ...], value: Any) -> None:
        """obj.name += value, obj[key] += value"""
        before, store, obj, key = old
        if before.__class__ is counting.Uncounted:
            if symbol in counting.STEPS and type(value) in counting.NUMBERS:
                count = counting.count_item if store is None else counting.count_attribute
                count(self, symbol, obj, key, value)
                return
            before = self.item(obj, key) if store is None else self.attr(obj, key)
        new = self.inplace(symbol, before, value)
        if store is None:
            self.setitem(new, obj, key)
        else:
            attributes.store(self, obj, key, new)

    # --- calls --------------------------------------------------------------------------------

    def call(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        # Followed functions are called from right here: every frame counts in recursions.
        target = function
        if target.__class__ is types.MethodType:
            args = (target.__self__, *args)
            target = target.__func__
        known = self.rebuilt.get(id(target))
        if known is not None and known[2] is known[0].__code__:
            return known[1](*printing.settled_all(args), **printing.settled_named(kwargs))
        if not printing.is_shown(function):
            args, kwargs = printing.settled_all(args), printing.settled_named(kwargs)
        return calls.call(self, target, args, kwargs)

    def callback(self, function: Any) -> Any:
        """A function for the library to call: the followed one in place of the original."""
        return calls.followed(self, function)

    def for_transform(self, function: Any) -> Any:
        """A followed function as a transform is to run it."""
        return function

    def decorator(self, function: Any) -> Callable[[Any], Any]:
        return lambda target: self.call(function, target)

    def made_class(self, cls: type) -> type:
        """A class statement of the followed function was run."""
        self.watch.inside_classes[id(cls)] = cls
        if type(cls) is not type and operators.special(type(cls), "__new__") is not None:
            self.watch.refuse(f"the metaclass of {cls.__name__} is not watched")
        return cls

    def of_frame(self, name: str, result: Any) -> Any:
        if name in ("locals", "vars"):
            return {key: value for key, value in result.items() if not key.startswith("__weft")}
        if name == "dir":
            return [key for key in result if not key.startswith("__weft")]
        self.watch.refuse(f"{name}() is called, and what it sees is not watched")
        return result

    def not_watched(self, what: str) -> None:
        self.watch.refuse(f"{what} is not watched")

    def context(self, manager: Any) -> Any:
        """What a `with` statement enters."""
        cls = type(manager)
        if (
            operators.special(cls, "__enter__") is None
            and operators.special(cls, "__exit__") is None
        ):
            known = self.watch.known(manager)
            if known is not None and not isinstance(manager, Tensor):
                self.deep(manager, "with")
            return manager
        return builtin_calls.FollowedContext(self, manager)

    # --- operators, tests and iteration -------------------------------------------------------

    def binary(self, symbol: str, a: Any, b: Any) -> Any:
        return operators.binary(self, symbol, a, b)

    def inplace(self, symbol: str, a: Any, b: Any) -> Any:
        return operators.inplace(self, symbol, a, b)

    def unary(self, symbol: str, a: Any) -> Any:
        return operators.unary(self, symbol, a)

    def compare(self, symbol: str, a: Any, b: Any) -> Any:
        return operators.compare(self, symbol, a, b)

    def compare_first(self, symbol: str, a: Any, b: Any) -> bool:
        """The first part of a < b < c."""
        result = self.compare(symbol, a, b)
        answer = self.test(result)
        self._kept, self._kept_right = result, b
        return answer

    def test(self, value: Any) -> bool:
        return operators.truth(self, value)

    def not_(self, value: Any) -> bool:
        return not self.test(value)

    def keep(self, value: Any) -> bool:
        """The truth of a value, which `kept` gives back if it turns out to be the result."""
        answer = self.test(value)
        self._kept = value
        return answer

    def kept(self) -> Any:
        value, self._kept = self._kept, None
        return value

    def kept_right(self) -> Any:
        value, self._kept_right = self._kept_right, None
        return value

    def iter(self, value: Any) -> Any:
        return operators.iterate(self, value)

    def mapping(self, value: Any) -> Any:
        """What `**` takes."""
        known = self.watch.known(value)
        if isinstance(value, dict):
            if known is not None:
                stores.whole(self.watch, known)
            return value
        if isinstance(value, Mapping) or hasattr(type(value), "keys"):
            keys = self.iter(self.call(self.attr(value, "keys")))
            return {key: self.item(value, key) for key in keys}
        return value

    def pairs(self, value: Any) -> Any:
        """What dict.update takes."""
        if hasattr(type(value), "keys"):
            return self.mapping(value)
        return [tuple(self.iter(pair)) for pair in self.iter(value)]

    def unpack(self, value: Any, pattern: tuple[Any, ...]) -> Any:
        """What an assignment takes apart."""
        value = self.iter(value)
        nested = any(isinstance(part, tuple) for part in pattern)
        if not nested or type(value) not in (tuple, list) or len(value) != len(pattern):
            return value
        return [
            self.unpack(part, inner) if isinstance(inner, tuple) else part
            for part, inner in zip(value, pattern, strict=True)
        ]

    def unpack_each(self, values: Any, pattern: tuple[Any, ...]) -> Any:
        return (self.unpack(value, pattern) for value in values)

    def first(self, value: Any, *late: Callable[[], Any]) -> Any:
        """The subject of a match statement, with the names that its patterns use."""
        for read in late:
            try:
                read()
            except (NameError, AttributeError):
                continue  # the pattern itself will say so, if it is reached
        return value

    def subject(self, value: Any) -> Any:
        self.deep(value, "match", calls=False)
        guard_recursively.refuse_computed(self, value)
        return value


def _fill(cell: types.CellType, value: Any) -> None:
    if value is MISSING:
        del cell.cell_contents
    else:
        cell.cell_contents = value
