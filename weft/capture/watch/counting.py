"""Counters: `self.steps += 1` on a number from outside.

A run that only increments a counter does not depend on its value. So the number is not guarded, and
each replay increments the current value. If the run reads the number later, it becomes a guard.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

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


class Uncounted(NamedTuple):
    """A number from outside that was not read yet: it may only be incremented."""

    holder: Known  # the container, or the attributes of the object
    number: Any


def of_attribute(hooks: Hooks, obj: Any, name: str) -> Uncounted | None:
    """An attribute from outside that holds a number, not read yet. None if it is not a number."""
    known = hooks.watch.known(obj)
    if known is None or isinstance(obj, type):
        return None
    cls = type(obj)
    found = static_lookup(cls, name)
    if attributes.is_python_function(static_lookup(cls, "__getattribute__")):
        return None
    if attributes.is_python_function(static_lookup(cls, "__setattr__")) and not known.grouped:
        return None
    if found is not MISSING and attributes.is_data_descriptor(found):
        return None
    return _uncounted(hooks, hooks.watch.attributes(known), name)


def of_item(hooks: Hooks, obj: Any, key: Any) -> Uncounted | None:
    """An item of a list or dict from outside that holds a number, not read yet."""
    if type(obj) not in ITEMS or not stores.is_plain_key(key):
        return None
    if isinstance(obj, list) and type(key) is not int:
        return None
    return _uncounted(hooks, hooks.watch.known(obj), key)


def _uncounted(hooks: Hooks, holder: Known | None, key: Any) -> Uncounted | None:
    # Outside of all branches and loop bodies.
    if holder is None or recorder() is not hooks.watch.tensors:
        return None
    try:
        number = holder.obj[key]
    except LookupError:
        return None
    if type(number) not in NUMBERS or _changes(hooks, holder, key):
        return None
    return Uncounted(holder, number)


def _changes(hooks: Hooks, known: Known, key: Any) -> bool:
    """Whether a recording has seen that the number counts, and is another one in each call."""
    changing = hooks.watch.changing
    if not changing.places:
        return False
    keys = [key]
    if isinstance(known.obj, list):  # which may be read from the front or from the back
        keys.append(key - len(known.obj) if key >= 0 else key + len(known.obj))
    return any(stores.element_origin(known, key) in changing for key in keys)


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
            _count(hooks, symbol, obj, key, value, before.holder)
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


def _count(hooks: Hooks, symbol: str, obj: Any, key: Any, by: Any, holder: Known) -> None:
    """obj.key += by, where the holder is the dict of the object; else obj[key] += by"""
    watch = hooks.watch
    known = watch.known(obj)
    assert known is not None
    is_attribute = holder is not known
    if is_attribute:
        watch.save(obj)
    elif isinstance(obj, list):
        stores.read_length(watch, holder)
    before = stores.held(holder)[key]
    watch.guard("class", stores.element_origin(holder, key), type(before), holder=holder)
    stores.before_write(watch, holder)
    if is_attribute:
        attributes.keep_members(watch, obj)
    count = _count_attribute if is_attribute else _count_item
    count(obj, key, symbol, by)
    place = f".{key}" if is_attribute else f"[{key!r:.40}]"
    watch.effect(f"{known.origin.text}{place} {symbol}= …", count, known.origin, key, symbol, by)


def _count_attribute(obj: Any, name: str, symbol: str, by: Any) -> None:
    setattr(obj, name, STEPS[symbol](getattr(obj, name), by))


def _count_item(obj: Any, key: Any, symbol: str, by: Any) -> None:
    obj[key] = STEPS[symbol](obj[key], by)
