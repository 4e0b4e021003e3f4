"""Journals: writes of recorded branches and loop bodies to Python objects, so that they can be
undone.

While a branch is recorded, a journal is open. Before the first write to a variable, an attribute,
an item or a list, the journal saves what it held. At the end of the branch the new contents are
noted and the old ones restored, so that the other branch begins with the same state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from copy import copy
from types import CellType
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.capture.watch import attributes, stores
from weft.capture.watch.origin import MISSING
from weft.capture.watch.stores import Store, instance_dict
from weft.capture.watch.values import CONTAINERS
from weft.core.structure import changed
from weft.core.tensor import Tensor

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks
    from weft.capture.watch.watch import Known, Watch

Parts = dict[Any, Any]


class Entry:
    """One object that is written: it has parts, each with a key."""

    #: Whether both sides must leave the same parts: an item cannot be undefined.
    whole = True

    def __init__(self, obj: Any) -> None:
        self.obj = obj

    def parts(self) -> Parts:
        """Its current parts."""
        raise NotImplementedError

    def put(self, parts: Parts) -> None:
        """Restore its parts, without hooks."""
        raise NotImplementedError

    def give(self, hooks: Hooks, key: Any, value: Any) -> None:
        """Write a part as the recorded code itself would."""
        raise NotImplementedError

    def load(self, hooks: Hooks, key: Any) -> None:
        """Read a part as the recorded code itself would."""
        raise NotImplementedError

    def note(self, hooks: Hooks, key: Any, value: Any) -> None:
        """Note that the recording depends on a value that a part held before (a guard), also where
        the run has written to it since."""
        self.load(hooks, key)
        known = self.known(hooks.watch)
        if known is not None:
            hooks.watch.hold(value, stores.element_origin(known, key))

    def note_whole(self, hooks: Hooks, key: Any, value: Any) -> None:
        """The same with all that a container holds: its numbers stand in the graph."""
        self.note(hooks, key, value)
        if isinstance(value, CONTAINERS):
            hooks.deep(value, "a branch or loop")

    def number(self, hooks: Hooks, key: Any, value: Any) -> Any:
        """What stands for a number that changes from call to call and that a part held before;
        the value itself, where it is none or the run has put it there."""
        known = self.known(hooks.watch)
        if known is None or not isinstance(known.obj, dict) or not hooks.watch.changing.places:
            return value
        depth = stores.store_of(known).depths.get(key)
        if depth is not None and depth <= hooks.flow.depth:
            return value
        origin = stores.element_origin(known, key)
        if origin not in hooks.watch.changing:
            return value
        return hooks.watch.read(value, origin, known)

    def title(self, key: Any) -> str:
        raise NotImplementedError

    def known(self, watch: Watch) -> Known | None:
        return watch.known(self.obj)


class Variable(Entry):
    """A variable that several functions share through a cell."""

    whole = False

    def __init__(self, obj: CellType, name: str, outside: Hooks | None = None) -> None:
        super().__init__(obj)
        self.name = name
        self.outside = outside  # the hooks of a function to which it is from outside, if any

    def parts(self) -> Parts:
        try:
            return {self.name: self.obj.cell_contents}
        except ValueError:
            return {}

    def put(self, parts: Parts) -> None:
        if parts:
            self.obj.cell_contents = parts[self.name]
        elif self.parts():
            del self.obj.cell_contents

    def give(self, hooks: Hooks, key: Any, value: Any) -> None:
        if self.outside is not None:
            self.outside.setfree(self.name, value)
        self.obj.cell_contents = value

    def note(self, hooks: Hooks, key: Any, value: Any) -> None:
        if self.outside is not None:
            self.outside.free(self.name, self.obj.cell_contents)
            hooks.watch.hold(value, self.outside.variables[self.name][1])

    def title(self, key: Any) -> str:
        if self.name.startswith("__weft_result"):
            return "the result"
        return f"the variable {self.name!r}"


class Attributes(Entry):
    """The attributes of an object: its dict and its slots."""

    whole = False

    def parts(self) -> Parts:
        own = instance_dict(self.obj)
        found = dict(own) if own is not None else {}
        slots = {name: getattr(self.obj, name, MISSING) for name in slots_of(type(self.obj))}
        return found | {name: value for name, value in slots.items() if value is not MISSING}

    def put(self, parts: Parts) -> None:
        own, slots = instance_dict(self.obj), slots_of(type(self.obj))
        if own is not None:
            stores.put_back(own, {k: v for k, v in parts.items() if k not in slots})
        for name in slots:
            if name in parts:
                object.__setattr__(self.obj, name, parts[name])
            elif hasattr(self.obj, name):
                object.__delattr__(self.obj, name)
        if own is not None and "_member_kinds" in own:
            changed()

    def give(self, hooks: Hooks, key: Any, value: Any) -> None:
        attributes.store_as_object(hooks, self.obj, key, value)

    def load(self, hooks: Hooks, key: Any) -> None:
        attributes.load_as_object(hooks, self.obj, key)

    def title(self, key: Any) -> str:
        return f"the attribute {key!r} of a {type(self.obj).__name__}"

    def known(self, watch: Watch) -> Known | None:
        known = watch.known(self.obj)
        return None if known is None else watch.attributes(known)


class Items(Entry):
    """A dict."""

    def parts(self) -> Parts:
        return dict(self.obj)

    def put(self, parts: Parts) -> None:
        stores.put_back(self.obj, parts)

    def give(self, hooks: Hooks, key: Any, value: Any) -> None:
        hooks.setitem(value, self.obj, key)

    def load(self, hooks: Hooks, key: Any) -> None:
        hooks.item(self.obj, key)

    def title(self, key: Any) -> str:
        return f"the item {key!r} of a {type(self.obj).__name__}"


class Globals(Items):
    """The global variables of a module."""

    def __init__(self, obj: Any, hooks: Hooks) -> None:
        super().__init__(obj)
        self.hooks = hooks

    def give(self, hooks: Hooks, key: Any, value: Any) -> None:
        self.hooks.setglobal(key, value)

    def load(self, hooks: Hooks, key: Any) -> None:
        self.hooks.glob(key)

    def title(self, key: Any) -> str:
        return f"the global {key!r}"

    def known(self, watch: Watch) -> Known | None:
        return watch.namespace(self.obj, "global ")


class Sequence(Items):
    """A list or a deque."""

    def parts(self) -> Parts:
        return dict(enumerate(self.obj))

    def put(self, parts: Parts) -> None:
        stores.put_back(self.obj, list(parts.values()))


class Set(Items):
    """A set: its elements are its keys."""

    def parts(self) -> Parts:
        return dict.fromkeys(self.obj, True)

    def put(self, parts: Parts) -> None:
        stores.put_back(self.obj, list(parts))


class Array(Items):
    """A NumPy array: its only part are its elements."""

    def parts(self) -> Parts:
        return {"the elements": Elements(self.obj.copy())}

    def put(self, parts: Parts) -> None:
        np.copyto(self.obj, parts["the elements"].array)

    def give(self, hooks: Hooks, key: Any, value: Any) -> None:
        known = hooks.watch.known(self.obj)
        if known is None:
            self.put({key: value})
        else:
            hooks.write_array(known, lambda: self.put({key: value}), "[…] =")

    def note(self, hooks: Hooks, key: Any, value: Any) -> None:
        known = hooks.watch.known(self.obj)
        if known is not None:
            hooks.watch.content(known)

    def title(self, key: Any) -> str:
        return "a NumPy array"


class Elements:
    """The elements of an array, compared as a whole."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Elements) and self.array.tobytes() == other.array.tobytes()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.array)


def entry_for(obj: Any) -> Entry:
    if isinstance(obj, np.ndarray):
        return Array(obj)
    if isinstance(obj, dict):
        return Items(obj)
    if isinstance(obj, (list, deque)):
        return Sequence(obj)
    if isinstance(obj, set):
        return Set(obj)
    return Attributes(obj)


def slots_of(cls: type) -> list[str]:
    names: list[str] = []
    for base in cls.__mro__:
        found = base.__dict__.get("__slots__", ())
        names += [found] if isinstance(found, str) else list(found)
    return [name for name in names if not name.startswith("__")]


def same_parts(a: Parts, b: Parts) -> bool:
    return len(a) == len(b) and all(
        _same_key(x, y) and a[x] is b[y] for x, y in zip(a, b, strict=True)
    )


def _same_key(x: Any, y: Any) -> bool:
    """Whether two keys are equal; tensors are compared by identity."""
    return x is y or (type(x) is type(y) and not isinstance(x, Tensor) and bool(x == y))


class Journal:
    """The objects that were written since it was opened."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.entries: dict[int, tuple[Entry, Parts]] = {}
        self._stores: dict[int, tuple[Known, Store | None]] = {}
        self._effects = len(watch._effects)
        self._written = set(watch.written)

    def add(self, entry: Entry, before: Parts) -> None:
        """Save the parts of an object before it is written."""
        self.entries[id(entry.obj)] = (entry, before)
        known = entry.known(self.watch)
        if known is not None and id(known) not in self._stores:
            store = copy(known.store)
            if store is not None:
                store.written = set(store.written)
            self._stores[id(known)] = (known, store)

    def contents(self) -> dict[int, Parts]:
        """The current parts of each object that was written."""
        return {key: entry.parts() for key, (entry, _) in self.entries.items()}

    def changed(self, since: Mapping[int, Parts] | None = None) -> list[Entry]:
        """The objects whose parts are others than before, or than they were `since`."""
        since = {} if since is None else since
        return [
            entry
            for key, (entry, before) in self.entries.items()
            if not same_parts(since.get(key, before), entry.parts())
        ]

    def undo(self) -> None:
        """Restore all objects."""
        for entry, before in self.entries.values():
            entry.put(before)
        for known, store in self._stores.values():
            known.store = store
        del self.watch._effects[self._effects :]
        self.watch.written.clear()
        self.watch.written.update(self._written)
