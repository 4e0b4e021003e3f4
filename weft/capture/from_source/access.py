"""Items and calls of captured code: reads from outside get guards, writes are noted in journals.

A list whose length only the graph knows (`dynamic_list`) answers what it can from the graph. If
Python needs its elements, it is converted to a plain list first.
"""

from __future__ import annotations

import types
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base.asked_sizes import numbers_of
from weft.base.errors import CaptureError
from weft.capture.from_source.dynamic_list import dynamic_list_of
from weft.capture.from_source.number_index import in_range
from weft.capture.watch import library, operators, stores
from weft.capture.watch.follow import module_of
from weft.capture.watch.origin import MISSING
from weft.capture.watch.settled_numbers import settled
from weft.capture.watch.texts import TextParts
from weft.capture.watch.values import CONTAINERS
from weft.core.number import Number, is_unknown, kind_of
from weft.core.public import PUBLIC
from weft.core.tensor import Tensor
from weft.record.control.loop_rows import numbers_in
from weft.record.effects import py_call_like

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks
    from weft.capture.watch.watch import Known


# --- items ---------------------------------------------------------------------------------------


def load_item(hooks: Hooks, obj: Any, key: Any) -> Any:
    """obj[key]"""
    hooks.use(obj)
    if obj.__class__ is TextParts:
        obj = str(obj)
    watch, cls = hooks.watch, type(obj)
    if isinstance(obj, dict):
        numbers = watch.numbers or key.__class__ in (Number, TextParts)
        key = settled(numbers_of(key)) if numbers else numbers_of(key)
    dynamic = dynamic_list_of(obj)
    if dynamic is not None:
        if isinstance(key, (int, Tensor)):
            return dynamic.item(key)
        hooks.use_items(obj)
    if isinstance(obj, Tensor):
        return obj[index(hooks, in_range(obj, key))]
    if is_unknown(key) and type(obj) in (list, tuple) and kind_of(next(iter(obj), None)):
        found = numbers_in(list(hooks.iter(obj)))
        if found is not None and hooks.records():
            return found.at(key)
    if isinstance(obj, type) and operators.special(type(obj), "__getitem__") is None:
        return obj[key]  # type: ignore[index]  # list[int], Color["RED"]
    if operators.special(cls, "__getitem__") is not None:
        return operators.call_special(hooks, obj, "__getitem__", key)
    known = watch.known(obj)
    if known is not None:
        if isinstance(obj, CONTAINERS):
            return container_item(hooks, obj, known, key)
        if isinstance(obj, np.ndarray):
            watch.content(known)
        elif not isinstance(obj, types.MappingProxyType):
            hooks.deep(obj, "[]")
    if isinstance(obj, dict):
        hooks.key(key)
        return container_item(hooks, obj, None, key)
    if isinstance(obj, np.ndarray):
        key = hooks.operand(key, obj)
    return obj[key]


def index(hooks: Hooks, key: Any) -> Any:
    """The index of a tensor; lists and arrays in it are read, unless they are recorded."""
    watch = hooks.watch
    if watch.numbers and type(key) in (slice, tuple):  # sizes are to be known
        key = tuple(map(_bounds, key)) if type(key) is tuple else _bounds(key)
    whole = watch.known(key) if type(key) is tuple else None
    if whole is not None:
        stores.whole(watch, whole)
    return (
        tuple([_place(hooks, part) for part in key]) if type(key) is tuple else _place(hooks, key)
    )


def _place(hooks: Hooks, part: Any) -> Any:
    if isinstance(part, np.ndarray):
        return library.array_for_weft(hooks, part)
    if not isinstance(part, Tensor):
        hooks.deep(part, "an index", calls=False)
    return part


def _bounds(key: Any) -> Any:
    return settled(key, keeps=True) if type(key) is slice else key


def container_item(hooks: Hooks, obj: Any, known: Known | None, key: Any) -> Any:
    if known is not None:
        number = stores.read_item(hooks.watch, known, key)
        if number is not MISSING:
            return number
    if isinstance(obj, dict) and not dict.__contains__(obj, key):
        return _missing(hooks, obj, key)
    return stores.base_of(obj).__getitem__(obj, key)


def _missing(hooks: Hooks, obj: Any, key: Any) -> Any:
    """What a dict does for a missing key."""
    cls = type(obj)
    factory = obj.default_factory if isinstance(obj, defaultdict) else None
    if operators.special(cls, "__missing__") is not None:
        return operators.call_special(hooks, obj, "__missing__", key)
    if factory is None or not hasattr(cls, "__missing__"):
        return dict.__getitem__(obj, key)  # its error, or the `__missing__` of the library
    value = hooks.call(factory)
    store_item(hooks, obj, key, value)
    return value


def store_item(hooks: Hooks, obj: Any, key: Any, value: Any) -> None:
    """obj[key] = value"""
    hooks.use_items(obj)
    watch, cls = hooks.watch, type(obj)
    known = watch.known(obj)
    if isinstance(obj, dict) and not (known is not None and stores.varies(key)):
        numbers = watch.numbers or key.__class__ in (Number, TextParts)
        key = settled(numbers_of(key)) if numbers else numbers_of(key)
    if isinstance(obj, (*CONTAINERS, np.ndarray)):
        hooks.flow.save(obj)
    if operators.special(cls, "__setitem__") is not None:
        operators.call_special(hooks, obj, "__setitem__", key, value)
        return
    if isinstance(obj, (dict, set)) and not (known is not None and stores.varies(key)):
        hooks.key(key)
    if known is not None and isinstance(obj, CONTAINERS) and not isinstance(obj, tuple):
        if isinstance(key, slice):
            value = list(hooks.iter(value))
        stores.write_item(watch, known, key, value)
        return
    if known is not None and isinstance(obj, np.ndarray):
        hooks.write_array(known, lambda: obj.__setitem__(key, hooks.operand(value, obj)), "[…] =")
        return
    if isinstance(obj, Tensor):
        key, value = index(hooks, in_range(obj, key)), hooks.operand(value, obj)
    elif isinstance(obj, np.ndarray):
        hooks.write_view(obj, lambda: obj.__setitem__(key, hooks.operand(value, obj)))
        return
    elif known is not None:
        watch.refuse(f"an item of {known.origin.text} ({cls.__name__}) is set")
    obj[key] = value


def delete_item(hooks: Hooks, obj: Any, key: Any) -> None:
    """del obj[key]"""
    hooks.use_items(obj)
    watch, cls = hooks.watch, type(obj)
    key = numbers_of(key)
    if isinstance(obj, CONTAINERS):
        hooks.flow.save(obj)
    if operators.special(cls, "__delitem__") is not None:
        operators.call_special(hooks, obj, "__delitem__", key)
        return
    known = watch.known(obj)
    if known is not None and isinstance(obj, CONTAINERS):
        stores.delete_item(watch, known, key)
        return
    if known is not None:
        watch.refuse(f"an item of {known.origin.text} is deleted")
    del obj[key]


# --- unpacking ----------------------------------------------------------------------------------


def mapping(hooks: Hooks, value: Any) -> Any:
    """The operand of `**`."""
    hooks.use(value)
    known = hooks.watch.known(value)
    if isinstance(value, dict):
        if known is not None:
            stores.whole(hooks.watch, known)
        return value
    if isinstance(value, Mapping) or hasattr(type(value), "keys"):
        keys = hooks.iter(hooks.call(hooks.attr(value, "keys")))
        return {key: hooks.item(value, key) for key in keys}
    return value


def pairs(hooks: Hooks, value: Any) -> Any:
    """The argument of dict.update."""
    if hasattr(type(value), "keys"):
        return hooks.mapping(value)
    return [tuple(hooks.iter(pair)) for pair in hooks.iter(value)]


def unpack(hooks: Hooks, value: Any, pattern: tuple[Any, ...]) -> Any:
    """The value that an assignment unpacks."""
    value = hooks.iter(value)
    nested = any(isinstance(part, tuple) for part in pattern)
    if not nested or type(value) not in (tuple, list) or len(value) != len(pattern):
        return value
    return [
        hooks.unpack(part, inner) if isinstance(inner, tuple) else part
        for part, inner in zip(value, pattern, strict=True)
    ]


def unpack_each(hooks: Hooks, values: Any, pattern: tuple[Any, ...]) -> Any:
    return (hooks.unpack(value, pattern) for value in values)


# --- calls ---------------------------------------------------------------------------------------


def call_foreign(hooks: Hooks, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call code of other libraries with tensors of the graph."""
    if hooks.flow.fallback == "python":
        return py_call_like(function, args, kwargs)
    own = getattr(function, "__name__", None) or type(function).__name__
    module = module_of(function).partition(".")[0]
    name = f"{module}.{own}" if module else own
    known = PUBLIC.get(own)
    ours = f"use weft.{own}" if known is not None else "use the function of Weft"
    raise CaptureError(
        "this function takes numbers, which the tensors of a graph do not have yet",
        op=name,
        hint=f"{ours}; or weft.py_call({name}, weft.spec(...), x), or "
        'weft.compile(..., fallback="python"), which call Python from the graph',
    )
