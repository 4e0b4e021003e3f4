"""Methods of builtin containers from outside: which read, what they read, and which write."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.capture.watch import stores
from weft.capture.watch.builtin_calls import HANDLERS
from weft.capture.watch.operators import COMPARING
from weft.capture.watch.stores import base_of, became, before_write, blind, read_item, whole

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks
    from weft.capture.watch.watch import Known

Method = Callable[..., Any]


def call_method(
    hooks: Hooks, known: Known, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """container.name(*args, **kwargs)"""
    base = base_of(known.obj)
    family = "dict" if issubclass(base, dict) else "set" if base in (set, frozenset) else "list"
    method = _METHODS[family].get(name)
    if method is not None:
        return method(hooks, known, name, args, kwargs)
    # All others look at everything, or are those of a subclass that is written in C.
    calls: Any = COMPARING if name in ("index", "count", "__contains__", *COMPARING) else True
    hooks.deep((known.obj, args, kwargs), f"{base.__name__}.{name}", calls)
    return natural(known, name)(*args, **kwargs)


def natural(known: Known, name: str) -> Any:
    return getattr(base_of(known.obj), name).__get__(known.obj)


# --- all -----------------------------------------------------------------------------------------


def _whole(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    whole(hooks.watch, known)
    args = tuple(hooks.shallow(value) for value in args)
    return natural(known, name)(*args, **kwargs)


def _length(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    stores.read_length(hooks.watch, known)
    return natural(known, name)(*args, **kwargs)


def _getitem(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    return hooks.container_item(known, args[0])


def _setitem(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    stores.write_item(hooks.watch, known, *args)


def _delitem(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    stores.delete_item(hooks.watch, known, *args)


def _blind(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    return blind(hooks.watch, known, name, *args)


def _blind_all(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    """Takes an iterable, which is gone through before."""
    values = [list(hooks.iter(value)) for value in args]
    result = blind(hooks.watch, known, _AS_METHOD.get(name, name), *values)
    return known.obj if name.startswith("__i") else result


#: The operators of sets take sets only; their methods take any iterable.
_AS_METHOD = {"__ior__": "update", "__isub__": "difference_update"}


def _changing(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    """Reads all and changes it: what is left follows from what was there."""
    whole(hooks.watch, known)
    if name == "sort":
        before_write(hooks.watch, known)
        list.__setitem__(known.obj, slice(None), HANDLERS[sorted](hooks, (known.obj,), kwargs))
        became(hooks.watch, known, f"{known.origin.text}.sort(…)")
        return None
    if name == "remove":
        hooks.deep((known.obj, args), name, COMPARING)
    args = tuple(hooks.shallow(value) for value in args)
    before_write(hooks.watch, known)
    result = natural(known, name)(*args, **kwargs)
    became(hooks.watch, known, f"{known.origin.text}.{name}(…)")
    return known.obj if name.startswith("__i") else result


# --- lists and deques ----------------------------------------------------------------------------


def _insert(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    if args[0] != 0:
        stores.read_length(hooks.watch, known)
    return blind(hooks.watch, known, name, *args)


def _append(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    if isinstance(known.obj, deque):
        maxlen = known.obj.maxlen
        hooks.watch.note(maxlen, known.origin.attr("maxlen"))
    return blind(hooks.watch, known, name, *args)


# --- dicts ---------------------------------------------------------------------------------------


def _get(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    read_item(hooks.watch, known, args[0])
    return natural(known, name)(*args, **kwargs)


def _contains(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    stores.read_presence(hooks.watch, known, args[0])
    return natural(known, name)(*args)


def _keys(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    stores.read_keys(hooks.watch, known)
    return natural(known, name)(*args)


def _setdefault(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    read_item(hooks.watch, known, args[0])
    if not dict.__contains__(known.obj, args[0]):
        stores.write_item(hooks.watch, known, args[0], args[1] if len(args) > 1 else None)
    return dict.__getitem__(known.obj, args[0])


def _pop_key(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    read_item(hooks.watch, known, args[0])
    if not dict.__contains__(known.obj, args[0]):
        return natural(known, name)(*args, **kwargs)  # the default, or its error
    value = dict.__getitem__(known.obj, args[0])
    stores.delete_item(hooks.watch, known, args[0])
    return value


def _update(hooks: Hooks, known: Known, name: str, args: Any, kwargs: Any) -> Any:
    given = dict(*(hooks.pairs(value) for value in args), **kwargs)
    for key, value in given.items():
        stores.write_item(hooks.watch, known, key, value)
    return known.obj if name == "__ior__" else None


_METHODS: dict[str, dict[str, Method]] = {
    "list": {
        **dict.fromkeys(("__iter__", "__reversed__", "copy", "__add__", "__mul__"), _whole),
        **dict.fromkeys(("__rmul__", "__copy__"), _whole),
        **dict.fromkeys(("append", "appendleft"), _append),
        **dict.fromkeys(("extend", "extendleft", "__iadd__"), _blind_all),
        **dict.fromkeys(
            ("pop", "popleft", "remove", "reverse", "sort", "rotate", "__imul__"), _changing
        ),
        "__len__": _length,
        "__getitem__": _getitem,
        "__setitem__": _setitem,
        "__delitem__": _delitem,
        "insert": _insert,
        "clear": _blind,
    },
    "dict": {
        **dict.fromkeys(("values", "items", "copy", "__reversed__", "__copy__"), _whole),
        **dict.fromkeys(("__or__", "__ror__"), _whole),
        **dict.fromkeys(("keys", "__iter__"), _keys),
        **dict.fromkeys(("update", "__ior__"), _update),
        **dict.fromkeys(("popitem", "move_to_end"), _changing),
        "__len__": _length,
        "__getitem__": _getitem,
        "__setitem__": _setitem,
        "__delitem__": _delitem,
        "__contains__": _contains,
        "get": _get,
        "setdefault": _setdefault,
        "pop": _pop_key,
        "clear": _blind,
    },
    "set": {
        **dict.fromkeys(("add", "discard", "clear"), _blind),
        **dict.fromkeys(("update", "__ior__", "difference_update", "__isub__"), _blind_all),
        **dict.fromkeys(
            ("pop", "remove", "intersection_update", "symmetric_difference_update"), _changing
        ),
        **dict.fromkeys(("__iand__", "__ixor__"), _changing),
        **dict.fromkeys(("__iter__", "copy"), _whole),
        "__len__": _length,
    },
}
