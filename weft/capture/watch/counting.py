"""Counters: `self.steps += 1` on a number from outside.

A run that only increments a counter does not depend on its value. So the number is not guarded, and
each replay increments the current value. If the run reads the number later, it becomes a guard.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.capture.watch import attributes, stores
from weft.capture.watch.origin import MISSING, static_lookup
from weft.core.bind import recorder
from weft.core.counted import CountedDict, CountedList
from weft.core.number import is_unknown

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks
    from weft.capture.watch.watch import Known

STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
NUMBERS = (int, float)
ITEMS = (list, dict, CountedList, CountedDict)


class Uncounted:
    """A number from outside that was not read yet: it may only be incremented."""

    __slots__ = ("number",)

    def __init__(self, number: Any) -> None:
        self.number = number


def of_attribute(hooks: Hooks, obj: Any, name: str) -> Uncounted | None:
    """An attribute from outside that holds a number, not read yet. None if it is not a number."""
    known = hooks.watch.known(obj)
    if known is None or not _at_top(hooks) or isinstance(obj, type):
        return None
    cls = type(obj)
    finder, found = static_lookup(cls, "__getattribute__"), static_lookup(cls, name)
    if attributes.is_python_function(finder):
        return None
    if attributes.is_python_function(static_lookup(cls, "__setattr__")) and not known.grouped:
        return None
    if found is not MISSING and attributes.is_data_descriptor(found):
        return None
    own = stores.instance_dict(obj)
    number = MISSING if own is None else own.get(name, MISSING)
    attributes_of = hooks.watch.attributes(known)
    if attributes_of is not None and _changes(hooks, attributes_of, name):
        return None
    return Uncounted(number) if type(number) in NUMBERS else None


def of_item(hooks: Hooks, obj: Any, key: Any) -> Uncounted | None:
    """An item of a list or dict from outside that holds a number, not read yet."""
    known = hooks.watch.known(obj)
    if known is None or not _at_top(hooks) or type(obj) not in ITEMS:
        return None
    if (isinstance(obj, list) and type(key) is not int) or not stores.is_plain_key(key):
        return None
    try:
        number = obj[key]
    except LookupError:
        return None
    if _changes(hooks, known, key):
        return None
    return Uncounted(number) if type(number) in NUMBERS else None


def _changes(hooks: Hooks, known: Known, key: Any) -> bool:
    """Whether a recording has seen that the number counts, and is another one in each call."""
    changing = hooks.watch.changing
    if not changing.places:
        return False
    keys = [key]
    if isinstance(known.obj, list):  # which may be read from the front or from the back
        keys.append(key - len(known.obj) if key >= 0 else key + len(known.obj))
    return any(stores.element_origin(known, key) in changing for key in keys)


def _at_top(hooks: Hooks) -> bool:
    """Whether code is recorded outside of all branches and loop bodies."""
    watcher: object = hooks.watch.tensors
    return recorder() is watcher


# --- obj.name += value, obj[key] += value --------------------------------------------------------


def old_attribute(hooks: Hooks, obj: Any, name: str) -> tuple[Any, ...]:
    """The old value of an attribute for `augment`; read before the right side is evaluated."""
    before = of_attribute(hooks, obj, name) or hooks.attr(obj, name)
    return before, attributes.store, obj, name


def old_item(hooks: Hooks, obj: Any, key: Any) -> tuple[Any, ...]:
    before = of_item(hooks, obj, key) or hooks.item(obj, key)
    return before, None, obj, key


def augment(hooks: Hooks, symbol: str, old: tuple[Any, ...], value: Any) -> None:
    before, store, obj, key = old
    if before.__class__ is Uncounted:
        if symbol in STEPS and (type(value) in NUMBERS or _is_of_tensor(value)):
            count = count_item if store is None else count_attribute
            count(hooks, symbol, obj, key, value)
            return
        before = hooks.item(obj, key) if store is None else hooks.attr(obj, key)
    new = hooks.inplace(symbol, before, value)
    if store is None:
        hooks.setitem(new, obj, key)
    else:
        attributes.store(hooks, obj, key, new)


def _is_of_tensor(value: Any) -> bool:
    """Whether each replay finds the number in what the graph gives."""
    return is_unknown(value) and value.kind in ("int", "float")


def count_attribute(hooks: Hooks, symbol: str, obj: Any, name: str, by: Any) -> None:
    """obj.name += by"""
    watch = hooks.watch
    known = watch.known(obj)
    assert known is not None
    own = watch.attributes(known)
    assert own is not None
    watch.save(obj)
    before = stores.held(own)[name]
    watch.guard("class", stores.element_origin(own, name), type(before), holder=own)
    stores.before_write(watch, own)
    attributes.keep_members(watch, obj)
    _count_attribute(obj, name, symbol, by)
    text = f"{known.origin.text}.{name} {symbol}= …"
    watch.effect(text, _count_attribute, known.origin, name, symbol, by)


def count_item(hooks: Hooks, symbol: str, obj: Any, key: Any, by: Any) -> None:
    """obj[key] += by"""
    watch = hooks.watch
    known = watch.known(obj)
    assert known is not None
    if isinstance(obj, list):
        stores.read_length(watch, known)
    before = stores.held(known)[key]
    watch.guard("class", stores.element_origin(known, key), type(before), holder=known)
    stores.before_write(watch, known)
    _count_item(obj, key, symbol, by)
    text = f"{known.origin.text}[{key!r:.40}] {symbol}= …"
    watch.effect(text, _count_item, known.origin, key, symbol, by)


def _count_attribute(obj: Any, name: str, symbol: str, by: Any) -> None:
    setattr(obj, name, STEPS[symbol](getattr(obj, name), by))


def _count_item(obj: Any, key: Any, symbol: str, by: Any) -> None:
    obj[key] = STEPS[symbol](obj[key], by)
